"""`anabranch-lab simulate`: runs a sweep of the simulator on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.commands import progress
from anabranch.commands.errors import one_line


def simulate(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Write the results to this folder.")
    ],
    scenarios: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCENARIO.toml...", help="Simulate the networks that these files describe."
        ),
    ],
    networks: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="Simulate each scenario on this number of random networks."
        ),
    ] = 1,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            help="Simulate each scenario on each network this number of times, each time "
            "with another seed.",
        ),
    ] = 1,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Run this number of simulations at a time, as far as memory allows. "
            "Default: one for each processor.",
        ),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            help="Choose where simulations run. local: on this machine; ray: on a Ray cluster."
        ),
    ] = "local",
    memory: Annotated[
        int,
        typer.Option(min=1, metavar="MIB", help="Reserve this memory for each simulation, in MiB."),
    ] = 1024,
    program: Annotated[
        str, typer.Option(help="Simulate with this program: the name or path of `anabranch`.")
    ] = "anabranch",
) -> None:
    """Simulate scenarios on several machines, as `anabranch sim sweep` does on one.

    If the command was interrupted, run it again: it continues where it stopped.
    """
    with one_line():
        from anabranch import sim

        plan = sim.Plan(folder, tuple(scenarios), networks, seeds, program)
        with progress.progress() as bars:
            bar = bars.add_task("runs", total=None)

            def on_run(name: str, done: sim.Done) -> None:
                bars.advance(bar)
                text = f"{name}: {done.record['downloads']} downloads, {done.record['took']:.0f} s"
                bars.console.print(text, markup=False, highlight=False)

            report = sim.sweep(
                plan, jobs=jobs, executor=executor, memory=memory << 20, on_run=on_run
            )
        machines = f"{len(report.nodes)} machines" if len(report.nodes) != 1 else "1 machine"
        print(
            f"{report.kept} results existed already, {report.done} simulations done on "
            f"{machines}, hash {report.hash}: {folder}"
        )
