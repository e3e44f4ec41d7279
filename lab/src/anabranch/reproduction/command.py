"""`anabranch-lab reproduction`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from anabranch.validate import TraceError, source

if TYPE_CHECKING:
    from anabranch.reproduction.data import Data

T = TypeVar("T")


def reproduction(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            help="Read the pages of results and their data in this folder, usually docs/results.",
        ),
    ],
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="FILE",
            help="Write the list of tables, figures and claims to FILE, instead of printing it.",
        ),
    ] = None,
    pages: Annotated[
        bool,
        typer.Option(
            "--pages",
            help="First write the generated pages and parts of pages in RESULTS: designs.md, the "
            "table of recalls in fingerprinting.md, the findings in circuits-udp.md and wide.md, "
            "and the table of data in README.md.",
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="COMMITTED",
            help="Compare the data in the folders RESULTS and COMMITTED; COMMITTED is usually "
            "docs/results. Fail if a paper's claim holds by the data of one folder and does not "
            "hold by the data of the other folder.",
        ),
    ] = None,
) -> None:
    """List the tables, figures and claims of the four papers that this project reproduces.

    The list has our number for each of them, and the verdict whether it agrees with the paper. The
    command fails if a verdict and the reason for its absence are both missing, or if a results page
    has another number than its data.
    """
    from anabranch.reproduction import index, recall, rows
    from anabranch.reproduction.data import Data

    if against is not None:
        _compare(Data(results), Data(against))
        return
    if pages:
        _write(results / "designs.md", lambda: index.designs_page(Data(results)))
        _within(results / "fingerprinting.md", lambda: recall.written(Data(results)))
        for name in index.PARTS:
            _within(results / name, partial(index.part, Data(results), name))
        _within(results / "README.md", lambda: rows.written(results))
    data = Data(results)
    text = _made(lambda: index.page(data))
    wrong = [*_made(lambda: list(index.problems(data))), *rows.problems(results)]
    if wrong:
        raise TraceError("; ".join(wrong))
    if into is None:
        sys.stdout.write(text)
    else:
        _write(into, lambda: text)


def _within(file: Path, make: Callable[[], str]) -> None:
    from anabranch.report import markdown
    from anabranch.reproduction.words import BEGIN, END

    part = _made(make)
    with source(file):
        old = file.read_text("utf-8")
        file.write_text(markdown.within(old, part, BEGIN, END), "utf-8")


def _write(file: Path, make: Callable[[], str]) -> None:
    text = _made(make)
    with source(file):
        file.write_text(text, "utf-8")


def _made(make: Callable[[], T]) -> T:
    """Calls `make`; converts the LookupError of a result missing in the data to a TraceError."""
    try:
        return make()
    except LookupError as error:
        raise TraceError(str(error)) from error


def _compare(run: Data, committed: Data) -> None:
    from anabranch.reproduction import against as compared

    pairs = _made(lambda: list(compared.pairs(committed, run)))
    sys.stdout.write(compared.table(pairs))
    if not any(run.folder.glob("**/*.parquet")):
        raise TraceError(f"{run.folder}: no experiment's data are there")
    if any(pair.contradicts for pair in pairs):
        raise typer.Exit(1)
