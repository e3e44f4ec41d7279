"""The data behind each results page (`rows.toml`), and their table in docs/results/README.md."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import pyarrow.parquet as pq

from anabranch.reproduction.intervals import unknown
from anabranch.reproduction.words import BEGIN, END, marked, table
from anabranch.validate import source

LOST = "cannot be computed again"
"""Text on a page and in the README that marks a table whose rows are not in the repository.

Tables that are `repeatable` do not have the mark.
"""
ENDINGS = (".parquet", ".jsonl", ".json")
"""Endings of data files."""


@dataclass(frozen=True, slots=True)
class Without:
    """One or several tables of a page whose rows are not in the repository.

    Attributes:
        table: title or subject of the table.
        reason: the reason.
        command: the command that measures it again.
        repeatable: whether this command computes the same numbers again, from committed data or
            from the public data set that it names.
        intervals: percentages with intervals that the page shows of the table.
    """

    table: str
    reason: str
    command: str
    repeatable: bool = False
    intervals: int = 0

    def text(self) -> str:
        """Returns the text of its cell in the README's table."""
        if self.repeatable:
            return f"{self.table}: {self.reason}; `{self.command}` computes the numbers again"
        return f"{self.table}: **{LOST}**, {self.reason} (`{self.command}` repeats the measurement)"


@dataclass(frozen=True, slots=True)
class Page:
    """A results page.

    Attributes:
        name: its file.
        data: its data files, relative to the page.
        without: its tables whose rows are not in the repository.
    """

    name: str
    data: tuple[str, ...]
    without: tuple[Without, ...]


@cache
def pages() -> tuple[Page, ...]:
    """Returns all pages, in the order of the file."""
    text = resources.files("anabranch.reproduction").joinpath("rows.toml").read_text("utf-8")
    return tuple(
        Page(
            row["name"],
            tuple(row["data"]),
            tuple(Without(**each) for each in row.get("without", [])),
        )
        for row in tomllib.loads(text)["page"]
    )


def problems(folder: Path) -> Iterator[str]:
    """Yields pages and data files that `rows.toml` lacks, and pages that do not mark lacking rows.

    Args:
        folder: `docs/results` of a checkout.
    """
    known = {page.name for page in pages()}
    for name in sorted({file.name for file in folder.glob("*.md")} ^ known):
        yield f"{name}: not both in rows.toml and in the folder"
    listed = {name for page in pages() for name in page.data}
    for name in sorted(_unlisted(folder, listed)):
        yield f"{name}: no page of rows.toml has it"
    for page in pages():
        for name in page.data:
            if not (folder / name).is_file():
                yield f"{page.name}: {name} is missing"
        if (folder / page.name).is_file():
            yield from _unmarked(page, (folder / page.name).read_text("utf-8"))
            # Tables of experiments, generated from Parquet files, are not checked: not all are
            # percentages.
            if any(name.endswith((".json", ".jsonl")) for name in page.data):
                yield from _unknown(page, folder)


def written(folder: Path) -> str:
    """Returns the table with its marks, in Markdown.

    Args:
        folder: `docs/results` of a checkout.

    Raises:
        TraceError: if a data file cannot be read.
    """
    header = ("page", "rows in", "tables without rows")
    rows = [
        (
            f"[{page.name.removesuffix('.md')}]({page.name})",
            ", ".join(f"`{name}` ({_count(folder / name):,})" for name in page.data) or "–",
            "; ".join(each.text() for each in page.without) or "–",
        )
        for page in pages()
    ]
    return marked(table(header, rows))


def _unlisted(folder: Path, listed: set[str]) -> Iterator[str]:
    """Yields data files that no page lists, except recordings in folders with a listed file."""
    folders = {str(Path(name).parent) for name in listed} - {"."}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if file.suffix in ENDINGS and name not in listed and str(Path(name).parent) not in folders:
            yield name


def _unmarked(page: Page, text: str) -> Iterator[str]:
    own = text.partition(BEGIN)[0] + text.partition(END)[2]
    count = " ".join(own.split()).count(LOST)
    lost = sum(not each.repeatable for each in page.without)
    if count != lost:
        yield f"{page.name}: has '{LOST}' {count} times, but {lost} tables without rows"


def _unknown(page: Page, folder: Path) -> Iterator[str]:
    found, listed = unknown(folder, page.name), sum(each.intervals for each in page.without)
    if len(found) != listed:
        yield (
            f"{page.name}: {len(found)} intervals are in no data file, and rows.toml has {listed}: "
            f"{', '.join(found)}"
        )


def _count(file: Path) -> int:
    """Returns the number of rows of a data file."""
    with source(file):
        if file.suffix == ".parquet":
            return int(pq.read_metadata(file).num_rows)
        text = file.read_text("utf-8")
    return len(text.splitlines()) if file.suffix == ".jsonl" else len(json.loads(text))
