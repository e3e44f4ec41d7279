"""Comparison of two results load by load, on the loads that both predicted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.metrics.bootstrap import Estimate, draws, percentiles
from anabranch.metrics.outcomes import Bools, Floats, Outcomes


class PairError(ValueError):
    """Error of two results that cannot be compared load by load; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The gain of the second result over the first on loads that both predicted.

    Attributes:
        loads: number of loads that both predicted.
        pages: number of their pages.
        first, second: accuracy of each result on these loads, with 95 % intervals by page.
        gain: second accuracy minus first, with its 95 % interval.
        only_first, only_second: numbers of loads that only the first, or only the second,
            recognised.
    """

    loads: int
    pages: int
    first: Estimate
    second: Estimate
    gain: Estimate
    only_first: int
    only_second: int


def difference(first: Outcomes, second: Outcomes, resamples: int, seed: int) -> Difference:
    """Compares closed-world predictions; the bootstrap draws the same pages for both.

    A page that is easy for both results cancels out of their difference. The interval of the
    difference is therefore usually far narrower than the intervals of the accuracies suggest.

    Raises:
        PairError: if a result has several predictions of a load, or the results have no load in
            common, or have different pages for a load.
    """
    ours, theirs = _common(first, second)
    page = first.page[ours]
    if (page != second.page[theirs]).any():
        raise PairError("their loads are of different pages: compare results of the same data")
    right = np.stack([first.right[ours], second.right[theirs]], axis=1)
    pages, counts = _by_page(page, right)
    weights = draws(np.random.default_rng(seed), pages.size, resamples)
    value = _accuracies(counts, np.ones((1, pages.size)))[0]
    spread = _accuracies(counts, weights)
    low, high = percentiles(spread)
    estimates = [Estimate(*map(float, row)) for row in zip(value, low, high, strict=True)]
    return Difference(
        loads=page.size,
        pages=pages.size,
        first=estimates[0],
        second=estimates[1],
        gain=estimates[2],
        only_first=int((right[:, 0] & ~right[:, 1]).sum()),
        only_second=int((right[:, 1] & ~right[:, 0]).sum()),
    )


def _common(first: Outcomes, second: Outcomes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the rows of the common loads in each result, in the same order."""
    _, ours, theirs = np.intersect1d(
        _names(first), _names(second), assume_unique=True, return_indices=True
    )
    if not ours.size:
        raise PairError("the results have no load in common")
    return ours, theirs


def _names(outcomes: Outcomes) -> NDArray[np.void]:
    names = np.empty(len(outcomes), [("run", np.int32), ("load", np.int64)])
    names["run"], names["load"] = outcomes.run, outcomes.load
    if np.unique(names).size != names.size:
        raise PairError(
            "a result has several predictions of one load: compare results with one prediction "
            "per load"
        )
    return names


def _by_page(page: NDArray[np.int32], right: Bools) -> tuple[NDArray[np.int32], Floats]:
    """Returns the pages, and float64 (pages, 3) with counts of loads.

    The columns are all loads, those that the first result recognised, and those that the second
    recognised.
    """
    pages, codes = np.unique(page, return_inverse=True)
    counts = np.zeros((pages.size, 3))
    np.add.at(counts, codes, np.column_stack([np.ones(page.size), right]))
    return pages, counts


def _accuracies(counts: Floats, weights: Floats) -> Floats:
    """Returns float64 (resamples, 3): accuracy of the first and second, and second minus first."""
    loads, first, second = (weights @ counts).T
    return np.column_stack([first / loads, second / loads, (second - first) / loads])
