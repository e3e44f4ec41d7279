"""The papers' claims, read from `claims.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper whose results we reproduce.

    Attributes:
        key: its name in the file.
        name: name of the paper's system.
        title: its title with venue and year.
    """

    key: str
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A table, a figure or a numbered claim of a paper.

    Attributes:
        paper: key of the paper.
        place: table, figure or section.
        claim: the paper's claim, in our words.
        published: the paper's number.
        page: the page of `docs/results` with our number.
        command: the command that repeats the measurement.
        time: duration of the command.
        settings: `full`, or how the settings are reduced and what the full settings would cost.
        measure: the function that returns our number; None if there is none.
        of: arguments of `measure`.
        reason: the reason why nothing is measured, if nothing is.
        on_page: whether the page shows the number.
    """

    paper: str
    place: str
    claim: str
    published: str
    page: str = ""
    command: str = ""
    time: str = ""
    settings: str = "full"
    measure: str | None = None
    of: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    on_page: bool = True


@cache
def papers() -> tuple[Paper, ...]:
    """Returns all papers, in the order of the file."""
    return tuple(Paper(**row) for row in _content()["paper"])


@cache
def claims() -> tuple[Claim, ...]:
    """Returns all claims, in the order of the file.

    A claim that names a source takes page, command, time and settings from `[source.NAME]`.
    """
    content = _content()
    sources = content["source"]
    return tuple(
        Claim(
            **sources.get(row.get("source"), {}) | {k: v for k, v in row.items() if k != "source"}
        )
        for row in content["claim"]
    )


@cache
def _content() -> dict[str, Any]:
    text = resources.files("anabranch.reproduction").joinpath("claims.toml").read_text("utf-8")
    return tomllib.loads(text)
