"""`anabranch-lab sweep`: runs all evaluations of a list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch import display
from anabranch.commands import progress
from anabranch.commands.errors import one_line
from anabranch.splitting import warn_together
from anabranch.validate import TraceError, source


def sweep(
    listing: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="Run the evaluations that this file lists.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="IN",
            help="Use these traces for evaluations in SPEC.toml that name no traces. The "
            "path is relative to the current folder.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Write the results to this folder. Default: SPEC.results.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Run this number of evaluations at a time, as far as memory allows. "
            "Default: one for each processor."
        ),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            help="Choose where evaluations run. local: on this machine; ray: on a Ray cluster."
        ),
    ] = "local",
    known: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Skip evaluations whose results are in this file, which `anabranch-lab report "
            "--numbers` has written.",
        ),
    ] = None,
) -> None:
    """Run all evaluations of a list.

    If the command was interrupted, run it again: it continues where it stopped.
    """
    with one_line():
        from anabranch import results
        from anabranch import sweep as lab

        units = lab.read(listing, data)
        warn_together(sum(unit.spec.is_simulation_only for unit in units), len(units))
        target = folder or listing.with_suffix(".results")
        names = set()
        if known is not None:
            with source(known):
                names = {Path(file).stem for file, _ in results.lines(known)}
        with progress.units() as bar:
            report = lab.sweep(
                units,
                target,
                jobs=jobs,
                executor=executor,
                known=names,
                on_unit=bar.advance,
                on_start=bar.start,
            )
        display.show_report(report)
        print(
            f"{report.kept} results existed already, {report.done} evaluations done, "
            f"{len(report.failed)} failed: {target}"
        )
        if report.failed:
            unit, why = report.failed[0]
            raise TraceError(f"{unit}: {why}")
