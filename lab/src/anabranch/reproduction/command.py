"""`anabranch-lab reproduction`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from anabranch.reproduction import index
from anabranch.reproduction.data import Data
from anabranch.validate import TraceError, source


def reproduction(
    results: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="Folder of results pages and data: docs/results."),
    ],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="FILE", help="Write the page to FILE.")
    ] = None,
) -> None:
    """List every table, figure and claim of the four papers with our number and its verdict.

    Fails if a row has neither a verdict nor a reason, or if a results page has another number than
    its data.
    """
    data = Data(results)
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
