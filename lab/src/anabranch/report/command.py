"""`anabranch-lab report`: results as a page for readers."""

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
            help="Read the results of `anabranch-lab sweep` or `evaluate` in these folders, or "
            "in files that the option --numbers of this command has written.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Write report.html and its figures (SVG) to this folder."),
    ],
    document: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            metavar="FILE.md",
            help="Also write the report into FILE.md, between the two comment lines that mark "
            "the place.",
        ),
    ] = None,
    numbers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Write the numbers of all results to FILE.jsonl, from which this command "
            "can make the report again.",
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Write a table with one row for each result."),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.tex",
            help="Write LaTeX tables (booktabs), one for the closed and one for the open world.",
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="Show all tables and figures of the CoMPS paper, also those for which there is "
            "no result.",
        ),
    ] = False,
    planned: Annotated[
        Path | None,
        typer.Option(
            metavar="SWEEP.toml",
            help="Also list the evaluations in SWEEP.toml that have no result.",
        ),
    ] = None,
    note: Annotated[
        str,
        typer.Option(
            help="Show this line at the top of the page, for example the name of the machine."
        ),
    ] = "",
) -> None:
    """Make an HTML page, figures, Markdown, CSV and LaTeX from results.

    The page needs no network and no scripts. The same results always give the same files. Results
    are identified by their settings, not by their file names. If the CoMPS paper has a number for
    the same settings, the page shows it next to our number. --paper adds the paper's other numbers.
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
            raise TraceError(f"--{option}: its name must end in {ending}", file=file)
    try:
        require_matplotlib()
    except MissingExtraError as error:
        raise TraceError(str(error)) from error
    from anabranch.report import export, files, page
    from anabranch.report.collection import Collection
    from anabranch.sweep import read

    # The path of the data does not matter, because the data are not read.
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
    """Returns the command that makes the report, with paths shortened to their last names."""
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
