"""Cost and protection of each design in one table: section 5.3 of the DBSec 2019 paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.found import Interval
from anabranch.reproduction.spread import by_round, mean_interval

HOSTILE = 0.2
"""Share of hostile entries and exits, as in the paper's footnote 14."""
CIRCUITS = (10, 100)
"""Numbers of circuits that a client of MORE has used; each packet may have a circuit of its own."""

HEADER = (
    "design",
    "first byte, ms",
    "320 KiB, ms",
    "1 MiB, ms",
    "CPU of all relays, ms/MB",
    "one entry and the exit hostile",
    "all entries and the exit hostile",
)

_NAMES = {
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
}


def rows(data: Data) -> list[tuple[str, ...]]:
    """Returns a row for each design measured with slow lines, then the closed forms of MORE.

    Times and CPU are means over rounds with half widths of their 95 % intervals; the probabilities
    are the paper's closed forms (section 6.1) with `HOSTILE`.
    """
    lines = [row for row in data.table("circuits.parquet") if row["place"] == "lines"]
    found: list[tuple[str, ...]] = []
    for design, name in _NAMES.items():
        for legs in sorted({row["legs"] for row in lines if row["design"] == design}):
            of = [row for row in lines if (row["design"], row["legs"]) == (design, legs)]
            usual = [row for row in of if not row["optimistic"]]
            cells = (
                _over(usual, lambda row: 1e3 * row["first_byte"], 0),
                _over(of, lambda row: 1e3 * row["web"], 0),
                _over(of, lambda row: 1e3 * row["bulk"], 0),
                _over(of, _cpu, 1),
            )
            found.append((f"{name} × {legs}", *cells, *_chances(legs)))
    for count in CIRCUITS:
        found.append((f"MORE, {count} circuits", *["not measured"] * 4, *_chances(count)))
    return found


def _cpu(row: Row) -> float:
    positions = ("guards", "middles", "exit")
    return float(sum(row[f"{position}_ms_per_mb"] for position in positions))


def _over(of: Sequence[Row], value: Callable[[Row], float], digits: int) -> str:
    interval: Interval = mean_interval(list(by_round(of, value, mean).values()))
    half = interval.value - (interval.low or 0)
    return f"{interval.value:.{digits}f} ± {half:.{digits}f}"


def _chances(legs: int) -> tuple[str, str]:
    anyone = HOSTILE * (1 - (1 - HOSTILE) ** legs)
    everyone = HOSTILE * HOSTILE**legs
    return f"{100 * anyone:.1f} %", f"{100 * everyone:.2g} %"
