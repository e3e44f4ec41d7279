"""A judgement as a page of Markdown, with recognised classes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from anabranch.covertness import statistics
from anabranch.covertness.detectors import DETECTORS
from anabranch.covertness.findings import bars, caught, controls, estimate, seen
from anabranch.covertness.judge import Judgement
from anabranch.covertness.pair import ForestScore
from anabranch.report.markdown import escaped, wrapped

BEGIN = "<!-- anabranch-lab covertness: from here to the end mark, all is generated -->"
END = "<!-- anabranch-lab covertness: end -->"
NO_ROWS = (
    "**These numbers cannot be computed again:** the captures are not in the repository, and no "
    "file of rows was written (`--out`)."
)
"""Note on a page without a file of its numbers."""
FARTHEST = 6
"""Number of features to show for each class, in addition to the paper's features."""


def document(found: Judgement, command: str, rows: str | None = None) -> str:
    """Returns the generated part of the page, between its begin and end marks.

    Args:
        found: the judgement.
        command: the command that repeats the measurement.
        rows: name of the file with all numbers; None if none is written.
    """
    note = NO_ROWS if rows is None else f"All numbers are in `{rows}`."
    parts = {
        "Recognised classes": _list(caught(found)),
        "Controls": _list(controls(found)),
        "Goals": _list(bars(found)),
        "Fixed detectors": detectors(found),
        "One connection": _connections(found),
        "One server": _servers(found),
        "Features with the largest distance": _features(found),
        "Requests": _requests(found),
        "Captures": _captures(found),
    }
    lines = [BEGIN, "", f"    {command}", "", wrapped(note)]
    for title, part in parts.items():
        lines += ["", f"## {title}", "", *part]
    return "\n".join([*lines, "", END, ""])


def findings(found: Judgement) -> list[str]:
    """Returns the conclusions: recognised classes, controls, goals."""
    return [*caught(found), *controls(found), *bars(found)]


def detectors(found: Judgement) -> list[str]:
    """Returns a table of each fixed detector's hits."""
    rows = []
    for name in found.groups:
        own = [each for each in found.hits if each.name == name]
        rows.append([name, *(f"{each.hits:,} of {each.connections:,}" for each in own)])
    return _table(["class", *DETECTORS], rows)


def _list(sentences: Iterable[str]) -> list[str]:
    return [wrapped(f"* {each}") for each in sentences]


def _connections(found: Judgement) -> list[str]:
    rows = [[each.name, each.features, each.apart, f"{each.positives:,}/{each.negatives:,}",
             estimate(each.area), _rate(each)]
            for each in found.scores if each.after == 1]  # fmt: skip
    head = ["class", "features", "folds by", "connections/real", "area"]
    return _table([*head, f"recognised at a false-positive rate of {statistics.RARE:g}"], rows)


def _rate(each: ForestScore) -> str:
    """Returns the true-positive rate; with too few negatives, the number that is needed instead."""
    if each.rate is None:
        return f"too few negatives (needs {statistics.NEGATIVES:,})"
    return estimate(each.rate)


def _servers(found: Judgement) -> list[str]:
    rows = [[each.name, seen(each), f"{each.positives:,}/{each.negatives:,}", estimate(each.area)]
            for each in found.scores
            if each.after != 1 or (each.features, each.apart) == ("all", "site")]  # fmt: skip
    return _table(["class", "seen", "connections or sessions/real", "area"], rows)


def _features(found: Judgement) -> list[str]:
    rows = []
    for name in dict.fromkeys(each.name for each in found.distances):
        own = [each for each in found.distances if each.name == name]
        paper = own[:5]
        others = sorted(own[5:], key=lambda each: -each.estimate.value)[:FARTHEST]
        rows += [[name, each.feature, estimate(each.estimate)] for each in (*paper, *others)]
    return _table(["class", "feature", "distance (KS)"], rows)


def _requests(found: Judgement) -> list[str]:
    if not found.requests:
        return ["No class has unencrypted HTTP requests."]
    head = ["class", "bytes of a GET: least / 5 % / median / 95 % / most",
            "mean bytes of a connection's heads: least–most", "requests of a connection, mean",
            "POSTs of a session, mean", "kB up, mean", "kB down, mean",
            "connections whose first answer has an ETag"]  # fmt: skip
    rows = [[each.name, " / ".join(f"{length:,.0f}" for length in each.gets) or "–",
             f"{each.least:,.0f}–{each.most:,.0f}", f"{each.requests:.1f}", f"{each.posts:.1f}",
             f"{each.up / 1000:,.0f}", f"{each.down / 1000:,.0f}",
             f"{each.etags:,} of {each.connections:,}"] for each in found.requests]  # fmt: skip
    note = "Classes with unencrypted HTTP. A head is a request without its body. Means are over\n"
    note += (
        "connections with a request. kB are those of a session's payload. Servers send an ETag\n"
    )
    note += "for files."
    return [*_table(head, rows), "", note]


def captures(found: Judgement) -> list[dict[str, Any]]:
    """Returns numbers of sessions, sites and connections of each class, and medians over sessions.

    Medians are of a session's connections, and of its payload in kB; None without sessions.
    """
    rows = []
    for name, group in found.groups.items():
        count = [float(len(flows)) for flows in group.sessions]
        sums = [[sum(int(abs(flow.sizes[flow.sizes * side > 0]).sum()) for flow in flows) / 1000
                 for flows in group.sessions] for side in (1, -1)]  # fmt: skip
        middle = [float(np.median(each)) if each else None for each in (count, *sums)]
        medians = dict(zip(("a session", "kB up", "kB down"), middle, strict=True))
        known = {"sessions": len(count), "sites": len(set(group.sites)), "connections": sum(count)}
        rows.append({"class": name, **known, **medians})
    return rows


def _captures(found: Judgement) -> list[str]:
    head = ["class", "sessions", "sites", "connections", "a session", "kB up", "kB down"]
    rows = []
    for each in captures(found):
        middle = ["–" if each[name] is None else f"{each[name]:.3g}" for name in head[4:]]
        counts = [each["class"], each["sessions"], each["sites"], f"{each['connections']:,.0f}"]
        rows.append([*counts, *middle])
    note = "Medians of a session's connections and payload. Omitted packets, of connections that\n"
    note += "began before a capture: "
    note += f"{sum(group.headless for group in found.groups.values())}."
    return [*_table(head, rows), "", note]


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(escaped(str(cell)) for cell in row) + " |" for row in rows]
