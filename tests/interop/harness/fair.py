"""Bounds on a path's share of the traffic under a schedule, which the tests assert.

The bounds follow from the schedule alone, except for ``UNEVEN``, a margin for uneven traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.net import Counts
from harness.report import shares

# Margin of a share. Time slices have different numbers of packets, because the congestion window
# varies.
UNEVEN = 0.25


def round_robin_bounds(paths: int, seconds: float, slice_s: float) -> tuple[float, float]:
    """Returns the least and greatest share of a path when time slices rotate round-robin.

    ``seconds`` contain k whole slices and touch at most k + 2. The n paths take turns, so each has
    at least floor(k / n) whole slices and at most ceil((k + 2) / n), of a total between k and k +
    2.
    """
    whole = math.floor(seconds / slice_s)
    least = math.floor(whole / paths) / (whole + 2)
    greatest = math.ceil((whole + 2) / paths) / max(whole, 1)
    return least * (1 - UNEVEN), min(greatest * (1 + UNEVEN), 1.0)


def weighted_bounds(weight: float, draws: float) -> tuple[float, float]:
    """Returns the least and greatest share of a path that is drawn with probability ``weight``.

    Four standard deviations of ``draws`` independent draws (one test in 16,000 fails by chance),
    and ``UNEVEN`` as above.
    """
    deviation = 4 * math.sqrt(weight * (1 - weight) / max(draws, 1))
    return (weight - deviation) * (1 - UNEVEN), (weight + deviation) * (1 + UNEVEN)


def unfair(counts: Mapping[str, Counts], bounds: Mapping[str, tuple[float, float]]) -> list[str]:
    """Returns the paths whose share of the packets, up or down, is out of bounds; empty
    if none is.
    """
    return [
        f"{name} {way} {share:.3f} not in [{low:.3f}, {high:.3f}]"
        for name, both in shares(counts).items()
        for way, share in zip(("up", "down"), both, strict=True)
        for low, high in [bounds[name]]
        if not low <= share <= high
    ]


def difference(later: Mapping[str, Counts], earlier: Mapping[str, Counts]) -> dict[str, Counts]:
    """Returns each path's counts between two readings."""
    return {name: later[name] - earlier[name] for name in later}


def seconds_of(every: str) -> float:
    """Returns the length in seconds of a slice given as ``100ms``."""
    return float(every.removesuffix("ms")) / 1000
