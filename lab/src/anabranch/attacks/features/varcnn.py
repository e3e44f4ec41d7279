"""Var-CNN's inter-arrival times and cumulative metadata; its directions are those of DF."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks.base import Floats, Sequences

from .segments import segments_of

METADATA_FEATURES = (
    "packets",
    "packets_in",
    "packets_out",
    "share_in",
    "share_out",
    "duration_s",
    "seconds_per_packet",
)
"""Names of the columns of `metadata` (Bhat et al., PETS 2019)."""


def inter_arrival_times(X: Sequences, length: int) -> NDArray[np.float32]:
    """Returns float32 (n, length): seconds since the previous packet; first and padding are 0.

    Source: Bhat et al., PETS 2019. Their program takes differences after padding, which leaves one
    large negative value at the end of the load. This function takes them before padding.
    """
    steps = np.diff(X.elapsed, prepend=0.0)
    steps[X.positions == 0] = 0.0
    return segments_of(X, steps).padded(length, np.float32)


def metadata(X: Sequences) -> Floats:
    """Returns float64 (n, 7): the columns of `METADATA_FEATURES`; zeros for an empty sequence."""
    times = segments_of(X, X.elapsed)
    incoming = times.where(X.sizes < 0).counts
    outgoing = times.where(X.sizes > 0).counts
    total = np.maximum(times.counts, 1)
    shares = [incoming / total, outgoing / total]
    rates = [times.max, times.max / total]
    return np.column_stack([times.counts, incoming, outgoing, *shares, *rates]).astype(np.float64)
