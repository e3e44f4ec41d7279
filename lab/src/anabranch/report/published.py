"""Published results of the CoMPS paper: `published.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from anabranch.report.setting import Setting


@dataclass(frozen=True, slots=True)
class Point:
    """A published result of the CoMPS paper: an attack's rates in one setting.

    Attributes:
        sources: the paper's tables and figures that show it.
        attack: as in `Spec`.
        setting: the defender's choices.
        r_precision, recall, f1: 0 to 1; `f1` is None if the paper does not give it.
    """

    sources: tuple[str, ...]
    attack: str
    setting: Setting
    r_precision: float
    recall: float
    f1: float | None


@cache
def points() -> tuple[Point, ...]:
    """Returns all published results, in the order of the file."""
    return tuple(map(_point, _content()["point"]))


def found(attack: str, setting: Setting, source: str | None = None) -> Point | None:
    """Returns the paper's numbers of an attack in a setting (in `source`, if given), or None."""
    for point in points():
        same = point.attack == attack and point.setting.like(setting)
        if same and (source is None or source in point.sources):
            return point
    return None


def name() -> str:
    """Returns the paper's short name."""
    return str(_content()["name"])


def citation() -> str:
    """Returns the paper's title and year."""
    return str(_content()["citation"])


def data_name(digest: str, file: str | None = None) -> str:
    """Returns the readable name of a data set, or else its file's, or the start of its digest."""
    known: dict[str, str] = _content()["data"]
    return known.get(digest, file or f"data with the digest {digest[:16] or '(none)'}")


def short_name(digest: str, file: str | None = None) -> str:
    """Returns `data_name` without the description in brackets, for headings."""
    return data_name(digest, file).partition(" (")[0]


def _point(row: dict[str, Any]) -> Point:
    setting = Setting(
        row.get("schedule"),
        row.get("every"),
        row.get("paths", 1),
        defence=row.get("defence"),
        recorded=row.get("recorded"),
    )
    numbers = (row["r_precision"], row["recall"], row.get("f1"))
    return Point(tuple(row["source"]), row["attack"], setting, *numbers)


@cache
def _content() -> dict[str, Any]:
    text = resources.files("anabranch.report").joinpath("published.toml").read_text("utf-8")
    return tomllib.loads(text)
