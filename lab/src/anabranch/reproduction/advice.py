"""The results page of section 5.3 of the DBSec 2019 paper: cost and protection of each design."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import mean

from anabranch.reproduction import designs, udp
from anabranch.reproduction.anonymity import FIRST
from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.designs import NAMES, chances, percent
from anabranch.reproduction.spread import by_round, mean_interval
from anabranch.reproduction.words import item, table, wrapped

CIRCUITS = (10, 100)
"""Numbers of circuits that a client of MORE has used. MORE can use a circuit per packet."""
ALL = 228
"""Number of clients in the large network."""
UNKNOWN = "not measured"
LOOPBACK = "on loopback"
"""Text of a cell without a time on emulated lines, for a design in the table of loopback."""

HEADER = (
    "design",
    "first byte, ms",
    "320 KiB, ms",
    "1 MiB, ms",
    "CPU of all relays, ms/MB",
    "simulated: first byte, ms",
    "320 KiB, ms",
    "1 MiB, ms",
    "an entry and the exit hostile",
    "all entries and the exit hostile",
    "an entry and the merging relay hostile",
    "clients with the same entries",
)
ON_LOOPBACK = (
    "design",
    "first byte, ms",
    "320 KiB, ms",
    "1 MiB, ms",
    "CPU of all relays, ms/MB",
    "failed downloads",
)
WIDE = ("design", "schedule", "paths", "web: first byte, ms", "320 KiB, ms", "bulk: 1 MiB, ms")


def rows(data: Data) -> list[tuple[str, ...]]:
    """Returns a row for each design and number of circuits, then rows of MORE.

    MORE's probabilities are not simulated: they are those of formulas (`designs.chances`).

    Args:
        data: has `circuits.parquet`, `circuits-udp.parquet`, `designs.parquet` and
            `anonymity.parquet`.
    """
    measured = {(row["design"], row["legs"]) for row in data.table("circuits.parquet")}
    drawn = {(row["design"], row["legs"]) for row in data.table("designs.parquet")}
    keys = [
        (design, legs)
        for design in NAMES
        for legs in sorted(legs for name, legs in measured | drawn if name == design)
    ]
    found: list[tuple[str, ...]] = []
    for design, legs in keys:
        own = _measured(data, design, legs), _simulated(data, design, legs)
        seen = _anonymity(data, legs, is_merged=design.startswith("merged"))
        found.append((designs.name_of(design, legs), *own[0], *own[1], *seen))
    for count in CIRCUITS:
        anyone, everyone = map(percent, chances(count))
        times = (*[_unknown(data, *udp.MORE)] * 4, *[UNKNOWN] * 3)
        found.append((f"MORE, {count} circuits", *times, anyone, everyone, "–", "all"))
    return found


def loopback(data: Data) -> list[tuple[str, ...]]:
    """Returns times and CPU of each design that was measured next to UDP designs and MORE.

    Args:
        data: has `circuits-udp.parquet`.
    """
    return [
        (
            udp.name_of(*key),
            *_costs(udp.rows_of(data, key)),
            f"{100 * mean(udp.failed(data, key)):.1f} %",
        )
        for key in udp.measured(data)
    ]


def wide(data: Data) -> list[tuple[str, ...]]:
    """Returns times of each design with two paths, and of one path, in the large network.

    Args:
        data: has `wide.parquet`.
    """
    every = [
        row
        for row in data.table("wide.parquet")
        if row["clients"] == ALL and math.isclose(row["quantile"], 0.5)
    ]
    keys = {(row["design"], row["schedule"], row["paths"]): None for row in every}
    found: list[tuple[str, ...]] = []
    for design, schedule, paths in keys:
        of = [row for row in every if (row["design"], row["schedule"]) == (design, schedule)]
        web, bulk = ([row for row in of if row["load"] == load] for load in ("web", "bulk"))
        cells = (
            _ms([row["time_to_first_byte"] for row in web]),
            _ms([row["time_to_last_byte"] for row in web]),
            _ms([row["time_to_last_byte"] for row in bulk]),
        )
        found.append((design, schedule, str(paths), *cells))
    return found


def page(data: Data, verdicts: Sequence[tuple[str, ...]]) -> str:
    """Returns the page, in Markdown.

    Args:
        data: the committed data.
        verdicts: claims of section 5.3, each with the paper's number, ours and the verdict.
    """
    lines = [
        "# Which multi-path design for which purpose",
        "",
        *wrapped(_INTRODUCTION),
        "",
        "    make reproduce-index                # this page, from the data in this folder",
        "    make lab-designs                    # the simulated times: minutes of one core",
        "",
        "## The paper's advice",
        "",
        *table(("claim", "the paper", "ours", "verdict"), verdicts),
        "",
        *wrapped(_VERDICTS),
        "",
        "## Cost and protection of each design",
        "",
        *table(HEADER, rows(data)),
        "",
        *_notes(),
        "",
        "## On loopback",
        "",
        *wrapped(_LOOPBACK),
        "",
        *table(ON_LOOPBACK, loopback(data)),
        "",
        "## In a large network",
        "",
        *wrapped(_WIDE),
        "",
        *table(WIDE, wide(data)),
    ]
    return "\n".join(lines) + "\n"


_INTRODUCTION = (
    "Section 5.3 of *Analysis of Multi-path Onion Routing-Based Anonymization Networks* (DBSec "
    "2019) recommends a design for each purpose: UDP for a fast first response, TCP with a "
    "congestion-based schedule for fast downloads, round robin to relieve relays, and MORE where "
    "anonymity matters more than speed. This page has a verdict on each recommendation, and the "
    "cost and the protection of all designs. `make reproduce-index` writes the whole page."
)
_VERDICTS = (
    "Ratios are geometric means with 95 % intervals, over rounds of `experiment circuits` with "
    "emulated lines, or over simulated networks. Designs on UDP are compared with the TCP design "
    "that is fastest in the same simulated networks. MORE is compared with the slowest other "
    "design of the same rounds on [loopback](#on-loopback)."
)
_LOOPBACK = (
    "UDP designs and MORE are measured on loopback ([circuits-udp](circuits-udp.md), "
    "`circuits-udp.parquet`), as in the paper: no line limits the rate, and all programs share the "
    "processors. The columns are those of the table above. The CPU is that of seven relays. With "
    "MORE every client is a relay too, and its CPU is not counted. *Failed downloads* are the "
    "measuring client's."
)
_WIDE = (
    "This table has the same designs with two paths in the simulated network of [wide](wide.md), "
    f"with {ALL} clients. The values are means over three networks of the median times, with half "
    "the width of the 95 % interval. Of the designs on UDP, `-cubic` is the published form, with "
    "CUBIC and round robin."
)


def _notes() -> Iterator[str]:
    yield from item(
        "*Measured* times and CPU are from [`experiment circuits`](circuits.md) with emulated "
        "lines. They are means over five rounds (`circuits.parquet`). The client waits for the "
        "connection before it sends the request. Clients use all guards, so the CPU of a single "
        "guard cannot be judged."
    )
    yield from item(
        "*Simulated* times are from `anabranch sim` (`designs.parquet`, `lab/results/designs.py`). "
        "They are means of the median times in three networks. Each network has eleven relays of "
        "10 or 20 Mbit/s, ten clients that load pages of 320 KiB, and one client that downloads 1 "
        "MiB again and again. Only ratios within these columns are meaningful, because the network "
        "differs from the measured one. With UDP a client sends its request before the exit is "
        "connected to the server, with TCP after it."
    )
    yield from item(
        f"*Hostile* relays have {100 * designs.HOSTILE:.0f} % of the weight of entries, exits and "
        f"middle relays in the network of {FIRST[:7]}, and are drawn at random "
        "(`anonymity.parquet`, [anonymity](anonymity.md)). For MORE the values are by the "
        "formulas of section 6.1. *An entry and the exit* are enough to correlate both ends of a "
        "stream; *all entries* are necessary to see all of it at the client's side. Where circuits "
        "merge at a middle relay, this relay sees what the exit sees."
    )
    yield from item(
        "*Clients with the same entries* is the mean over 83,000 clients in the same network. "
        "Clients of MORE use all entries, so all clients have the same."
    )
    yield from item(
        "The values after ± are half the width of the 95 % interval (Student's t). Designs with "
        f"*{LOOPBACK}* are measured [there](#on-loopback) only. The simulator has no relays that "
        "change with each message, so *MORE* is not simulated."
    )


def _measured(data: Data, design: str, legs: int) -> tuple[str, ...]:
    of = [
        row
        for row in data.table("circuits.parquet")
        if (row["place"], row["design"], row["legs"]) == ("lines", design, legs)
    ]
    return _costs(of) if of else (_unknown(data, design, legs),) * 4


def _unknown(data: Data, design: str, legs: int) -> str:
    """Returns the text of a design's cells without a time on emulated lines."""
    return LOOPBACK if (design, legs) in udp.measured(data) else UNKNOWN


def _costs(of: Sequence[Row]) -> tuple[str, ...]:
    """Returns cells: times of the first byte, of 320 KiB and of 1 MiB, and the relays' CPU time.

    The time of the first byte is measured without optimistic data.
    """
    usual = [row for row in of if not row["optimistic"]]
    return (
        _over(usual, lambda row: 1e3 * row["first_byte"], 0),
        _over(of, lambda row: 1e3 * row["web"], 0),
        _over(of, lambda row: 1e3 * row["bulk"], 0),
        _over(of, designs.cpu, 1),
    )


def _simulated(data: Data, design: str, legs: int) -> tuple[str, ...]:
    columns = (("web", "first_byte"), ("web", "last_byte"), ("bulk", "last_byte"))
    times = [designs.simulated(data, (design, legs), *column) for column in columns]
    return tuple(_ms(of) if of else UNKNOWN for of in times)


def _anonymity(data: Data, legs: int, *, is_merged: bool) -> tuple[str, ...]:
    of = {
        (row["analysis"], row["measure"]): row["mean"]
        for row in data.table("anonymity.parquet")
        if row["consensus"] == FIRST
        and (row["legs"], row["in_use"]) == (legs, legs)
        and row["adversary"] in ("", str(designs.HOSTILE))
    }
    seen = [percent(of["paths", measure]) for measure in ("any", "all")]
    merging = percent(of["paths", "merge"]) if is_merged else "–"
    return (*seen, merging, f"{of['fingerprints', 'over_clients']:.1f}")


def _over(of: Sequence[Row], value: Callable[[Row], float], digits: int) -> str:
    return _number(list(by_round(of, value, mean).values()), digits)


def _ms(seconds: Sequence[float]) -> str:
    return _number([1e3 * one for one in seconds], 0)


def _number(values: Sequence[float], digits: int) -> str:
    interval = mean_interval(values)
    half = interval.value - (interval.low or 0)
    return f"{interval.value:,.{digits}f} ± {half:,.{digits}f}"
