"""Intervals of means and medians over rounds, as in `crates/experiment/src/spread.rs`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Any

from scipy import stats

from anabranch.reproduction.found import Interval

LEVEL = 0.95


def mean_interval(rounds: Sequence[float]) -> Interval:
    """Returns the mean of rounds, with a 95 % interval by Student's t (none for one round)."""
    value = mean(rounds)
    if len(rounds) < 2:
        return Interval(value, None, None)
    # Rounded to three digits like the table in the Rust code; otherwise some last digits would
    # differ.
    student = round(float(stats.t.ppf((1 + LEVEL) / 2, len(rounds) - 1)), 3)
    half = float(stats.sem(rounds)) * student
    return Interval(value, value - half, value + half)


def ratio_by_key(values: Mapping[int, float], others: Mapping[int, float]) -> Interval:
    """Returns `paired_ratio` of the values whose key, such as the round, is in both."""
    shared = sorted(values.keys() & others.keys())
    return paired_ratio([values[key] for key in shared], [others[key] for key in shared])


def paired_ratio(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Returns the geometric mean of the ratios of paired values, with a 95 % interval."""
    logs = [math.log(one / other) for one, other in zip(values, others, strict=True)]
    found = mean_interval(logs)
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Interval(math.exp(found.value), low, high)


def median_interval(rounds: Sequence[float]) -> Interval:
    """Returns the median, with the nearest two rounds that enclose it with a probability of 95 %.

    Fewer than six rounds have no such interval.
    """
    ordered = sorted(rounds)
    places = [
        place for place in range(len(ordered) // 2) if _outside(place, len(ordered)) <= 1 - LEVEL
    ]
    if not places:
        return Interval(median(ordered), None, None)
    return Interval(median(ordered), ordered[places[-1]], ordered[-1 - places[-1]])


def by_round(
    rows: Iterable[dict[str, Any]],
    value: Callable[[dict[str, Any]], float],
    amount: Callable[[Sequence[float]], float],
) -> dict[int, float]:
    """Aggregates the values of each round to one, because values of a round are not independent.

    They come from the same processes, and were measured at the same time.

    Args:
        rows: rows with a column `round`.
        value: returns the value of a row.
        amount: returns the aggregate of the values of a round.
    """
    rounds: dict[int, list[float]] = {}
    for row in rows:
        rounds.setdefault(row["round"], []).append(value(row))
    return {number: amount(values) for number, values in sorted(rounds.items())}


def _outside(place: int, count: int) -> float:
    """Returns the probability that an interval of `count` sorted values misses the true median.

    Its ends are the values at the index `place`, from 0, from either end.
    """
    return 2 * float(stats.binom.cdf(place, count, 0.5))
