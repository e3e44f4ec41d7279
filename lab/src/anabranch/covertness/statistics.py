"""Distances, areas and rates, with intervals over sites.

Connections of one session are correlated, and so are sessions of one site, in all classes at once.
Therefore sites are resampled, with all of their connections in every class. Ends of a 95 %
interval are percentiles of these resamples, so that intervals of shares and areas stay within 0 to
1. With few sites, such intervals would be too narrow. The percentiles are therefore moved outwards
as in Hesterberg ("What Teachers Should Know About the Bootstrap", The American Statistician 69,
2015, section 5.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from anabranch.metrics.bootstrap import LEVEL, Estimate, draws

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

RARE = 1e-3
"""False-positive rate at which the true-positive rate is reported."""
NEGATIVES = 10_000
"""Minimum number of negatives to report the rate at `RARE`; with fewer, a handful would decide it.
"""
_BLOCK = 1 << 22
"""Maximum number of array values to compute at once, to limit memory."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Connections of two classes.

    Attributes:
        positive: bool (n,), whether a connection is of the positive class.
        site: int64 (n,), equal for all connections of a site, of both classes.
        resamples: number of resamples of the sites.
        seed: seed of the resamples.
    """

    positive: Bools
    site: Ints
    resamples: int
    seed: int

    def distance(self, values: Floats) -> Estimate:
        """Returns the Kolmogorov-Smirnov distance between both classes, 0 to 1.

        Args:
            values: float64 (n,); NaN is a value of its own, below all others.
        """
        return self._estimate(values, _distance)

    def area(self, scores: Floats) -> Estimate:
        """Returns the ROC area: share of pairs whose positive scores higher; ties count half."""
        return self._estimate(scores, _area)

    def rate(self, scores: Floats, false: float = RARE) -> Estimate:
        """Returns the greatest true-positive rate at a false-positive rate of at most `false`."""
        return self._estimate(scores, lambda ours, real: _rate(ours, real, false))

    def _estimate(self, values: Floats, statistic: Callable[[Floats, Floats], Floats]) -> Estimate:
        """Returns `statistic` of both classes' distribution functions, with an interval over sites.

        The functions are arrays (rows, kinds), as `_Counts.shares` returns them. `statistic`
        returns a value for each row.
        """
        counts = _Counts(self, values)
        sites, kinds = counts.positive.shape
        value = float(statistic(*counts.shares(np.ones((1, sites))))[0])
        chance = np.random.default_rng(self.seed)
        step = max(1, _BLOCK // kinds)
        spread = [
            statistic(*counts.shares(draws(chance, sites, min(step, self.resamples - start))))
            for start in range(0, self.resamples, step)
        ]
        return interval(value, np.concatenate(spread), sites)


def interval(value: float, spread: Floats, sites: int) -> Estimate:
    """Returns a value with the interval of its resamples `spread` (n,); NaN resamples are ignored.

    The interval contains the value; its ends are NaN without resamples or with a single site.
    """
    known = spread[~np.isnan(spread)]
    if not known.size or sites < 2:
        return Estimate(value, float("nan"), float("nan"))
    wide = np.sqrt(sites / (sites - 1)) * stats.t.ppf((1 + LEVEL) / 2, sites - 1)
    tail = float(stats.norm.cdf(-wide))
    low, high = np.quantile(known, [tail, 1 - tail])
    return Estimate(value, min(float(low), value), max(float(high), value))


def fewest_false(negatives: int) -> float:
    """Returns the 95 % upper bound of a rate with no hit in `negatives`: the rule of three."""
    return min(1.0, 3 / negatives) if negatives else 1.0


class _Counts:
    """Numbers of connections of each site and class with at most a given value.

    Attributes:
        positive, negative: float64 (sites, kinds), cumulative counts of both classes. The kinds are
            the distinct values, in rising order.
    """

    def __init__(self, sample: Sample, values: Floats) -> None:
        known = np.nan_to_num(values, nan=-np.inf)
        kinds, kind = np.unique(known, return_inverse=True)
        names, site = np.unique(sample.site, return_inverse=True)
        sides = []
        for side in (sample.positive, ~sample.positive):
            counts = np.zeros((names.size, kinds.size))
            np.add.at(counts, (site[side], kind[side]), 1)
            sides.append(np.cumsum(counts, axis=1))
        self.positive, self.negative = sides

    def shares(self, drawn: Floats) -> tuple[Floats, Floats]:
        """Returns both distribution functions (rows, kinds), of sites drawn (rows, sites) times.

        NaN if a class has no connection.
        """
        found = []
        for counts in (self.positive, self.negative):
            summed = drawn @ counts
            total = summed[:, -1:]
            found.append(np.divide(summed, total, where=total > 0,
                                   out=np.full_like(summed, np.nan)))  # fmt: skip
        return found[0], found[1]


def _distance(positive: Floats, negative: Floats) -> Floats:
    found: Floats = np.abs(positive - negative).max(axis=1)
    return found


def _area(positive: Floats, negative: Floats) -> Floats:
    below = np.diff(negative, axis=1, prepend=0.0)
    above = 1 - positive + np.diff(positive, axis=1, prepend=0.0) / 2
    found: Floats = (below * above).sum(axis=1)
    return found


def _rate(positive: Floats, negative: Floats, false: float) -> Floats:
    first = np.zeros((positive.shape[0], 1))
    passed = 1 - np.concatenate([first, negative], axis=1) <= false + 1e-12
    caught = 1 - np.concatenate([first, positive], axis=1)
    found: Floats = np.where(passed, caught, 0.0).max(axis=1)
    found[np.isnan(positive[:, 0]) | np.isnan(negative[:, 0])] = np.nan
    return found
