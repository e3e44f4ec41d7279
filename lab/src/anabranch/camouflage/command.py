"""`anabranch-lab camouflage`: sites that attacks recognise through pluggable transports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.camouflage.attacks import ATTACKS
from anabranch.validate import TraceError


def camouflage(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Read the traces of page loads in this folder, which has one file for "
            "each kind of client. Write the results to its file results.jsonl.",
        ),
    ],
    captures: Annotated[
        Path | None,
        typer.Option(
            metavar="CAPTURES",
            help="First convert the captures in this folder, which "
            "bench/camouflage_fingerprinting.py made, to traces in FOLDER. Older traces are "
            "replaced.",
        ),
    ] = None,
    document: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            metavar="FILE.md",
            help="Write the tables into FILE.md, between the two comment lines that mark the "
            "place.",
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(help=f"Run this attack: {', '.join(ATTACKS)} (repeatable). Default: all."),
    ] = None,
) -> None:
    """Run attacks on page loads through pluggable transports.

    For each kind of load, an attack is trained up to three times: on loads of the same kind, on
    loads through the same tunnel without a transport, and on loads whose transport hides data in
    other files. The classifier of StegoTorus' paper runs as well. If the command was interrupted,
    run it again: it continues where it stopped.
    """
    from anabranch.camouflage import captures as captured
    from anabranch.camouflage import judge, page
    from anabranch.commands.errors import one_line
    from anabranch.commands.progress import progress

    if document is not None and document.suffix != ".md":
        raise TraceError("--markdown: its name must end in .md", file=document)
    attacks = attack or list(ATTACKS)
    for name in attacks:
        if name not in ATTACKS:
            raise TraceError(f"--attack: '{name}' is unknown: choose one of {', '.join(ATTACKS)}")
    with one_line(), progress() as bar:
        if captures is not None:
            captured.write(captures, folder)
        total = len(list(judge.tasks(captured.kinds(folder), attacks)))
        task = bar.add_task("evaluations", total=total)

        def begun(each: judge.Task) -> None:
            bar.update(task, description=f"{each.attack or each.measure} {each.tested}", advance=1)

        found = judge.judge(folder, attacks, begun)
        if document is not None:
            _write(page.document(folder, found), document)
    print(f"{len(found)} results: {folder / judge.RESULTS}")


def _write(text: str, document: Path) -> None:
    from anabranch.camouflage.page import BEGIN, END
    from anabranch.io import draft
    from anabranch.report import markdown
    from anabranch.validate import source

    with source(document):
        old = document.read_text("utf-8") if document.is_file() else None
        content = markdown.within(old, text, BEGIN, END)
        with draft.file(document) as target:
            target.write_text(content, "utf-8")
            target.chmod(0o644)  # results are for publication, unlike traces
