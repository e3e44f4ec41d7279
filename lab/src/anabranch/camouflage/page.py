"""The results of the attacks on page loads through pluggable transports, as Markdown tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from anabranch import io
from anabranch.camouflage.captures import TABLE, kinds
from anabranch.camouflage.numbers import TITLES, Row, area, percent, share
from anabranch.report.markdown import escaped, wrapped
from anabranch.validate import source

BEGIN = "<!-- anabranch-lab camouflage: from here to the end mark, all is generated -->"
END = "<!-- anabranch-lab camouflage: end -->"
NONE = "–"


def document(folder: Path, found: Sequence[Row]) -> str:
    """Returns the generated part of a page, between its begin and end marks.

    Raises:
        TraceError: if the folder's files cannot be read.
    """
    parts = {
        "Sites that an attack recognises": _closed(found, same=True),
        "Attacks that were trained on another kind of loads": _closed(found, same=False),
        "Other pages": _open(found),
        "The paper's classifier": _sums(found),
        "The paper's classifier, site by site": _sites(found),
        "Loads": _loads(folder),
    }
    lines = [BEGIN]
    for title, part in parts.items():
        lines += ["", f"### {title}", "", *part]
    return "\n".join([*lines, "", END, ""])


def _closed(found: Sequence[Row], *, same: bool) -> Iterator[str]:
    rows = [row for row in found if row["measure"] == "closed"]
    chosen = [row for row in rows if (row["learnt"] == row["tested"]) == same]
    attacks = _attacks(chosen)
    if same and chosen:
        numbers = chosen[0]["numbers"]
        yield wrapped(
            f"Share of loads for which an attack names the right one of {numbers['pages']} sites. "
            f"Guessing is right for {percent(numbers['chance'])} %."
        )
        yield ""
    cells = {(row["learnt"], row["tested"], row["attack"]): row["numbers"] for row in chosen}
    pairs = list(dict.fromkeys((row["learnt"], row["tested"]) for row in chosen))
    table = []
    for learnt, tested in pairs:
        named = [tested] if same else [tested, learnt]
        table.append([*named, *(_share(cells.get((learnt, tested, attack)), "accuracy")
                                for attack in attacks)])  # fmt: skip
    head = ["loads"] if same else ["tested on", "trained on"]
    yield from _table([*head, *(f"{TITLES[attack]}, %" for attack in attacks)], table)


def _open(found: Sequence[Row]) -> Iterator[str]:
    rows = [row for row in found if row["measure"] == "open"]
    attacks = _attacks(rows)
    yield wrapped(
        "Other pages do not belong to the sites. The attack is also trained on loads of such "
        "pages, but not of those in the test. *Found*: share of the sites' loads that it "
        "recognises. *False*: share of the loads of other pages that it mistakes for a site."
    )
    yield ""
    cells = {(row["tested"], row["attack"]): row["numbers"] for row in rows}
    names = list(dict.fromkeys(row["tested"] for row in rows))
    table = [
        [name, *(_share(cells.get((name, attack)), rate)
                 for attack in attacks for rate in ("recall", "false_positive_rate"))]
        for name in names
    ]  # fmt: skip
    heads = [f"{TITLES[attack]}: {word}, %" for attack in attacks for word in ("found", "false")]
    yield from _table(["loads", *heads], table)


def _sums(found: Sequence[Row]) -> Iterator[str]:
    yield wrapped(
        "Area under the ROC curve for recognising the loads of one site among the loads of all "
        "other sites: mean, lowest and highest over sites. An area of .5 is chance."
    )
    yield ""
    table = []
    for row in found:
        if row["measure"] == "sums":
            areas = row["numbers"]["areas"].values()
            table.append([row["tested"], row["learnt"], area(row["numbers"]["mean"]),
                          f"{min(areas):.3f}", f"{max(areas):.3f}"])  # fmt: skip
    yield from _table(["tested on", "trained on", "mean", "least", "most"], table)


def _sites(found: Sequence[Row]) -> Iterator[str]:
    rows = [row for row in found
            if row["measure"] == "sums" and row["learnt"] == row["tested"]]  # fmt: skip
    names = sorted({name for row in rows for name in row["numbers"]["areas"]})
    yield "The classifier is trained on loads of the same kind, as in the paper's Table 2."
    yield ""
    table = [
        [row["tested"], *(_number(row["numbers"]["areas"].get(name)) for name in names)]
        for row in rows
    ]
    yield from _table(["loads", *names], table)


def _loads(folder: Path) -> Iterator[str]:
    place = folder / TABLE
    with source(place):
        loads = pq.read_table(place).to_pylist()
    failed = Counter(load["kind"] for load in loads if load["failed"])
    yield wrapped(
        "Medians over the loads of sites; seconds are the time until the browser's load event. "
        "*Others* are loads of pages that do not belong to the sites."
    )
    yield ""
    table = []
    for name in kinds(folder):
        traces = io.read(folder / f"{name}.parquet")
        sites = traces[traces.monitored]
        seconds = [load["seconds"] for load in loads
                   if load["kind"] == name and _counts(load)]  # fmt: skip
        ways = [np.bincount(sites.owners, np.maximum(sign * sites.sizes, 0), len(sites)) / 1000
                for sign in (1, -1)]  # fmt: skip
        table.append([
            name, len(sites), len(traces) - len(sites), failed[name],
            f"{np.median(seconds):.1f}", f"{np.median(sites.lengths):.0f}",
            *(f"{np.median(way):.0f}" for way in ways),
        ])  # fmt: skip
    head = ["loads", "of sites", "others", "failed", "seconds", "packets", "kB up", "kB down"]
    yield from _table(head, table)


def _counts(load: Row) -> bool:
    return bool(load["monitored"] and not load["failed"])


def _share(numbers: Row | None, name: str) -> str:
    return NONE if numbers is None else share(numbers[name])


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _attacks(rows: Iterable[Row]) -> list[str]:
    found = {row["attack"] for row in rows}
    return [name for name in TITLES if name in found]


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(escaped(str(cell)) for cell in row) + " |"
