"""`anabranch-lab covertness`: how well classifiers distinguish a transport from a browser."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.metrics.bootstrap import MOST_RESAMPLES
from anabranch.validate import TraceError

if TYPE_CHECKING:
    from anabranch.covertness.judge import Judgement


def covertness(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Read the captures that the file manifest.jsonl in this folder lists.",
        ),
    ],
    document: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            metavar="FILE.md",
            help="Write the results into FILE.md, between the two comment lines that mark the "
            "place.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="Write all numbers to this file, which is replaced."
        ),
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_RESAMPLES,
            help="Compute the confidence intervals from this number of bootstrap resamples "
            "of the web sites.",
        ),
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Use this seed for all random choices.")] = 0,
    detectors: Annotated[
        bool,
        typer.Option(
            "--detectors",
            help="Run only the detectors with fixed rules, which need no captures of a browser.",
        ),
    ] = False,
) -> None:
    """Test whether captures of a transport can be distinguished from a browser's.

    The tests are detectors with fixed rules, distances between distributions, and a random forest
    (a classifier). The captures of the browser are divided into two equal sets, real-a and real-b.
    If the forest distinguishes these two sets from each other, the measurement has a fault.
    docs/guide/camouflage.md describes how captures are made.
    """
    for option, file, ending in (("markdown", document, ".md"), ("out", out, ".json")):
        if file is not None and file.suffix != ending:
            raise TraceError(f"--{option}: its name must end in {ending}", file=file)
    if detectors and document is not None:
        raise TraceError("--detectors: it makes no page; leave out --markdown")
    from anabranch.commands.errors import one_line
    from anabranch.commands.progress import progress
    from anabranch.covertness import judge, manifest, page

    with one_line(), progress() as bar:
        entries = manifest.read(folder)
        task = bar.add_task("captures", total=len(entries))
        groups = judge.collect(entries, lambda: bar.advance(task))
        if detectors:
            found = judge.Judgement(groups, judge.hits(groups), [], [], [])
            _write(found, "", None, out)
            print("\n".join(page.detectors(found)))
            return
        task = bar.add_task("classes", total=len(groups) - 1)

        def begun(name: str) -> None:
            bar.update(task, description=name)
            bar.advance(task)

        found = judge.judge(groups, bootstrap, seed, begun)
        command = "make covertness"
        rows = None if out is None else out.name
        _write(found, page.document(found, command, rows), document, out)
    for line in page.findings(found):
        print(line.replace("**", ""))


def _write(found: Judgement, text: str, document: Path | None, out: Path | None) -> None:
    from anabranch.covertness.page import BEGIN, END
    from anabranch.io import draft
    from anabranch.report import markdown
    from anabranch.validate import source

    texts = []
    if document is not None:
        with source(document):
            old = document.read_text("utf-8") if document.is_file() else None
            texts.append((document, markdown.within(old, text, BEGIN, END)))
    if out is not None:
        texts.append((out, json.dumps(_numbers(found), indent=1) + "\n"))
    for file, content in texts:
        with source(file), draft.file(file) as target:
            target.write_text(content, "utf-8")
            target.chmod(0o644)  # results are for publication, unlike captures


def _numbers(found: Judgement) -> dict[str, Any]:
    """Returns all numbers of a judgement, grouped by kind."""
    from anabranch.covertness.page import captures

    return {
        "captures": captures(found),
        "hits": [asdict(each) for each in found.hits],
        "told": [asdict(each) for each in found.scores],
        "distances": [asdict(each) for each in found.distances],
        "requests": [asdict(each) for each in found.requests],
    }
