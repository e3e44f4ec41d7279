"""Claims about the larger network of the DBSec 2019 paper (Figures 2 to 4), in simulation.

Claims are judged by the rules of `crates/experiment/src/wide/claims.rs`, which also writes the
table of claims in `wide.md`; here no two values are `ALIKE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import mean
from typing import TypeAlias

from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.found import (
    FAILS,
    HOLDS,
    MISSING,
    OPEN,
    Found,
    Interval,
    all_of,
    in_words,
    within,
)
from anabranch.reproduction.spread import mean_interval

Arm: TypeAlias = tuple[str, int, str]
"""Design, number of paths and schedule, as in `wide.parquet`."""
Times: TypeAlias = dict[tuple[int, int], float]
"""Median time of a simulation, by network and seed."""

FILE = "wide.parquet"
DESIGNS = ("conflux", "conflux-2013", "mtor", "merged", "anabranch")
"""Designs whose schedules are compared."""
TOR: Arm = ("tor", 1, "–")
ALONE = (TOR, ("tor-fixed", 1, "–"))
"""Designs with one path."""
ALL, FLOOR = 228, 140
"""Numbers of clients: all, and the number at which the paper's speed is lowest."""
FEWEST_NETWORKS = 3
"""Minimum number of drawn networks for an interval."""
EQUAL = 0.1
"""Maximum distance from 1 at which a ratio of two results counts as 1."""
CONGESTED = 0.7
"""Used share of the exits' lines from which on the network counts as congested."""


def schedules(data: Data, claim: str) -> Found:
    """Judges whether round robin is faster than designs' own schedulers.

    Args:
        data: has `wide.parquet`.
        claim: the claim in the page's words.
    """
    ratios = {
        f"{design} × 2": _ratio(
            _times(data, (design, 2, "own"), ALL, "bulk"),
            _times(data, (design, 2, "round robin"), ALL, "bulk"),
        )
        for design in DESIGNS
    }
    return _found(f"| {claim} | 3 | {{}} | {{}} | {{}}", ratios, _above)


def floor(data: Data, claim: str) -> Found:
    """Judges whether bulk downloads are as fast with all clients as with `FLOOR`.

    Args:
        data: has `wide.parquet`.
        claim: the claim in the page's words.
    """
    ratios = {
        _name(arm): _ratio(_times(data, arm, FLOOR, "bulk"), _times(data, arm, ALL, "bulk"))
        for arm in ALONE
    }
    quote = f"| {claim} | 4 | {{}} | {{}} |"
    found = _found(quote, ratios, lambda ratio: within(ratio, EQUAL))
    used = _exit_load(data)
    if used >= CONGESTED:
        return found
    why = f"exits use {_percent(used)} of the capacity of their lines, so that nothing is congested"
    return replace(found, verdict=OPEN, why=why)


def udp_first_byte(data: Data, load: str, claim: str = "") -> Found:
    """Judges whether the first byte arrives sooner with each UDP design than with Tor.

    The ratio is Tor's time, divided by the UDP design's.

    Args:
        data: has `wide.parquet`.
        load: `web` or `bulk`.
        claim: the claim in the words of the page's table of claims; empty if it is not there.
    """
    quote = f"| {claim} | 2 | {{}} | {{}} | {{}}" if claim else ""
    return _against_tor(data, load, "time_to_first_byte", quote, is_inverse=True)


def udp_slower(data: Data, load: str, claim: str = "") -> Found:
    """Judges whether Tor downloads faster than each UDP design.

    The ratio is Tor's speed, divided by the UDP design's.

    Args:
        data: has `wide.parquet`.
        load: `web` or `bulk`.
        claim: the claim in the words of the page's table of claims; empty if it is not there.
    """
    quote = f"| {claim} | 3 | {{}} | {{}} | {{}}" if claim else ""
    return _against_tor(data, load, "time_to_last_byte", quote, is_inverse=False)


def udp_steady(data: Data, claim: str) -> Found:
    """Judges whether mUDP-OR's first byte arrives as soon with all clients as with the fewest.

    Args:
        data: has `wide.parquet`.
        claim: the claim in the page's words.
    """
    fewest = min((row["clients"] for row in data.table(FILE)), default=ALL)
    ratios = {
        _name(arm): _ratio(
            _times(data, arm, ALL, "web", "time_to_first_byte"),
            _times(data, arm, fewest, "web", "time_to_first_byte"),
        )
        for arm in _udp_arms(data, fewest)
    }
    return _found(f"| {claim} | 4 | {{}} | {{}} | {{}}", ratios, _equal)


def sentences(data: Data) -> Iterator[str]:
    """Yields findings about load and speed, as items of a list.

    Args:
        data: has `wide.parquet`.
    """
    yield (
        f"**Load:** with {ALL} clients and Tor's one path, exits use "
        f"{_percent(_exit_load(data))} of the capacity of their lines."
    )
    one = _speed(data, TOR)
    two = [_speed(data, (design, 2, "own")) for design in DESIGNS]
    yield (
        f"**Pages of 320 KiB:** {one:.0f} KiB/s with Tor's one path, and {min(two):.0f} to "
        f"{max(two):.0f} KiB/s with two paths and the designs' own schedulers."
    )
    udp = [_speed(data, arm) for arm in _udp_arms(data, ALL)]
    if udp:
        yield (
            f"**Pages with UDP designs:** {min(udp):.0f} to {max(udp):.0f} KiB/s over one path or "
            "several."
        )


def _against_tor(data: Data, load: str, column: str, quote: str, *, is_inverse: bool) -> Found:
    """Judges whether ratios of UDP designs and Tor are above 1.

    Args:
        data: has `wide.parquet`.
        load: `web` or `bulk`.
        column: column of the times.
        quote: row of the page, in which `{}` stands for the design's name, the ratio and the
            verdict; empty for none.
        is_inverse: whether to divide Tor's time by the UDP design's, and not the other way round.
    """
    tor = _times(data, TOR, ALL, load, column)
    ratios = {}
    for arm in _udp_arms(data, ALL):
        times = _times(data, arm, ALL, load, column)
        ratios[_name(arm)] = _ratio(tor, times) if is_inverse else _ratio(times, tor)
    return _found(quote, ratios, _above)


def _udp_arms(data: Data, clients: int) -> list[Arm]:
    """Returns the UDP designs that were simulated with `clients` clients."""
    arms: Iterable[Arm] = (
        (row["design"], row["paths"], row["schedule"])
        for row in data.table(FILE)
        if "udp-or" in row["design"] and row["clients"] == clients
    )
    return list(dict.fromkeys(arms))


def _name(arm: Arm) -> str:
    """Returns the name of a design in the tables of `wide.md`."""
    design, paths, schedule = arm
    return design if paths == 1 else f"{design} × {paths}, {schedule}"


def _times(
    data: Data, arm: Arm, clients: int, load: str, column: str = "time_to_last_byte"
) -> Times:
    return {
        (row["network"], row["seed"]): row[column]
        for row in _medians(data.table(FILE), load)
        if (row["design"], row["paths"], row["schedule"], row["clients"]) == (*arm, clients)
    }


def _medians(rows: Iterable[Row], load: str) -> Iterator[Row]:
    return (row for row in rows if row["load"] == load and math.isclose(row["quantile"], 0.5))


def _ratio(part: Times, whole: Times) -> Interval:
    """Returns the geometric mean over networks of the ratio of paired times.

    The seeds of a network count as one value. Fewer than `FEWEST_NETWORKS` have no interval.

    Raises:
        LookupError: if no simulation is in both.
    """
    networks: dict[int, list[float]] = {}
    for run in sorted(part.keys() & whole.keys()):
        networks.setdefault(run[0], []).append(math.log(part[run] / whole[run]))
    if not networks:
        raise LookupError(f"{FILE}: no simulations to compare")
    found = mean_interval([mean(logs) for logs in networks.values()])
    if found.low is None or found.high is None or len(networks) < FEWEST_NETWORKS:
        return Interval(math.exp(found.value), None, None)
    return Interval(*map(math.exp, (found.value, found.low, found.high)))


def _above(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return OPEN
    return HOLDS if ratio.low > 1 else FAILS if ratio.high < 1 else OPEN


def _equal(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return OPEN
    least, most = 1 - EQUAL, 1 + EQUAL
    if ratio.low >= least and ratio.high <= most:
        return HOLDS
    return FAILS if ratio.high < least or ratio.low > most else OPEN


def _found(quote: str, ratios: dict[str, Interval], judge: Callable[[Interval], str]) -> Found:
    """Returns one verdict on several ratios; the text has each ratio with its interval.

    Args:
        quote: row of the page, in which `{}` stands for the name, the ratio and the verdict; empty
            for none.
        ratios: ratios by name.
        judge: returns the verdict on a ratio.
    """
    if not ratios:
        return Found("", MISSING, "UDP designs were not simulated")
    verdicts = [judge(ratio) for ratio in ratios.values()]
    numbers = {name: in_words(ratio) for name, ratio in ratios.items()}
    verdict, why = all_of(verdicts)
    text = ", ".join(f"{name}: {number}" for name, number in numbers.items())
    rows: Sequence[tuple[str, str, str]] = [
        (name, number, one) for (name, number), one in zip(numbers.items(), verdicts, strict=True)
    ]
    return Found(text, verdict, why, tuple(quote.format(*row) for row in rows if quote))


def _exit_load(data: Data) -> float:
    """Returns the used share of the exits' lines with all clients and Tor's one path."""
    return mean(
        float(row["exit_load"])
        for row in _medians(data.table(FILE), "bulk")
        if (row["design"], row["clients"]) == ("tor", ALL)
    )


def _speed(data: Data, arm: Arm) -> float:
    """Returns the mean over simulations of the speed of pages with all clients, in KiB/s."""
    return mean(320 / time for time in _times(data, arm, ALL, "web").values())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
