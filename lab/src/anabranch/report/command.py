"""`anabranch-lab report`: results as a page that people read."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from anabranch.validate import TraceError


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Results of sweeps or evaluations.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="For report.html and an SVG of each figure.")
    ],
    document: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE.md", help="The same between marks in FILE.md."),
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

    try:
        require_matplotlib()
    except MissingExtraError as error:
        raise TraceError(str(error)) from error
    from anabranch.report import files, page
    from anabranch.report.collection import Collection

    collection = Collection.read(folders)
    files.write(page.build(collection, _command(folders, out, document), note), out, document)
    print(f"{len(collection)} results: {out / files.NAME}")


def _command(folders: list[Path], out: Path, document: Path | None) -> str:
    """The command with the last names of paths: where a machine keeps them is nobody's business."""
    parts = [
        "anabranch-lab",
        "report",
        *(path.resolve().name for path in folders),
        "--out",
        out.name,
    ]
    parts += [] if document is None else ["--markdown", document.name]
    return shlex.join(parts)
