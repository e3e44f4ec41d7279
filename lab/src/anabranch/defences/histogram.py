"""Histograms of adaptive padding: tokens in time bins are drawn, removed and refilled."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Literal

from anabranch.defences.base import DefenceError

BINS = 30
"""Number of finite bins of a fitted histogram, as published."""

LONGEST = 10.0
"""End of the last finite bin in seconds, as published."""

TOKENS = 10_000
"""Number of tokens that a fit distributes, as published. Tokens for negative times are dropped."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters of a histogram, as published: a distribution and the size of the infinity bin.

    Attributes:
        rest: number that determines the size of the infinity bin (see `tokens`). For the state
            `gap`, it is the mean number of dummies of a fake burst; for `burst`, the ratio of real
            bursts to fake ones.
        mean: mean of the normal distribution in seconds; for the log-normal one, of the logarithm.
        deviation: standard deviation, in the unit of `mean`.
        kind: the distribution.

    Raises:
        DefenceError: if the numbers do not define a histogram.
    """

    rest: float
    mean: float
    deviation: float
    kind: Literal["normal", "log-normal"] = "normal"

    def __post_init__(self) -> None:
        finite = all(map(math.isfinite, (self.rest, self.mean, self.deviation)))
        if not finite or self.deviation <= 0 or self.rest <= 1 or self.kind not in _CDF:
            raise DefenceError(
                f"{self} is not a histogram: expected a finite mean, a deviation above 0, "
                "and a rest above 1"
            )

    def tokens(self, mode: Literal["burst", "gap"]) -> Tokens:
        """Returns the histogram of the state `mode`, with the expected number of tokens per bin.

        The published code draws 10,000 numbers instead, from an unseeded generator. For `gap`, one
        draw in `rest` is infinity, so that a fake burst has `rest` draws on average. For `burst`,
        there are `rest` finite tokens for each infinite one.
        """
        edges = exponential_edges(LONGEST, BINS)
        below = [_CDF[self.kind](edge, self.mean, self.deviation) for edge in edges]
        shares = (right - left for left, right in pairwise(below))
        finite = [round(TOKENS * share) for share in shares]
        rest = self.rest - 1 if mode == "gap" else self.rest
        return Tokens(tuple(edges), tuple(finite), math.ceil(sum(finite) / rest))


@dataclass(frozen=True, slots=True)
class Tokens:
    """A full histogram: bin `i` is `[edges[i], edges[i + 1])`, in seconds.

    Attributes:
        edges: ascending, from 0 or more.
        finite: tokens of each bin.
        infinite: number of tokens that mean "no dummy".

    Raises:
        DefenceError: if these are not consistent, or there is no token.
    """

    edges: tuple[float, ...]
    finite: tuple[int, ...]
    infinite: int

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in pairwise(self.edges))
        counts = [*self.finite, self.infinite]
        if not rising or self.edges[0] < 0 or len(self.edges) != len(self.finite) + 1:
            raise DefenceError("histogram: expected ascending edges from 0 on, one more than bins")
        if min(counts) < 0 or sum(counts) == 0:
            raise DefenceError(
                "histogram: expected 0 or more tokens in each bin, and at least one token in all"
            )


class Histogram:
    """A histogram in use: its tokens are removed one by one, and refilled when it is empty."""

    __slots__ = ("_counts", "_edges", "_full", "_total")

    def __init__(self, tokens: Tokens) -> None:
        self._edges = tokens.edges
        self._full = [*tokens.finite, tokens.infinite]
        self._refill()

    @property
    def counts(self) -> Sequence[int]:
        """Number of tokens left in each bin; the last bin is infinity."""
        return self._counts

    def draw(self, chance: Random) -> float:
        """Draws the seconds to the next dummy, uniform within a token's bin, or infinity.

        The token is not removed. `remove` does this later, for the time that actually passed.
        """
        left = chance.random() * self._total
        place = -1
        for place, count in enumerate(self._counts):  # noqa: B007  # only the index is needed
            left -= count
            if left < 0:
                break
        if place == len(self._counts) - 1:
            return math.inf
        low, high = self._edges[place], self._edges[place + 1]
        return low + (high - low) * chance.random()

    def remove(self, seconds: float) -> None:
        """Removes a token from the bin of `seconds`, the time that passed.

        If that bin is empty, the token comes from the nearest bin with tokens to the left, or if
        there is none, to the right. After the last token, all tokens are restored.
        """
        place = min(max(bisect_right(self._edges, seconds) - 1, 0), len(self._counts) - 1)
        self._counts[self._nearest(place)] -= 1
        self._total -= 1
        if self._total == 0:
            self._refill()

    def _nearest(self, place: int) -> int:
        for left in range(place, -1, -1):
            if self._counts[left]:
                return left
        return next(right for right in range(place, len(self._counts)) if self._counts[right])

    def _refill(self) -> None:
        self._counts = list(self._full)
        self._total = sum(self._counts)


def exponential_edges(longest: float, bins: int) -> list[float]:
    """Returns 0, then `bins` edges up to `longest` seconds, each twice the previous one."""
    return [0.0, *(longest / 2.0**halvings for halvings in range(bins - 1, -1, -1))]


def _normal(value: float, mean: float, deviation: float) -> float:
    return 0.5 * math.erfc((mean - value) / (deviation * math.sqrt(2.0)))


def _log_normal(value: float, mean: float, deviation: float) -> float:
    return _normal(math.log(value), mean, deviation) if value > 0 else 0.0


_CDF = {"normal": _normal, "log-normal": _log_normal}
