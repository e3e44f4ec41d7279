"""The claims of section 5.3 of the DBSec 2019 paper: strengths of each design."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import mean

from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.found import (
    FAILS,
    HOLDS,
    OPEN,
    Found,
    Interval,
    above,
    below,
    compared,
)
from anabranch.reproduction.spread import by_round, paired_ratio, ratio_by_key

HOSTILE = 0.2
"""Share of hostile entries and exits, as in the paper's footnote 14."""
UDP = (("udp-or", 1), ("mudp-or", 2), ("mudp-or", 3), ("mudp-or-turns", 2), ("mudp-or-turns", 3))
"""Designs over datagrams (UDP), each with a number of circuits."""
RULES = ("conflux-2013", "mtor", "anabranch")
"""Designs measured both with their own scheduler and with round robin (`NAME-turns`)."""
LEGS = (2, 3)
NAMES = {
    "tor": "Tor",
    "conflux": "Conflux",
    "conflux-2013": "Conflux 2013",
    "conflux-2013-turns": "Conflux 2013, round robin",
    "mtor": "mTor",
    "mtor-turns": "mTor, round robin",
    "anabranch": "Anabranch",
    "anabranch-turns": "Anabranch, round robin",
    "merged": "merged in the middle",
    "merged-batches": "merged in the middle, batches",
    "udp-or": "UDP-OR",
    "mudp-or": "mUDP-OR",
    "mudp-or-turns": "mUDP-OR, round robin",
}
"""Names of the designs in tables, in the order of the table of designs."""


def first_byte(data: Data) -> Found:
    """Judges whether each UDP design's first byte is earlier than that of the fastest TCP design.

    Args:
        data: has `designs.parquet`.
    """
    return _against_tcp(data, "web", "first_byte", lambda ratio: below(ratio, 1))


def download(data: Data, load: str) -> Found:
    """Judges whether each UDP design downloads more slowly than the fastest TCP design.

    Args:
        data: has `designs.parquet`.
        load: `web` or `bulk`.
    """
    return _against_tcp(data, load, "last_byte", lambda ratio: above(ratio, 1))


def own_rule(data: Data, column: str) -> Found:
    """Judges whether designs' own schedulers are faster than round robin on emulated lines.

    Args:
        data: has `circuits.parquet`.
        column: `web` or `bulk`.
    """
    ratios = {
        name_of(design, legs): _by_rounds(
            data, (design, f"{design}-turns"), legs, lambda row: float(row[column])
        )
        for design in RULES
        for legs in LEGS
    }
    return compared("ratio to the time with round robin: ", ratios, lambda ratio: below(ratio, 1))


def relieved(data: Data) -> Found:
    """Judges whether round robin needs less relay CPU per byte than the designs' own schedulers.

    Args:
        data: has `circuits.parquet`.
    """
    ratios = {
        name_of(design, legs): _by_rounds(data, (f"{design}-turns", design), legs, cpu)
        for design in RULES
        for legs in LEGS
    }
    of = "ratio to the CPU time with the design's own scheduler: "
    return compared(of, ratios, lambda ratio: below(ratio, 1))


def more(data: Data, circuits: int) -> Found:
    """Compares MORE with a single circuit by the chances of hostile relays, in both models.

    Args:
        data: not used, because the closed forms hold in every network (`anonymity.formula`).
        circuits: number of circuits that a client has used.
    """
    (one, _), (anyone, everyone) = chances(1), chances(circuits)
    text = (
        f"probability with {circuits} circuits: an entry and the exit are hostile "
        f"{percent(anyone)}, all entries and the exit {percent(everyone)}; with one circuit "
        f"{percent(one)}"
    )
    if (anyone < one) == (everyone < one):
        return Found(text, HOLDS if anyone < one else FAILS, "by formula", (text,))
    return Found(text, OPEN, "by formula; one probability is higher, the other lower", (text,))


def chances(circuits: int) -> tuple[float, float]:
    """Returns the closed forms of section 6.1 with `HOSTILE` entries and exits.

    They are the probabilities that the exit and at least one entry are hostile, and that the exit
    and all entries are hostile.
    """
    return HOSTILE * (1 - (1 - HOSTILE) ** circuits), HOSTILE * HOSTILE**circuits


def percent(share: float) -> str:
    """Returns a share as a percentage with two significant digits."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.1f} %"


def cpu(row: Row) -> float:
    """Returns the CPU time of all relays in ms for each MB, from a row of `circuits.parquet`."""
    positions = ("guards", "middles", "exit")
    return float(sum(row[f"{position}_ms_per_mb"] for position in positions))


def simulated(data: Data, key: tuple[str, int], load: str, column: str) -> list[float]:
    """Returns a time in each simulated network, in seconds, in the networks' order.

    Args:
        data: has `designs.parquet`.
        key: design, as in `circuits.parquet`, and number of circuits.
        load: `web` or `bulk`.
        column: `first_byte` or `last_byte`.
    """
    rows = sorted(data.table("designs.parquet"), key=lambda row: int(row["network"]))
    wanted = (*key, load)
    return [row[column] for row in rows if (row["design"], row["legs"], row["load"]) == wanted]


def name_of(design: str, legs: int) -> str:
    """Returns a design's name in tables, with its number of circuits."""
    return f"{NAMES[design]} × {legs}"


def _against_tcp(data: Data, load: str, column: str, judge: Callable[[Interval], str]) -> Found:
    """Judges the ratio of each UDP design's time to that of the fastest TCP design.

    The fastest TCP design has the least geometric mean over the networks, with any number of
    circuits. Each ratio is of times in the same network.
    """
    keys = {(row["design"], row["legs"]) for row in data.table("designs.parquet")}
    times = {key: simulated(data, key, load, column) for key in sorted(keys)}
    tcp = [key for key in times if key not in UDP]
    fastest = min(tcp, key=lambda key: mean(map(math.log, times[key])))
    ratios = {name_of(*key): paired_ratio(times[key], times[fastest]) for key in UDP}
    return compared(f"ratio to the time of {name_of(*fastest)}: ", ratios, judge)


def _by_rounds(
    data: Data, designs: tuple[str, str], legs: int, value: Callable[[Row], float]
) -> Interval:
    """Returns the ratio of the values of two designs on emulated lines, paired by round."""
    rows = [row for row in data.table("circuits.parquet") if row["place"] == "lines"]
    one, other = (
        by_round([row for row in rows if (row["design"], row["legs"]) == (name, legs)], value, mean)
        for name in designs
    )
    return ratio_by_key(one, other)
