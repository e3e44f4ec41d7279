"""CUMUL's features of a load: totals and samples of its cumulated sizes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks.base import Floats, Sequences

from .segments import Segments, segments_of


def cumul_features(X: Sequences, points: int = 100) -> Floats:
    """Returns float64 (n, 4 + points): four totals and samples of the cumulated sizes.

    Source: Panchenko et al., NDSS 2016. The totals are packets in and out, and bytes in and out.
    The cumulated sizes are the running sum of signed sizes (server to client counts +) as a
    function of the running sum of absolute sizes. This curve is interpolated linearly and sampled
    at `points` equal distances. An empty sequence gives zeros.
    """
    sizes = -segments_of(X, X.sizes).values
    parts = _by_direction(X)
    totals = [*(part.counts for part in parts), *(part.sum for part in parts)]
    course = [_course(sizes[a:b], points) for a, b in pairwise(X.offsets)]
    return np.column_stack([*totals, np.array(course).reshape(-1, points)])


def _by_direction(X: Sequences) -> list[Segments]:
    sizes = segments_of(X, np.abs(X.sizes))
    return [sizes.where(X.sizes < 0), sizes.where(X.sizes > 0)]


def _course(sizes: NDArray[np.float64], points: int) -> Floats:
    if sizes.size == 0:
        return np.zeros(points)
    along = np.concatenate([[0.0], np.cumsum(np.abs(sizes))])
    height = np.concatenate([[0.0], np.cumsum(sizes)])
    places = np.linspace(0.0, along[-1], points + 1)[1:]
    return np.asarray(np.interp(places, along, height))
