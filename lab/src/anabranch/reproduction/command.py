"""`anabranch-lab reproduction`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.validate import TraceError, source

if TYPE_CHECKING:
    from anabranch.reproduction.data import Data


def reproduction(
    results: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="Folder of results pages and data: docs/results."),
    ],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FILE", help="Write the page to FILE.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="COMMITTED",
            help="Compare the data of a run in RESULTS with those in this folder (docs/results). "
            "Fails if a claim holds by one of them and does not hold by the other.",
        ),
    ] = None,
) -> None:
    """List every table, figure and claim of the four papers with our number and its verdict.

    Fails if a row has neither a verdict nor a reason, or if a results page has another number than
    its data.
    """
    from anabranch.reproduction import index
    from anabranch.reproduction.data import Data

    data = Data(results)
    if against is not None:
        _compare(data, Data(against))
        return
    try:
        text = index.page(data)
        wrong = list(index.problems(data))
    except LookupError as error:
        raise TraceError(str(error)) from error
    if wrong:
        raise TraceError("; ".join(wrong))
    if into is None:
        sys.stdout.write(text)
        return
    with source(into):
        into.write_text(text, "utf-8")


def _compare(run: Data, committed: Data) -> None:
    from anabranch.reproduction import against as compared

    try:
        pairs = list(compared.pairs(committed, run))
    except LookupError as error:
        raise TraceError(str(error)) from error
    sys.stdout.write(compared.table(pairs))
    if not any(run.folder.glob("**/*.parquet")):
        raise TraceError(f"{run.folder}: no experiment's data are there")
    if any(pair.contradicts for pair in pairs):
        raise typer.Exit(1)
