"""True, wrong and false positives by page, and rates computed from them.

Wang, "High precision open-world website fingerprinting", IEEE S&P 2020: a true positive is a
monitored load classified correctly, a wrong positive one classified as another monitored page, a
false positive an unmonitored load classified as a monitored page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch.metrics.outcomes import Bools, Floats, Outcomes

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of loads of each page, by classification, at each of `t` thresholds.

    Attributes:
        monitored: int64 (monitored pages,), loads of each.
        true, wrong: int64 (monitored pages, t).
        unmonitored: int64 (unmonitored pages,), loads of each.
        false: int64 (unmonitored pages, t).
    """

    monitored: Ints
    true: Ints
    wrong: Ints
    unmonitored: Ints
    false: Ints


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates at each of `t` thresholds, or for each of `b` resamples of pages: (t,) or (b, t).

    Attributes:
        true: float64, true positives as a share of monitored loads.
        wrong: float64, wrong positives as a share of monitored loads.
        false: float64, false positives as a share of unmonitored loads.
    """

    true: Floats
    wrong: Floats
    false: Floats


def count(outcomes: Outcomes, accepted: Bools) -> Counts:
    """Counts, for each page, the loads that are `accepted` as monitored, bool (n, t)."""
    seen = accepted & (outcomes.packets > 0)[:, None]
    right = outcomes.right[:, None]
    inside, outside = outcomes.monitored, ~outcomes.monitored
    return Counts(
        monitored=_by_page(outcomes.page[inside], np.ones((inside.sum(), 1)))[:, 0],
        true=_by_page(outcomes.page[inside], (seen & right)[inside]),
        wrong=_by_page(outcomes.page[inside], (seen & ~right)[inside]),
        unmonitored=_by_page(outcomes.page[outside], np.ones((outside.sum(), 1)))[:, 0],
        false=_by_page(outcomes.page[outside], seen[outside]),
    )


def rates(counts: Counts, inside: ArrayLike = 1.0, outside: ArrayLike = 1.0) -> Rates:
    """Returns rates with monitored pages weighted by `inside`, unmonitored ones by `outside`.

    Args:
        counts: numbers of loads by page.
        inside: a number, or float64 (b, monitored pages).
        outside: a number, or float64 (b, unmonitored pages).
    """
    return Rates(
        true=_share(counts.true, counts.monitored, inside),
        wrong=_share(counts.wrong, counts.monitored, inside),
        false=_share(counts.false, counts.unmonitored, outside),
    )


def r_precision(rates: Rates, r: float) -> Floats:
    """Returns TPR / (TPR + WPR + r FPR): precision with `r` unmonitored loads per monitored one.

    It is NaN if no load is accepted as monitored: precision is undefined then.
    """
    below = rates.true + rates.wrong + r * rates.false
    with np.errstate(invalid="ignore"):
        precision: Floats = rates.true / below
    return precision


def f1_score(rates: Rates, r: float) -> Floats:
    """Returns the harmonic mean of r-precision and recall; 0 if no load is accepted."""
    precision = np.nan_to_num(r_precision(rates, r))
    total = precision + rates.true
    score: Floats = 2 * precision * rates.true / np.where(total > 0, total, 1)
    return score


def _share(hits: Ints, loads: Ints, weights: ArrayLike) -> Floats:
    """Returns hits divided by loads, both summed over pages with `weights`; NaN without loads."""
    weight = np.broadcast_to(weights, np.shape(weights)[:-1] + loads.shape).astype(np.float64)
    total = (weight @ loads)[..., None]
    with np.errstate(invalid="ignore"):
        share: Floats = (weight @ hits) / total
    return share


def _by_page(pages: NDArray[np.int32], hits: NDArray[np.float64] | Bools) -> Ints:
    """Returns int64 (pages, t): sums of `hits` (n, t) over the loads of each page."""
    names, codes = np.unique(pages, return_inverse=True)
    sums = np.zeros((names.size, hits.shape[1]), np.int64)
    np.add.at(sums, codes, hits.astype(np.int64))
    return sums
