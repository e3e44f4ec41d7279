"""Hand-made features of k-fingerprinting.

Source: Hayes and Danezis, USENIX Security 2016, including their packet-size features for visible
sizes. For chunks that do not divide evenly the paper and its program differ; this module divides
as `numpy.array_split` does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks.base import Floats, Sequences

from .segments import Segments, segments_of

CHUNK = 20
"""Packets in each chunk. The features count the outgoing packets of a chunk."""
PARTS = 20
"""Number of sums that condense each of two series (chunks and seconds)."""
ENDS = 30
"""Packets at each end of a sequence that are counted separately."""
SERIES = 36
"""First elements of the chunk series and the per-second series that are kept unchanged."""
LAST_SECOND = 3599
"""Last second of the series. Later packets count in it, so that an absurd time costs no memory."""

_SIDES = ("all", "in", "out")

Columns = dict[str, Floats]


def kfp_features(X: Sequences) -> Floats:
    """Returns float64 (n, 174): the columns of `KFP_FEATURES`; zeros for an empty sequence.

    With counters, the columns of `KFP_COUNTER_FEATURES` follow.
    """
    columns = _columns(X) | ({} if X.counts is None else _counters(X))
    return np.column_stack(list(columns.values())).astype(np.float64)


def _columns(X: Sequences) -> Columns:
    incoming, outgoing = X.sizes < 0, X.sizes > 0
    sides = (np.ones_like(incoming), incoming, outgoing)
    return (
        _counts(X, incoming, outgoing)
        | _order(X, incoming, outgoing)
        | _ends(X, incoming, outgoing)
        | _timing(segments_of(X, X.elapsed), sides)
        | _sizes(segments_of(X, np.abs(X.sizes)), sides)
        | _series("chunk", _chunks(X, outgoing))
        | _series("second", _seconds(X))
    )


def _counts(X: Sequences, incoming: NDArray[np.bool_], outgoing: NDArray[np.bool_]) -> Columns:
    total = X.lengths
    packets_in, packets_out = _tally(X, incoming), _tally(X, outgoing)
    return {
        "packets_all": total.astype(np.float64),
        "packets_in": packets_in,
        "packets_out": packets_out,
        "share_in": packets_in / np.maximum(total, 1),
        "share_out": packets_out / np.maximum(total, 1),
    }


def _order(X: Sequences, incoming: NDArray[np.bool_], outgoing: NDArray[np.bool_]) -> Columns:
    """Returns mean and deviation of the positions of each direction's packets in the load."""
    columns: Columns = {}
    places = segments_of(X, X.positions)
    for side, mask in (("in", incoming), ("out", outgoing)):
        chosen = places.where(mask)
        columns[f"order_{side}_mean"] = chosen.mean
        columns[f"order_{side}_std"] = chosen.deviation
    return columns


def _ends(X: Sequences, incoming: NDArray[np.bool_], outgoing: NDArray[np.bool_]) -> Columns:
    """Counts the packets of each direction among the first and the last 30."""
    head = X.positions < ENDS
    tail = X.positions >= np.repeat(X.lengths, X.lengths) - ENDS
    return {
        f"{end}_{side}": _tally(X, near & mask)
        for end, near in (("first", head), ("last", tail))
        for side, mask in (("in", incoming), ("out", outgoing))
    }


def _tally(X: Sequences, mask: NDArray[np.bool_]) -> Floats:
    """Counts the packets of each sequence that `mask` (packets,) keeps."""
    return np.bincount(X.owners, mask, len(X)).astype(np.float64)


def _timing(times: Segments, sides: tuple[NDArray[np.bool_], ...]) -> Columns:
    """Returns statistics of packets' gaps and times [s]: of all packets, and by direction."""
    columns: Columns = {}
    for side, mask in zip(_SIDES, sides, strict=True):
        chosen = times.where(mask)
        gaps = chosen.differences()
        columns[f"gap_{side}_max"] = gaps.max
        columns[f"gap_{side}_mean"] = gaps.mean
        columns[f"gap_{side}_std"] = gaps.deviation
        columns[f"gap_{side}_q75"] = gaps.quantile(0.75)
        for percent in (25, 50, 75, 100):
            columns[f"time_{side}_q{percent}"] = chosen.quantile(percent / 100)
    return columns


def _sizes(sizes: Segments, sides: tuple[NDArray[np.bool_], ...]) -> Columns:
    """Returns statistics of packet sizes [bytes]: of all packets, and by direction.

    If all packets are cells of one size, only the sums carry information.
    """
    columns: Columns = {}
    for side, mask in zip(_SIDES, sides, strict=True):
        chosen = sizes.where(mask)
        columns[f"bytes_{side}"] = chosen.sum
        columns[f"size_{side}_mean"] = chosen.mean
        columns[f"size_{side}_max"] = chosen.max
        columns[f"size_{side}_var"] = chosen.variance
        columns[f"size_{side}_std"] = chosen.deviation
    return columns


def _chunks(X: Sequences, outgoing: NDArray[np.bool_]) -> Segments:
    """Counts the outgoing packets in each run of 20 packets."""
    widths = -(-X.lengths // CHUNK)
    first = np.repeat(np.cumsum(widths) - widths, X.lengths)
    return Segments.counted(first + X.positions // CHUNK, widths, outgoing)


def _seconds(X: Sequences) -> Segments:
    """Counts the packets in each second, up to the last second with any."""
    second = np.minimum(X.elapsed, LAST_SECOND).astype(np.int64)
    widths = segments_of(X, second).max.astype(np.int64) + (X.lengths > 0)
    first = np.repeat(np.cumsum(widths) - widths, X.lengths)
    return Segments.counted(first + second, widths)


def _series(name: str, counts: Segments) -> Columns:
    """Returns statistics, a condensed form and the first elements of a series of counts."""
    columns = {
        f"{name}_mean": counts.mean,
        f"{name}_std": counts.deviation,
        f"{name}_median": counts.quantile(0.5),
        f"{name}_min": counts.min,
        f"{name}_max": counts.max,
    }
    short, start = counts.in_parts(PARTS), counts.padded(SERIES)
    columns |= {f"{name}_part{i}": short[:, i] for i in range(PARTS)}
    columns |= {f"{name}_{i}": start[:, i] for i in range(SERIES)}
    return columns


def _counters(X: Sequences) -> Columns:
    """Returns packet counts of all paths, by direction, as cleartext counters show them.

    These features are not in the paper but follow its pattern: the count at the end and at each
    fifth of the packets seen, statistics of the increments, and the cumulative count in each of the
    first 36 seconds.
    """
    assert X.counts is not None, "asked for only where there are counters"
    counts, increments = segments_of(X, X.counts), segments_of(X, X.increments)
    second = np.minimum(X.elapsed, LAST_SECOND).astype(np.int64)
    columns: Columns = {}
    for side, mask in (("in", X.sizes < 0), ("out", X.sizes > 0)):
        last, steps = counts.where(mask), increments.where(mask)
        columns[f"counter_{side}_last"] = last.max
        columns |= {f"counter_{side}_q{q}": last.quantile(q / 100) for q in (20, 40, 60, 80)}
        columns[f"counter_{side}_step_mean"] = steps.mean
        columns[f"counter_{side}_step_max"] = steps.max
        columns[f"counter_{side}_step_std"] = steps.deviation
        early = mask & (second < SERIES)
        cell = X.owners[early] * SERIES + second[early]
        rate = np.bincount(cell, X.increments[early], len(X) * SERIES).reshape(-1, SERIES)
        course = np.cumsum(rate, axis=1).astype(np.float64)
        columns |= {f"counter_{side}_second_{i}": course[:, i] for i in range(SERIES)}
    return columns


_EMPTY = Sequences.from_lists([[]], [[]])
KFP_FEATURES = tuple(_columns(_EMPTY))
"""Names of the columns of `kfp_features`."""
KFP_COUNTER_FEATURES = tuple(_counters(replace(_EMPTY, counts=np.zeros(0, np.int64))))
"""Names of the additional columns with counters."""
