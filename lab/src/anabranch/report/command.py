"""`anabranch-lab report`: results as a page that people read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
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
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="A row for each result, with settings.")
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(metavar="FILE.tex", help="A table for each world (booktabs).")
    ] = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="All tables and figures of the CoMPS paper; what has no result says so."
        ),
    ] = False,
    planned: Annotated[
        Path | None,
        typer.Option(
            metavar="SWEEP.toml", help="Says which evaluations of this sweep have no result yet."
        ),
    ] = None,
    note: Annotated[
        str, typer.Option(help="A line to stand at the top, such as the machine.")
    ] = "",
) -> None:
    """Makes one HTML page, figures, Markdown, CSV and LaTeX of results.

    The page needs no network and no scripts. Equal results make equal files. Results are found by
    their settings, whatever their runs and files are called. The page has what there are results
    of, beside the CoMPS paper's numbers where it has any of the same; with --paper it has all of
    the paper's places.
    """
    from anabranch.nets import MissingExtraError
    from anabranch.report import require_matplotlib

    endings = (
        ("markdown", document, ".md"),
        ("numbers", numbers, ".jsonl"),
        ("csv", csv, ".csv"),
        ("latex", latex, ".tex"),
    )
    for option, file, ending in endings:
        if file is not None and file.suffix != ending:
            raise TraceError(f"--{option}: its name has to end in {ending}", file=file)
    try:
        require_matplotlib()
    except MissingExtraError as error:
        raise TraceError(str(error)) from error
    from anabranch.report import export, files, page
    from anabranch.report.collection import Collection
    from anabranch.sweep import read

    # Where the data are does not matter: nothing is read of them.
    units = [] if planned is None else read(planned, Path("data"))
    asked = [unit.spec for unit in units]
    collection = Collection.read(sources, paper=paper, planned=asked)
    options = {"markdown": document, "numbers": numbers, "csv": csv, "latex": latex}
    options |= {"planned": planned}
    built = page.build(collection, _command(sources, out, options, paper=paper), note)
    made = ((numbers, Collection.lines), (csv, export.csv), (latex, export.latex))
    others = {file: make(collection) for file, make in made if file is not None}
    files.write(built, out, document, others)
    print(f"{len(collection)} results: {out / files.NAME}")


def _command(
    sources: list[Path], out: Path, options: Mapping[str, Path | None], *, paper: bool
) -> str:
    """The command with the last names of paths: where a machine keeps them is nobody's business."""
    parts = [
        "anabranch-lab",
        "report",
        *(path.resolve().name for path in sources),
        "--out",
        out.name,
    ]
    for name, file in options.items():
        parts += [] if file is None else [f"--{name}", file.name]
    parts += ["--paper"] if paper else []
    return shlex.join(parts)
