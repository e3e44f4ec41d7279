"""UDP designs and MORE, on loopback and behind lines (DBSec 2019, Table 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import TypeAlias

from anabranch.reproduction import designs
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
    below,
    compared,
)
from anabranch.reproduction.spread import by_round, mean_interval, ratio_by_key

Key: TypeAlias = tuple[str, int]
"""Design and number of circuits, as in the table."""
Value: TypeAlias = Callable[[Row], float]

FILE = "circuits-udp.parquet"
PLACE = "loopback"
"""The network of the claims, unless a claim names another one (`lines`: emulated lines)."""
TOR: Key = ("tor", 1)
MORE: Key = ("more", 1)
MOST = 0.5
"""Share of failed downloads above which most downloads fail."""

_CLAIMS = {
    "first_byte": "the first byte arrives sooner than with one circuit",
    "web": "320 KiB arrive sooner than with one circuit",
    "bulk": "1 MiB arrives sooner than with one circuit",
}
"""Claims in the page's words, by the column of the time."""
_LATER = "320 KiB arrive later than with one circuit"
_EXIT = "the exit uses the same CPU time as with one circuit"
_FAILS = "most downloads do not finish (the ratio is the share of failed downloads)"


def sooner(data: Data, column: str, place: str = PLACE) -> Found:
    """Judges whether each UDP design needs less time than one circuit of Tor.

    Args:
        data: has `circuits-udp.parquet`.
        column: `first_byte`, `web` or `bulk`.
        place: the network, `loopback` or `lines`.
    """
    keys = [key for key in measured(data, place) if key in designs.UDP]
    return _against_tor(data, keys, column, _CLAIMS[column], lambda ratio: below(ratio, 1), place)


def against_fastest(data: Data, column: str, *, is_later: bool, place: str = PLACE) -> Found:
    """Judges the ratio of each UDP design's time to that of the fastest TCP design.

    The fastest TCP design has the least geometric mean over the rounds, with any number of
    circuits. Each ratio is of times in the same round.

    Args:
        data: has `circuits-udp.parquet`.
        column: `first_byte`, `web` or `bulk`.
        is_later: whether the claim is that UDP designs need more time, and not less.
        place: the network, `loopback` or `lines`.
    """
    times = _times(data, column, place)
    fastest = min(
        (key for key in times if key not in (*designs.UDP, MORE)),
        key=lambda key: mean(map(math.log, times[key].values())),
    )
    ratios = {
        name_of(*key): ratio_by_key(times[key], times[fastest])
        for key in times
        if key in designs.UDP
    }
    if not ratios:
        return _missing()
    judge = partial(above if is_later else below, bound=1)
    return compared(f"ratio to the time of {name_of(*fastest)}: ", ratios, judge)


def exit_load(data: Data, place: str = PLACE) -> Found:
    """Judges whether an exit needs more CPU time for each byte with UDP designs than with Tor.

    Args:
        data: has `circuits-udp.parquet`.
        place: the network, `loopback` or `lines`.
    """
    keys = [key for key in measured(data, place) if key in designs.UDP]
    ratios = {
        key: _ratio(data, key, lambda row: float(row["exit_ms_per_mb"]), place) for key in keys
    }
    # The page has no such row for one circuit.
    several = {key: ratio for key, ratio in ratios.items() if key[1] > 1}
    found = _judged(ratios, lambda ratio: above(ratio, 1))
    return replace(found, quotes=tuple(_quote(key, _EXIT, several[key], place) for key in several))


def more(data: Data, column: str) -> Found:
    """Judges whether MORE's first byte arrives sooner than Tor's, and its page later.

    Args:
        data: has `circuits-udp.parquet`.
        column: `first_byte` or `web`.
    """
    is_first = column == "first_byte"
    judge = partial(below if is_first else above, bound=1)
    claim = _CLAIMS[column] if is_first else _LATER
    return _against_tor(data, [key for key in measured(data) if key == MORE], column, claim, judge)


def more_slowest(data: Data, column: str) -> Found:
    """Judges whether MORE needs more time than the slowest of the other designs.

    Args:
        data: has `circuits-udp.parquet`.
        column: `web` or `bulk`.
    """
    times = _times(data, column)
    if MORE not in times:
        return _missing()
    slowest = max(
        (key for key in times if key != MORE),
        key=lambda key: mean(map(math.log, times[key].values())),
    )
    ratios = {name_of(*MORE): ratio_by_key(times[MORE], times[slowest])}
    of = f"ratio to the time of {name_of(*slowest)}, the slowest other design: "
    return compared(of, ratios, lambda ratio: above(ratio, 1))


def more_fails(data: Data) -> Found:
    """Judges whether most downloads with MORE, of a page and then of 1 MiB, do not finish.

    Args:
        data: has `circuits-udp.parquet`.
    """
    rounds = failed(data, MORE)
    if not rounds:
        return _missing()
    share = mean_interval(rounds)
    verdict = OPEN
    if share.low is not None and share.high is not None:
        verdict = HOLDS if share.low > MOST else FAILS if share.high < MOST else OPEN
    text = f"share of failed downloads: {_number(share)}"
    return Found(text, verdict, _why(verdict), (_quote(MORE, _FAILS, share),))


def measured(data: Data, place: str = PLACE) -> list[Key]:
    """Returns the designs of the table, in the order of the table of designs, MORE last.

    C tor's are left out.

    Args:
        data: has `circuits-udp.parquet`.
        place: the network, `loopback` or `lines`.
    """
    keys = {(row["design"], row["legs"]) for row in _rows(data, place)}
    names = (*designs.NAMES, MORE[0])
    return [key for name in names for key in sorted(keys) if key[0] == name]


def rows_of(data: Data, key: Key, place: str = PLACE) -> list[Row]:
    """Returns the repetitions of a design.

    Args:
        data: has `circuits-udp.parquet`.
        key: the design.
        place: the network, `loopback` or `lines`.
    """
    return [row for row in _rows(data, place) if (row["design"], row["legs"]) == key]


def failed(data: Data, key: Key) -> list[float]:
    """Returns the share of a design's downloads that failed, for each round.

    Args:
        data: has `circuits-udp.parquet`.
        key: the design.
    """
    rows = rows_of(data, key)
    counts = by_round(rows, lambda row: float(row["failed"]), mean)
    done = by_round(rows, lambda _: 1.0, sum)
    return [counts[each] / (counts[each] + done[each]) for each in counts]


def name_of(design: str, legs: int) -> str:
    """Returns a design's name in tables, with its number of circuits."""
    return "MORE × 1" if (design, legs) == MORE else designs.name_of(design, legs)


def sentences(data: Data) -> Iterator[str]:
    """Yields the size of the measurement, as an item of a list.

    Args:
        data: has `circuits-udp.parquet`.
    """
    rounds = {row["round"] for row in _rows(data, PLACE)}
    most = max(len(rows_of(data, key)) for key in measured(data)) // len(rounds)
    yield (
        f"**Size:** {len(measured(data))} combinations of a design and a number of circuits, "
        f"{len(rounds)} rounds, {most} repetitions in each round."
    )


def _rows(data: Data, place: str) -> list[Row]:
    return [row for row in data.table(FILE) if row["place"] == place]


def _times(data: Data, column: str, place: str = PLACE) -> dict[Key, dict[int, float]]:
    """Returns the mean time of each design in each round, in seconds."""
    return {
        key: by_round(rows_of(data, key, place), lambda row: float(row[column]), mean)
        for key in measured(data, place)
    }


def _ratio(data: Data, key: Key, value: Value, place: str) -> Interval:
    """Returns the mean over rounds of the ratio of a value to that of one circuit of Tor."""
    ours, tor = (by_round(rows_of(data, each, place), value, mean) for each in (key, TOR))
    return mean_interval([ours[each] / tor[each] for each in ours if each in tor])


def _against_tor(
    data: Data,
    keys: list[Key],
    column: str,
    claim: str,
    judge: Callable[[Interval], str],
    place: str = PLACE,
) -> Found:
    """Judges the ratios of the times of designs to those of one circuit of Tor.

    Args:
        data: has `circuits-udp.parquet`.
        keys: the designs.
        column: column of the times.
        claim: the claim in the page's words.
        judge: returns the verdict on a ratio.
        place: the network, `loopback` or `lines`.
    """
    ratios = {key: _ratio(data, key, lambda row: float(row[column]), place) for key in keys}
    times = _times(data, column, place)
    in_ms = {key: f"{1e3 * mean(times[key].values()):,.0f} ms, " for key in (TOR, *keys)}
    found = _judged(ratios, judge, in_ms)
    if found.verdict == MISSING:
        return found
    text = f"Tor × 1: {in_ms[TOR].rstrip(', ')}; {found.text}"
    quotes = tuple(_quote(key, claim, ratio, place) for key, ratio in ratios.items())
    return replace(found, text=text, quotes=quotes)


def _judged(
    ratios: dict[Key, Interval],
    judge: Callable[[Interval], str],
    before: dict[Key, str] | None = None,
) -> Found:
    """Returns one verdict on several ratios to one circuit of Tor.

    Args:
        ratios: ratios by design.
        judge: returns the verdict on a ratio.
        before: text before each number.
    """
    if not ratios:
        return _missing()
    verdict, why = all_of([judge(ratio) for ratio in ratios.values()])
    numbers = (
        f"{name_of(*key)}: {(before or {}).get(key, '')}{_number(ratio)}"
        for key, ratio in ratios.items()
    )
    return Found("ratio to one circuit of Tor: " + "; ".join(numbers), verdict, why)


def _quote(key: Key, claim: str, ratio: Interval, place: str = PLACE) -> str:
    return f"| {place} | {name_of(*key)} | {claim} | {_number(ratio)} |"


def _number(ratio: Interval) -> str:
    if ratio.low is None:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} ± {ratio.value - ratio.low:.2f}"


def _why(verdict: str) -> str:
    return "the interval contains the bound" if verdict == OPEN else ""


def _missing() -> Found:
    return Found("", MISSING, "this design was not measured")
