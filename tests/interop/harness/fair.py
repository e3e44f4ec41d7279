"""How much of the traffic a path must carry under a schedule: the bounds that the tests assert.

The bounds follow from the schedule alone; only ``UNEVEN`` allows for traffic that is not constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from harness.net import Counts
from harness.report import shares

# One slice of time holds more packets than the next, because a congestion window grows and shrinks.
UNEVEN = 0.25


def round_robin_bounds(paths: int, seconds: float, slice_s: float) -> tuple[float, float]:
    """Least and greatest share of a path when slices of time go round in turn.

    ``seconds`` hold k whole slices and touch at most k + 2. The paths take turns, so each has at
    least floor(k / n) whole ones and at most ceil((k + 2) / n), of a total between k and k + 2.
    """
    whole = math.floor(seconds / slice_s)
    least = math.floor(whole / paths) / (whole + 2)
    greatest = math.ceil((whole + 2) / paths) / max(whole, 1)
    return least * (1 - UNEVEN), min(greatest * (1 + UNEVEN), 1.0)


def weighted_bounds(weight: float, draws: float) -> tuple[float, float]:
    """Least and greatest share of a path that is drawn with probability ``weight``.

    Four standard deviations of ``draws`` independent draws (one test in 16,000 fails by chance),
    and ``UNEVEN`` as above.
    """
    deviation = 4 * math.sqrt(weight * (1 - weight) / max(draws, 1))
    return (weight - deviation) * (1 - UNEVEN), (weight + deviation) * (1 + UNEVEN)


def unfair(counts: Mapping[str, Counts], bounds: Mapping[str, tuple[float, float]]) -> list[str]:
    """The paths whose share of the packets, up or down, is outside their bounds; empty if none."""
    return [
        f"{name} {way} {share:.3f} not in [{low:.3f}, {high:.3f}]"
        for name, both in shares(counts).items()
        for way, share in zip(("up", "down"), both, strict=True)
        for low, high in [bounds[name]]
        if not low <= share <= high
    ]


def difference(later: Mapping[str, Counts], earlier: Mapping[str, Counts]) -> dict[str, Counts]:
    """What each path carried between two readings."""
    return {name: later[name] - earlier[name] for name in later}


def seconds_of(every: str) -> float:
    """The length of a slice given as ``100ms``."""
    return float(every.removesuffix("ms")) / 1000
