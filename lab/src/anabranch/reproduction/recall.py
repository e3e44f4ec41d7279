"""The table of fingerprinting.md that shows what limits DF's recall on undefended loads."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.report.setting import attack as attack_name
from anabranch.report.tables import inline
from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.words import marked, table, wrapped

ATTACKS = ("df", "p-fp", "var-cnn", "cumul", "k-fp")
"""Attacks of the table, in its order."""
_HEADER = (
    "attack",
    "loads a page",
    "packets",
    "protocol",
    "a load counts as monitored",
    "recall",
    "other loads accepted",
    "r-precision",
)


def written(data: Data) -> str:
    """Returns the table in Markdown, between its begin and end marks.

    Args:
        data: has `fingerprinting.jsonl` and `recall.jsonl`.
    """
    return marked([*table(_HEADER, _rows(data)), "", *wrapped(_NOTE)])


_NOTE = (
    "Undefended loads of 50 monitored pages and of 48 others; 95 % intervals. *Every load*: the "
    "threshold is so low that each monitored load of the validation set is accepted. *At the best "
    "F1*: the threshold with the best F1 at 20 other loads for each monitored one, chosen on the "
    "validation set."
)


def results(data: Data) -> list[Row]:
    """Returns the results of undefended loads in the open world, by attack and training set."""
    found = [
        each
        for name in ("fingerprinting.jsonl", "recall.jsonl")
        for each in data.results(name)
        if each["spec"]["attack"] in ATTACKS and _is_undefended(each)
    ]
    return sorted(found, key=_place)


def _is_undefended(result: Row) -> bool:
    spec = result["spec"]
    return spec["world"] == "open" and spec["schedule"] is None and spec["defence"] is None


def _place(result: Row) -> tuple[object, ...]:
    spec = result["spec"]
    loads = spec["loads"] or result["facts"]["folds"][0]["train"]["loads"]
    return ATTACKS.index(spec["attack"]), spec["protocol"], loads


def _rows(data: Data) -> Iterator[tuple[str, ...]]:
    for result in results(data):
        spec, metrics = result["spec"], result["metrics"]
        start = (
            attack_name(spec["attack"]),
            str(spec["loads"] or "all"),
            f"{spec['parameters']['length']:,}" if "length" in spec["parameters"] else "all",
            spec["protocol"],
        )
        is_paper = spec["protocol"] == "paper"
        point = ("recall", "false_positive_rate", "r_precision")
        yield (
            *start,
            "if a monitored page is the most probable" if is_paper else "at the best F1",
            *(inline(metrics[name]) for name in point),
        )
        if not is_paper:
            yield (*start, "every load", *(inline(metrics["curve"][name][0]) for name in point))
