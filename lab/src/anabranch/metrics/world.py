"""Closed-world accuracy, open-world operating point and curve, and accuracy by share seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anabranch.metrics.bootstrap import Estimate, intervals
from anabranch.metrics.outcomes import Bools, Floats, Outcomes
from anabranch.metrics.rates import Rates, count, f1_score, r_precision, rates

STEPS = 101
"""Number of thresholds of a curve."""


def closed_world(outcomes: Outcomes, pages: int, resamples: int, seed: int) -> dict[str, Any]:
    """Computes the share of correctly classified loads; an unseen load is a miss.

    Args:
        outcomes: predictions for the test set.
        pages: number of classes.
        resamples: number of resamples of the bootstrap.
        seed: seed of the bootstrap.
    """
    everything = np.ones((len(outcomes), 1), np.bool_)
    counts = count(outcomes, everything)
    (accuracy,) = intervals(counts, lambda rates: rates.true, resamples, seed)
    return {
        "accuracy": accuracy,
        "chance": 1 / pages,
        "pages": counts.monitored.size,
        "predictions": len(outcomes),
        "unseen": int((outcomes.packets == 0).sum()),
        "by_share": by_share(outcomes, everything[:, 0], resamples, seed),
    }


def open_world(
    outcomes: Outcomes, accepted: Bools, curve: Bools, r: float, resamples: int, seed: int
) -> dict[str, Any]:
    """Computes recall, r-precision and F1 at an operating point, and along a curve.

    Args:
        outcomes: predictions for the test set.
        accepted: bool (n,), whether a load is accepted as monitored at the operating point.
        curve: bool (n, t), whether a load is accepted at each threshold of the curve. Each fold
            has its own thresholds; a point of the curve uses the same index in every fold.
        r: unmonitored loads per monitored one.
        resamples: number of resamples of the bootstrap.
        seed: seed of the bootstrap.
    """
    point, line = count(outcomes, accepted[:, None]), count(outcomes, curve)
    statistics = _statistics(r)
    at_point = {
        name: intervals(point, statistic, resamples, seed)[0]
        for name, statistic in statistics.items()
    }
    along = {
        name: intervals(line, statistics[name], resamples, seed)
        for name in ("recall", "r_precision", "false_positive_rate")
    }
    return at_point | {
        "r": r,
        "monitored_pages": point.monitored.size,
        "monitored_predictions": int(point.monitored.sum()),
        "unmonitored_pages": point.unmonitored.size,
        "unmonitored_predictions": int(point.unmonitored.sum()),
        "unseen": int((outcomes.packets == 0).sum()),
        "by_share": by_share(outcomes, accepted, resamples, seed),
        "curve": along,
    }


def by_share(
    outcomes: Outcomes, accepted: Bools, resamples: int, seed: int
) -> list[dict[str, Any]]:
    """Computes accuracy (recall, in an open world) for quarters of the monitored loads.

    Loads are divided into quarters by the share of their packets that the observer sees. Equal
    shares stay together, so there can be fewer than four parts; without a split, there is one.
    """
    chosen = outcomes.monitored
    rows, taken = outcomes[chosen], accepted[chosen]
    if not len(rows):
        return []
    edges = np.unique(np.quantile(rows.share, [0.25, 0.5, 0.75]))
    quarter = np.searchsorted(edges, rows.share, side="left")
    parts = [quarter == number for number in np.unique(quarter)]
    return [_part(rows[part], taken[part], resamples, seed) for part in parts]


def thresholds(validation: Outcomes) -> Floats:
    """Returns float64 (STEPS,): thresholds of the score, ascending.

    They are quantiles, 0 to 100 %, of the scores of the monitored validation loads. Loads without
    packets are left out. Without any scores, the thresholds are equally spaced from 0 to 1.
    """
    scores = validation.score[validation.monitored & (validation.packets > 0)]
    if scores.size == 0:
        return np.linspace(0, 1, STEPS)
    return np.quantile(scores, np.linspace(0, 1, STEPS))


def best_threshold(validation: Outcomes, grid: Floats, r: float) -> float:
    """Returns the threshold of `grid` with the best F1 on `validation`; on ties the highest."""
    counts = count(validation, validation.score[:, None] >= grid)
    scores = f1_score(rates(counts), r)
    return float(grid[np.flatnonzero(scores == scores.max())[-1]])


def resolution(numbers: Mapping[str, Any], *, unseen: bool, most: int | None = None) -> str:
    """Describes how exactly the unmonitored test pages determine the false-positive rate.

    Args:
        numbers: metrics as returned by `open_world`.
        unseen: whether the unmonitored test pages were not in training.
        most: None for a text about one result. For a text about several results, it is their
            maximum number of unmonitored test loads, and `numbers` has the metrics of the result
            with the fewest.
    """
    pages, loads = (numbers[f"unmonitored_{name}"] for name in ("pages", "predictions"))
    r = float(numbers["r"])
    if pages == 0:
        return "There are no unmonitored pages, so the false-positive rate is unknown."
    step, bound = 1 / pages, 1 - 0.05 ** (1 / pages)
    tested = f"{loads} loads"
    if most is not None and most > loads:
        tested += f" in the result with the fewest loads, {most} in the one with the most"
    fineness = (
        f"The false-positive rate is estimated from {pages} unmonitored pages ({tested}). One "
        f"page that is always mistaken for a monitored page raises it by {step:.1%}; with r = "
        f"{r:g} that weighs as much as {r * step:.0%} of the monitored loads. "
    )
    if not unseen:
        return (
            f"{fineness}The attack is also trained on these pages, so the rate for other pages is "
            "unknown."
        )
    return (
        f"{fineness}Even if no page were mistaken, up to {bound:.1%} of other pages could be (95 "
        "% confidence). So this test cannot prove an r-precision above "
        f"{1 / (1 + r * bound):.0%} at a recall of 100 %, and less at a lower recall."
    )


def _statistics(r: float) -> dict[str, Any]:
    def precision(rates: Rates) -> Floats:
        return r_precision(rates, r)

    def score(rates: Rates) -> Floats:
        return f1_score(rates, r)

    return {
        "recall": lambda rates: rates.true,
        "wrong_positive_rate": lambda rates: rates.wrong,
        "false_positive_rate": lambda rates: rates.false,
        "r_precision": precision,
        "f1": score,
    }


def _part(rows: Outcomes, taken: Bools, resamples: int, seed: int) -> dict[str, Any]:
    accuracy: Estimate
    (accuracy,) = intervals(count(rows, taken[:, None]), lambda rates: rates.true, resamples, seed)
    return {
        "least_share": float(rows.share.min()),
        "mean_share": float(rows.share.mean()),
        "greatest_share": float(rows.share.max()),
        "predictions": len(rows),
        "accuracy": accuracy,
    }
