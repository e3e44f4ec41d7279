"""Distances, areas and rates, with intervals over sessions.

Connections of one session are alike, so sessions are drawn again, with all of their connections.
Intervals hold 95 % of the resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.metrics.bootstrap import Estimate, percentiles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RARE = 1e-3
"""The false-positive rate at which a true-positive rate is told."""
_BLOCK = 1 << 22
"""Weights that are drawn at once."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Connections of two classes.

    Attributes:
        positive: bool (n,), whether it is of the class that is looked for.
        session: int64 (n,), equal within a session and nowhere else.
        resamples: how often sessions are drawn.
        seed: of these draws.
    """

    positive: Bools
    session: Ints
    resamples: int
    seed: int

    def weights(self) -> Iterator[Floats]:
        """float64 (some, n): how often each connection was drawn; both classes by themselves."""
        chance = np.random.default_rng(self.seed)
        names, place = np.unique(self.session, return_inverse=True)
        of_positive = np.zeros(names.size, np.bool_)
        of_positive[place[self.positive]] = True
        step = max(1, _BLOCK // max(self.session.size, 1))
        for start in range(0, self.resamples, step):
            rows = min(step, self.resamples - start)
            drawn = np.zeros((rows, names.size))
            for side in (np.flatnonzero(of_positive), np.flatnonzero(~of_positive)):
                drawn[:, side] = chance.multinomial(
                    side.size, np.full(side.size, 1 / side.size), rows
                )
            yield drawn[:, place]

    def estimate(self, statistic: Callable[[Floats], Floats]) -> Estimate:
        """A statistic of weights (rows, n), one value a row, and its interval."""
        value = float(statistic(np.ones((1, self.positive.size)))[0])
        spread = np.concatenate([statistic(each) for each in self.weights()])
        low, high = percentiles(spread[:, None])
        return Estimate(value, float(low[0]), float(high[0]))


def distance(sample: Sample, values: Floats) -> Estimate:
    """Kolmogorov and Smirnov's distance between both classes, 0 to 1.

    Args:
        sample: of the connections.
        values: float64 (n,); NaN is a value of its own, below all others.
    """
    return sample.estimate(_Ordered(sample.positive, values).distance)


def area(sample: Sample, scores: Floats) -> Estimate:
    """Area under the ROC curve: how often a positive has more than a negative; ties count half."""
    return sample.estimate(_Ordered(sample.positive, scores).area)


def rate(sample: Sample, scores: Floats, false: float = RARE) -> Estimate:
    """The greatest share of positives above a threshold that at most `false` of negatives pass."""
    return sample.estimate(lambda weights: _Ordered(sample.positive, scores).rate(weights, false))


def fewest_false(negatives: int) -> float:
    """What a rate of none of so many may be, at 95 %: the rule of three."""
    return min(1.0, 3 / negatives) if negatives else 1.0


class _Ordered:
    """Values in rising order, and where each kind of them ends."""

    def __init__(self, positive: Bools, values: Floats) -> None:
        known = np.nan_to_num(values, nan=-np.inf)
        self.order = np.argsort(known, kind="stable")
        self.positive = positive[self.order]
        rising = known[self.order]
        ends = np.flatnonzero(rising[1:] != rising[:-1])  # no difference: there is -inf
        self.ends = np.append(ends, known.size - 1)

    def _shares(self, weights: Floats) -> tuple[Floats, Floats]:
        """Shares of both classes up to each kind: (rows, kinds)."""
        sorted_weights = weights[:, self.order]
        sides = []
        for side in (self.positive, ~self.positive):
            summed = np.cumsum(sorted_weights * side, axis=1)
            total = np.maximum(summed[:, -1:], 1e-12)
            sides.append(summed[:, self.ends] / total)
        return sides[0], sides[1]

    def distance(self, weights: Floats) -> Floats:
        positive, negative = self._shares(weights)
        found: Floats = np.abs(positive - negative).max(axis=1)
        return found

    def area(self, weights: Floats) -> Floats:
        positive, negative = self._shares(weights)
        below = np.diff(negative, axis=1, prepend=0.0)
        above = 1 - positive + np.diff(positive, axis=1, prepend=0.0) / 2
        found: Floats = (below * above).sum(axis=1)
        return found

    def rate(self, weights: Floats, false: float) -> Floats:
        positive, negative = self._shares(weights)
        first = np.zeros((weights.shape[0], 1))
        passed = 1 - np.concatenate([first, negative], axis=1) <= false + 1e-12
        caught = 1 - np.concatenate([first, positive], axis=1)
        found: Floats = np.where(passed, caught, 0.0).max(axis=1)
        return found
