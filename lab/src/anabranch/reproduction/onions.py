"""Multi-path onion routing (DBSec 2019, Table 1) and unordered links (FOCI 2013)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.found import (
    FAILS,
    HOLDS,
    MISSING,
    OPEN,
    Found,
    Interval,
    above,
    all_of,
    at_most,
    below,
    within,
)
from anabranch.reproduction.spread import by_round, mean_interval, median_interval

DESIGNS = (("conflux-2013", "Conflux 2013"), ("mtor", "mTor"))
LEGS = (2, 3)
ORDERED = 0.3
"""Share of ordered downloads at whose completion `unordered_done` counts unordered ones."""
OVER_HALF = 0.5
EXIT = 0.06
"""Maximum distance from 1 of the ratio of an exit's CPU to that of Tor's exit, by the paper."""
SLOWEST = 0.15
"""Share of the downloads that count as the slowest."""
FAST = 0.8
"""Share of the downloads, the fastest ones, that `unordered_alike` compares."""
AS_LONG = 0.1
"""Maximum distance from 1 of the ratio of two times that count as equal."""
LESS_TIME = 0.7
"""Bound of a ratio of times: 30 % less time, the lower end of the paper's gain."""

_VALUES: dict[str, Callable[[Row], float]] = {
    "the first byte arrives sooner than with one circuit": lambda row: float(row["first_byte"]),
    "320 KiB arrive sooner than with one circuit": lambda row: float(row["web"]),
    "1 MiB arrives sooner than with one circuit": lambda row: float(row["bulk"]),
    "a guard uses less CPU time than with one circuit": lambda row: float(row["guards_ms_per_mb"]),
    "a middle relay uses less CPU time than with one circuit": lambda row: float(
        row["middles_ms_per_mb"]
    ),
    "the exit uses the same CPU time as with one circuit": lambda row: float(row["exit_ms_per_mb"]),
}


_POSITIONS: dict[str, Callable[[Row], float]] = {
    "all guards use more CPU time than all middle relays": lambda row: (
        row["guards_ms_per_mb"] / row["middles_ms_per_mb"]
    ),
    "the exit uses less CPU time than all middle relays": lambda row: (
        row["exit_ms_per_mb"] / row["middles_ms_per_mb"]
    ),
}


def circuits(data: Data, place: str, claim: str) -> Found:
    """Judges a claim of Table 1: two and three circuits of Conflux and mTor against one of Tor.

    Args:
        data: has `circuits.parquet`.
        place: `loopback` or `lines`.
        claim: the claim in the page's words, a key of `_VALUES`.
    """
    rows = [row for row in data.table("circuits.parquet") if row["place"] == place]
    ratios = {
        f"{name} × {legs}": _ratio(rows, (design, legs), _VALUES[claim])
        for design, name in DESIGNS
        for legs in LEGS
    }
    found = _compared(
        f"| {place} | {{}} | {claim} | {{}} |",
        "ratio to one circuit of Tor: ",
        ratios,
        lambda ratio: within(ratio, EXIT) if "exit" in claim else below(ratio, 1),
    )
    if "guard" in claim or "middle" in claim:
        why = "clients use all three guards, so that several circuits cannot relieve one guard"
        return _doubted(found, why)
    return found


def costs(data: Data, place: str, claim: str) -> Found:
    """Judges whether relays' CPU differs by position in a circuit as in the paper.

    Args:
        data: has `circuits.parquet`.
        place: `loopback` or `lines`.
        claim: the claim in the page's words, a key of `_POSITIONS`.
    """
    rows = [row for row in data.table("circuits.parquet") if row["place"] == place]
    ratios = {}
    for design, name, legs in (("tor", "Tor", 1), *((d, n, m) for d, n in DESIGNS for m in LEGS)):
        of = [row for row in rows if (row["design"], row["legs"]) == (design, legs)]
        by_rounds = by_round(of, _POSITIONS[claim], mean)
        ratios[f"{name} × {legs}"] = mean_interval(list(by_rounds.values()))
    return _compared(
        f"| {place} | {{}} | {claim} | {{}} |",
        "ratio to all middle relays: ",
        ratios,
        lambda ratio: below(ratio, 1) if "less" in claim else above(ratio, 1),
    )


def _compared(
    quote: str, of: str, ratios: dict[str, Interval], judge: Callable[[Interval], str]
) -> Found:
    """Returns one verdict on several ratios.

    Args:
        quote: row of the page, with placeholders for name and number.
        of: base of the ratios, as text.
        ratios: ratios by name.
        judge: returns the verdict on a ratio.
    """
    numbers = {
        name: f"{ratio.value:.2f} ± {ratio.value - (ratio.low or 0):.2f}"
        for name, ratio in ratios.items()
    }
    verdict, why = all_of([judge(ratio) for ratio in ratios.values()])
    text = of + ", ".join(f"{name}: {number}" for name, number in numbers.items())
    quotes = tuple(quote.format(name, number) for name, number in numbers.items())
    return Found(text, verdict, why, quotes)


def _ratio(rows: Sequence[Row], key: tuple[str, int], value: Callable[[Row], float]) -> Interval:
    """Returns the ratio of a value to that of one circuit of Tor in the same round."""
    of = {
        each: by_round([row for row in rows if (row["design"], row["legs"]) == each], value, mean)
        for each in (key, ("tor", 1))
    }
    ours, tor = of[key], of["tor", 1]
    return mean_interval([ours[each] / tor[each] for each in ours if each in tor])


def unordered_done(
    data: Data, file: str, direction: str, congestion: str, deviation: int = 0
) -> Found:
    """Judges whether over half of the unordered downloads are complete at a certain moment.

    At this moment, the share `ORDERED` of the ordered downloads is complete.

    Args:
        data: has `file`.
        file: name of an `unordered*.parquet`.
        direction: direction of the loss, `to-exit` or `from-exit`.
        congestion: congestion control of the links' TCP.
        deviation: deviation of each line's delay in ms.
    """
    line = {"direction": direction, "congestion": congestion, "deviation": deviation}
    rounds = _rounds(data, file, loss=5, **line)
    if not rounds:
        return Found("", MISSING, "a line with these settings has not been measured")
    shares = []
    for ordered, unordered in rounds:
        moment = sorted(ordered)[math.ceil(ORDERED * len(ordered)) - 1]
        shares.append(sum(time <= moment for time in unordered) / len(unordered))
    share = median_interval(shares)
    # The claim is "over 50 %", so a share of exactly .5 does not meet it.
    verdict = OPEN
    if share.low is not None and share.high is not None:
        verdict = HOLDS if share.low > OVER_HALF else FAILS if share.high <= OVER_HALF else OPEN
    # Both forms are rounded once, to two digits: the page's table has a share, its text a
    # percentage.
    value, low, high = (f"{one or 0:.2f}" for one in (share.value, share.low, share.high))
    whole, least, most = (f"{100 * float(one):.0f}" for one in (value, low, high))
    quote = f"{whole} % [{least}, {most}]"
    text = f"{value} [{low}, {high}], {len(rounds)} rounds"
    return Found(text, verdict, _why(verdict), (quote,))


def unordered_slowest(data: Data, file: str, congestion: str, deviation: int = 0) -> Found:
    """Judges the slowest unordered downloads' time over that of ordered ones, without loss."""

    def slowest(times: list[float]) -> float:
        return mean(sorted(times)[-max(1, round(SLOWEST * len(times))) :])

    line = {"congestion": congestion, "deviation": deviation}
    return _without_loss(data, file, line, slowest, partial(at_most, bound=LESS_TIME))


def unordered_alike(data: Data, file: str, congestion: str, deviation: int = 0) -> Found:
    """Judges whether the fast unordered and ordered downloads take equally long, without loss."""

    def others(times: list[float]) -> float:
        return mean(sorted(times)[: round(FAST * len(times))])

    line = {"congestion": congestion, "deviation": deviation}
    return _without_loss(data, file, line, others, partial(within, most=AS_LONG))


def _without_loss(
    data: Data,
    file: str,
    line: dict[str, Any],
    time: Callable[[list[float]], float],
    judge: Callable[[Interval], str],
) -> Found:
    """Judges the median ratio of a time of unordered downloads to that of ordered ones.

    Args:
        data: has `file`.
        file: name of an `unordered*.parquet`.
        line: the links' congestion control, and the deviation of each line's delay in ms.
        time: returns one time from the times of a round's downloads.
        judge: returns the verdict on the ratio.
    """
    rounds = _rounds(data, file, loss=0, direction=None, **line)
    if not rounds:
        return Found("", MISSING, "a line with these settings has not been measured")
    ratio = median_interval([time(unordered) / time(ordered) for ordered, unordered in rounds])
    verdict, number = judge(ratio), _median(ratio)
    text = f"{number} of the time, {len(rounds)} rounds"
    return Found(text, verdict, _why(verdict), (_page_style(number),))


def unordered_cells(data: Data, file: str, at: float) -> Found:
    """Judges a ratio of mean delays of cells on a link.

    It is the delay until all earlier cells of the circuit have arrived, over the delay until the
    kernel has delivered the TCP stream up to the cell's end.

    Args:
        data: has `file`.
        file: name of the table of cells.
        at: upper bound of the ratio.
    """
    rows = data.table(file)
    ratio = mean_interval([row["by_circuit_mean"] / row["in_order_mean"] for row in rows])
    half = ratio.value - (ratio.low or 0)
    number = f"{ratio.value:.3f} ± {half:.3f}"
    return Found(f"{number} of the delay, {len(rows)} rounds", at_most(ratio, at), "", (number,))


def code_size(data: Data, part: str, most: float) -> Found:
    """Judges the share of the code that unordered links add, from the page's generated table.

    Args:
        data: has `unordered.md`.
        part: name of the table's row.
        most: the maximum share in percent.
    """
    row = re.search(
        rf"^\| {re.escape(part)} \| \d+ \| ([\d,]+) \| ([\d.]+) % \|$",
        data.page("unordered.md"),
        re.M,
    )
    if row is None:
        raise LookupError(f"unordered.md: no row '{part}'")
    verdict = HOLDS if float(row[2]) < most else FAILS
    return Found(f"{row[1]} lines, {row[2]} %", verdict, "", (row[0],))


def _rounds(
    data: Data, file: str, *, loss: int, deviation: Any, direction: Any, congestion: Any
) -> list[tuple[list[float], list[float]]]:
    """Returns times of ordered and unordered downloads by round; unfinished ones are infinite."""
    arms: dict[str, dict[int, list[float]]] = {"tls": {}, "utls": {}}
    for row in data.table(file):
        line = (row["loss"], row["deviation"], row["congestion"]) == (loss, deviation, congestion)
        if line and direction in (None, row["direction"]) and row["arm"] in arms:
            time = row["whole"] if row["ended"] else math.inf
            arms[row["arm"]].setdefault(row["round"], []).append(time)
    both = arms["tls"].keys() & arms["utls"].keys()
    return [(arms["tls"][each], arms["utls"][each]) for each in sorted(both)]


def _doubted(found: Found, doubt: str) -> Found:
    return replace(found, verdict=OPEN, why=doubt) if doubt else found


def _page_style(number: str) -> str:
    """Returns the number without the zero before the point, as in the page's text."""
    return re.sub(r"\b0\.", ".", number)


def _median(found: Interval) -> str:
    return f"{found.value:.2f} [{found.low or 0:.2f}, {found.high or 0:.2f}]"


def _why(verdict: str) -> str:
    return "the interval contains the bound" if verdict == OPEN else ""
