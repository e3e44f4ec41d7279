"""Bootstrap intervals with pages as clusters.

The relevant question is the accuracy on other pages. Loads of one page are correlated, so an
interval over loads would be far too narrow for it. Therefore pages are resampled, with all of
their loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anabranch.metrics.outcomes import Floats
from anabranch.metrics.rates import Counts, Rates, rates

LEVEL = 0.95
"""Confidence level: share of resamples inside an interval."""
MOST_RESAMPLES = 100_000
"""Maximum number of resamples, which are drawn all at once."""

BLOCK = 1 << 22
"""Maximum number of draws of unmonitored pages in memory: pages times resamples drawn at once.

There can be tens of thousands of unmonitored pages.
"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval; NaN where it is not defined."""

    value: float
    low: float
    high: float


def intervals(
    counts: Counts, statistic: Callable[[Rates], Floats], resamples: int, seed: int
) -> list[Estimate]:
    """Computes a statistic at each of `t` thresholds, with intervals over `resamples`.

    Args:
        counts: numbers of loads by page.
        statistic: function of `Rates` (..., t) that returns an array of the same shape.
        resamples: number of resamples of the pages, with replacement; monitored and unmonitored
            pages are drawn separately.
        seed: seed of these draws; equal seeds draw equal pages for every statistic.
    """
    chance = np.random.default_rng(seed)
    inside = draws(chance, counts.monitored.size, resamples)
    values = statistic(rates(counts))
    block = max(1, BLOCK // max(counts.unmonitored.size, 1))
    parts = [inside[start : start + block] for start in range(0, resamples, block)]
    drawn = ((part, draws(chance, counts.unmonitored.size, part.shape[0])) for part in parts)
    spread = [np.atleast_2d(statistic(rates(counts, *each))) for each in drawn]
    low, high = percentiles(np.concatenate(spread))
    return [Estimate(*map(float, row)) for row in zip(values, low, high, strict=True)]


def draws(chance: np.random.Generator, pages: int, resamples: int) -> Floats:
    """Returns float64 (resamples, pages): the number of times each page was drawn."""
    if pages == 0:
        return np.zeros((resamples, 0))
    return chance.multinomial(pages, np.full(pages, 1 / pages), resamples).astype(np.float64)


def percentiles(spread: Floats) -> tuple[Floats, Floats]:
    """Returns the ends of the interval of each column; NaN resamples are left out."""
    tail = (1 - LEVEL) / 2
    none = np.isnan(spread).all(axis=0)
    filled = np.where(none, 0.0, spread)
    low, high = np.nanquantile(filled, [tail, 1 - tail], axis=0)
    return np.where(none, np.nan, low), np.where(none, np.nan, high)
