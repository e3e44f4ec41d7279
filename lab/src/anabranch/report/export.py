"""The results of a report for other programs: CSV for spreadsheets and pandas, LaTeX for papers."""

from __future__ import annotations

import csv as format_csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from anabranch import results
from anabranch.report.collection import WHOLE, Collection, Entry
from anabranch.report.setting import attack, observer

RATES = {
    "closed": {"accuracy": "accuracy"},
    "open": {"r_precision": "$r$-precision", "recall": "recall", "f1": "$F_1$"},
}
"""Metrics in each world's LaTeX table, with their column names."""


def csv(collection: Collection) -> str:
    """Returns a header, then a row for each result (RFC 4180).

    Columns: the result's readable names (`setting`, `design`), every setting of the evaluation
    under its own name, every metric with an interval as `NAME`, `NAME_low`, `NAME_high` (shares
    from 0 to 1), seconds, digest of the data, file. Missing values are empty.
    """
    rows = [_row(entry) for entry in collection]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    table = format_csv.DictWriter(text, columns, restval="")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def _row(entry: Entry) -> dict[str, Any]:
    spec = {
        name: json.dumps(value) if isinstance(value, dict | list) else value
        for name, value in entry.spec.to_dict().items()
    }
    rates = {
        f"{name}{part}": estimate[key]
        for name, estimate in results.estimates(entry.result.metrics)
        for part, key in (("", "value"), ("_low", "low"), ("_high", "high"))
    }
    labels = {"setting": str(entry.setting), "design": entry.design}
    where = {"data": entry.result.data, "file": entry.file.name}
    return labels | spec | rates | dict(entry.result.elapsed) | where


def latex(collection: Collection) -> str:
    """Returns a `tabular` for each world with results; the only package needed is booktabs."""
    parts = ["% Made by anabranch-lab report. It needs \\usepackage{booktabs}."]
    for world, rates in RATES.items():
        entries = collection.select(world=world)
        if entries:
            parts.append(_tabular(world, rates, entries))
    return "\n\n".join(parts) + "\n"


def _tabular(world: str, rates: dict[str, str], entries: Sequence[Entry]) -> str:
    head = [
        "setting",
        "attack",
        "observer",
        "design",
        *(f"{name} [\\%]" for name in rates.values()),
    ]
    lines = [
        f"% {world} world; in brackets 95 % intervals by page",
        f"\\begin{{tabular}}{{llll{'r' * len(rates)}}}",
        "\\toprule",
        _line(head),
        "\\midrule",
    ]
    for entry in entries:
        seen = "all" if entry.observer == WHOLE else observer(entry.observer)
        texts = [str(entry.setting), attack(entry.attack), seen, entry.design]
        numbers = [_number(entry.estimate(name)) for name in rates]
        lines.append(_line([*map(escaped, texts), *numbers]))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _number(estimate: dict[str, float | None]) -> str:
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    if value is None:
        return "--"
    interval = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * value:.1f}{interval}"


_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×": r"$\times$",
    "·": r"\textperiodcentered{}",
    "–": "--",
    "†": r"\dag{}",
    "“": "``",
    "”": "''",
}


def escaped(text: str) -> str:
    """Escapes text for LaTeX."""
    return re.sub(r"[\\~^×·–†“”&%$#_{}]", lambda found: _SIGNS.get(found[0], f"\\{found[0]}"), text)
