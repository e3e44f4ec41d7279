"""`anabranch-lab report`: results as a page that people read."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from anabranch.validate import TraceError


def report(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER|FILE.jsonl...",
            help="Results of sweeps or evaluations, or the numbers that --numbers kept of them.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="For report.html and an SVG of each figure.")
    ],
    document: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE.md", help="The same between marks in FILE.md."),
    ] = None,
    numbers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl", help="The numbers of all: `report` makes the same of them again."
        ),
    ] = None,
    note: Annotated[
        str, typer.Option(help="A line to stand at the top, such as the machine.")
    ] = "",
) -> None:
    """Makes one HTML page, figures and Markdown of results, beside the CoMPS paper's numbers.

    The page needs no network and no scripts. Equal results make equal files. Results are found by
    their settings, whatever their runs and files are called; what there is no result of is shown
    as not run.
    """
    from anabranch.nets import MissingExtraError
    from anabranch.report import require_matplotlib

    for option, file, ending in (("markdown", document, ".md"), ("numbers", numbers, ".jsonl")):
        if file is not None and file.suffix != ending:
            raise TraceError(f"--{option}: its name has to end in {ending}", file=file)
    try:
        require_matplotlib()
    except MissingExtraError as error:
        raise TraceError(str(error)) from error
    from anabranch.report import files, page
    from anabranch.report.collection import Collection

    collection = Collection.read(sources)
    built = page.build(collection, _command(sources, out, document, numbers), note)
    others = {} if numbers is None else {numbers: collection.lines()}
    files.write(built, out, document, others)
    print(f"{len(collection)} results: {out / files.NAME}")


def _command(sources: list[Path], out: Path, document: Path | None, numbers: Path | None) -> str:
    """The command with the last names of paths: where a machine keeps them is nobody's business."""
    parts = [
        "anabranch-lab",
        "report",
        *(path.resolve().name for path in sources),
        "--out",
        out.name,
    ]
    parts += [] if document is None else ["--markdown", document.name]
    parts += [] if numbers is None else ["--numbers", numbers.name]
    return shlex.join(parts)
