"""StegoTorus (CCS 2012): Table 2, Table 3, Figures 6 and 7.

The rules for Table 3 and the figures are the same as in `camouflage/claims.rs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

from anabranch.camouflage import numbers
from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.found import OPEN, Found, Interval, all_of, at_least, at_most
from anabranch.reproduction.spread import by_round, median_interval

LONGEST = 1_000_000
SITES = "camouflage-fingerprinting/results.jsonl"
FAR = 200
"""Minimum round trip in ms at which the paper's HTTP cannot sustain a stream."""

_QUANTITIES: dict[str, Callable[[Row], float]] = {
    "up": lambda row: float(row["up"]) if row["ended"] else math.inf,
    "down": lambda row: float(row["down"]) if row["ended"] else math.inf,
    "goodput": lambda row: row["bytes"] / 1e3 / row["whole"] if row["ended"] else 0.0,
}


def ratio(
    data: Data,
    arm: str,
    other: str,
    quantity: str,
    most: float | None = None,
    least: float | None = None,
) -> Found:
    """Judges the ratio of two transports in each round, for a quantity of a 1 MB download.

    Args:
        data: has `camouflage.parquet`.
        arm: the transport.
        other: the transport to compare with.
        quantity: `up`, `down` (bytes on the client's line) or `goodput`.
        most: upper bound of the claim; None if it has a lower bound.
        least: lower bound of the claim; None if it has an upper bound.
    """
    ours, theirs = (_rounds(data, each, quantity) for each in (arm, other))
    found = median_interval([ours[each] / theirs[each] for each in ours if each in theirs])
    count = len(ours.keys() & theirs.keys())
    verdict = at_most(found, most) if most is not None else at_least(found, least or 0)
    number = f"{found.value:.3f} {_between(found)}"
    why = "" if verdict != OPEN else "the interval contains the bound"
    if found.low is None:
        why = f"{count} of six rounds"
    return Found(f"{arm}: {number} × {other}", verdict, why, (f"{number} (of {count})",))


def flat(data: Data, arm: str, rate: int, most: float) -> Found:
    """Judges whether a stream's bandwidth changes with the RTT by at most the share `most`.

    The largest change counts, relative to the bandwidth at the shortest RTT.
    """
    levels = _levels(data, arm, rate, lambda row: row["down"] / 1e3)
    first = levels.pop(min(levels))
    if first.low is None or first.high is None or any(each.low is None for each in levels.values()):
        return Found(f"{arm}: no interval", OPEN, "fewer than six rounds")
    bounds = [0.0, 0.0]
    for each in levels.values():
        down, up = (each.low or 0) / first.high - 1, (each.high or 0) / first.low - 1
        nearest = 0.0 if down <= 0 <= up else min(abs(down), abs(up))
        bounds = [max(bounds[0], nearest), max(bounds[1], abs(down), abs(up))]
    found = Interval(bounds[1], *bounds)
    text = f"[{bounds[0]:.3f}, {bounds[1]:.3f}]"
    return Found(f"{arm}: off by {text}", at_most(found, most), "", (text,))


def held(data: Data, arm: str, rate: int, most: float) -> Found:
    """Judges whether at most the share `most` of a stream arrives at RTTs of `FAR` ms or more."""
    levels = _levels(data, arm, rate, lambda row: row["came"] / 1e3 / rate)
    far = [each for rtt, each in levels.items() if rtt >= FAR]
    if not far or any(each.low is None or each.high is None for each in far):
        return Found(f"{arm}: no interval", OPEN, "fewer than six rounds")
    low, high = min(each.low or 0 for each in far), max(each.high or 0 for each in far)
    text = f"[{low:.3f}, {high:.3f}]"
    return Found(
        f"{arm}: {text} of the stream", at_most(Interval(low, low, high), most), "", (text,)
    )


def area(
    data: Data, learnt: str, tested: str, most: float | None = None, least: float | None = None
) -> Found:
    """Judges the paper's classifier: the mean over sites of the area under the ROC curve.

    Args:
        data: has `camouflage-fingerprinting/`.
        learnt: kind of the loads to train on.
        tested: kind of the loads to test on.
        most: upper bound of the claim; None if it has a lower bound.
        least: lower bound of the claim; None if it has an upper bound.
    """
    mean = _sites(data, "sums", learnt, tested)[0]["numbers"]["mean"]
    found, number = _interval(mean), numbers.area(mean)
    verdict = at_most(found, most) if most is not None else at_least(found, least or 0)
    why = "" if verdict != OPEN else "the interval contains the bound"
    return Found(f"{tested}, trained on {learnt}: {number}", verdict, why, (number,))


def databases(data: Data, profile: str, most: float) -> Found:
    """Judges `area` after training on loads with the other database, for both databases."""
    pairs = (("a", "b"), ("b", "a"))
    both = [area(data, f"{profile}-{one}", f"{profile}-{two}", most) for one, two in pairs]
    verdict, why = all_of([each.verdict for each in both])
    quotes = tuple(quote for each in both for quote in each.quotes)
    return Found("; ".join(each.text for each in both), verdict, why, quotes)


def resilient(data: Data, tested: str, most: float) -> Found:
    """Judges whether the strongest attack's accuracy is at most `most`."""
    rows = _sites(data, "closed", tested, tested)
    best = max(rows, key=lambda row: float(row["numbers"]["accuracy"]["value"]))
    accuracy = best["numbers"]["accuracy"]
    verdict = at_most(_interval(accuracy), most)
    why = "" if verdict != OPEN else "the interval contains the bound"
    number, name = numbers.share(accuracy), numbers.TITLES[best["attack"]]
    return Found(f"{tested}: {name} {number} %", verdict, why, (number,))


def _sites(data: Data, measure: str, learnt: str, tested: str) -> list[Row]:
    """Returns the results of a measure by all attacks, for these kinds of loads.

    Raises:
        LookupError: if there is no result.
    """
    wanted = {"measure": measure, "learnt": learnt, "tested": tested}
    rows = [row for row in data.results(SITES) if wanted.items() <= row.items()]
    if not rows:
        raise LookupError(f"{SITES} has no {measure} of {tested}, trained on {learnt}")
    return rows


def _interval(estimate: Row) -> Interval:
    return Interval(estimate["value"], estimate["low"], estimate["high"])


def _rounds(data: Data, arm: str, quantity: str) -> dict[int, float]:
    rows = [
        row
        for row in data.table("camouflage.parquet")
        if row["arm"] == arm and row["bytes"] == LONGEST and not row["bare"]
    ]
    return by_round(rows, _QUANTITIES[quantity], median)


def _levels(data: Data, arm: str, rate: int, value: Callable[[Row], float]) -> dict[int, Interval]:
    """Returns, by round trip in ms, the median over rounds of each round's median."""
    rows = [
        row
        for row in data.table("camouflage-streams.parquet")
        if (row["arm"], row["rate"]) == (arm, rate)
    ]
    levels = {}
    for rtt in sorted({row["rtt"] for row in rows}):
        of = [row for row in rows if row["rtt"] == rtt]
        levels[rtt] = median_interval(list(by_round(of, value, median).values()))
    return levels


def _between(found: Interval) -> str:
    return "" if found.low is None else f"[{found.low:.3f}, {found.high:.3f}]"
