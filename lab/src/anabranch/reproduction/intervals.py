"""Finds percentages with intervals that a results page shows but its data do not contain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from anabranch.report.tables import inline
from anabranch.reproduction.data import Data, Row

_PRINTED = re.compile(r"(\u2212?\d+\.\d)(?: %)? \((\u2212?\d+\.\d)–(\d+\.\d)(?:, [a-z]+ seeds)?\)")
_ESTIMATE = {"value", "low", "high"}


def unknown(folder: Path, page: str) -> list[str]:
    """Returns the percentages with intervals of a page that are in no data file of the folder.

    The data contain all estimates of `*.json` and `*.jsonl`, and means of two or more seeds with
    their minimum and maximum.

    Args:
        folder: `docs/results` of a checkout.
        page: name of the page.
    """
    text = " ".join((folder / page).read_text("utf-8").replace("*", "").split())
    printed = [f"{value} ({low}–{high})" for value, low, high in _PRINTED.findall(text)]
    if not printed:
        return []
    known = _known(folder)
    return [number for number in printed if number not in known]


def _known(folder: Path) -> frozenset[str]:
    data, found, seeds = Data(folder), set[str](), dict[str, dict[int, float]]()
    for file in (*folder.glob("*.json"), *folder.rglob("*.jsonl")):
        rows = (
            data.results(str(file.relative_to(folder)))
            if file.suffix == ".jsonl"
            else json.loads(file.read_text("utf-8"))
        )
        found.update(_plain(one) for one in _estimates(rows))
        for row in rows:
            _add_seed(row, seeds)
    for values in seeds.values():
        found.update(_means(list(values.values())))
    return frozenset(found)


def _estimates(value: Any) -> Iterator[dict[str, float]]:
    if isinstance(value, dict):
        if value.keys() >= _ESTIMATE and None not in (value["value"], value["low"]):
            yield value
        for each in value.values():
            yield from _estimates(each)
    elif isinstance(value, list):
        for each in value:
            yield from _estimates(each)


def _add_seed(row: Row, seeds: dict[str, dict[int, float]]) -> None:
    """Adds a result's accuracy to the accuracies of the same settings with other seeds."""
    accuracy = row.get("metrics", {}).get("accuracy") if "spec" in row else None
    if accuracy:
        spec = dict(row["spec"])
        seed = spec.pop("seed")
        key = json.dumps([spec, row["data"]], sort_keys=True)
        seeds.setdefault(key, {})[seed] = accuracy["value"]


def _means(values: Sequence[float]) -> Iterator[str]:
    for count in range(2, len(values) + 1):
        for chosen in combinations(values, count):
            ends = {"low": min(chosen), "high": max(chosen)}
            yield _plain({"value": sum(chosen) / count, **ends})


def _plain(estimate: dict[str, float]) -> str:
    """Returns an estimate as the pages print it, without the per cent sign."""
    return inline(estimate).replace(" %", "")
