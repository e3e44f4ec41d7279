"""`anabranch-lab simulate`: runs a sweep of the simulator on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.commands import progress
from anabranch.commands.errors import one_line


def simulate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for results.")],
    scenarios: Annotated[
        list[Path],
        typer.Argument(metavar="SCENARIO.toml...", help="Scenarios of `anabranch sim`."),
    ],
    networks: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of random networks for each scenario.")
    ] = 1,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of seeds for each network.")
    ] = 1,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Simulations at a time, as far as memory allows. Default: one per processor.",
        ),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local: processes of this machine; ray: a cluster.")
    ] = "local",
    memory: Annotated[
        int, typer.Option(min=1, metavar="MIB", help="Memory that a simulation needs, in MiB.")
    ] = 1024,
    program: Annotated[
        str, typer.Option(help="The program `anabranch`, by name or path.")
    ] = "anabranch",
) -> None:
    """Simulate scenarios on several machines, as `anabranch sim sweep` does on one.

    An interrupted command continues where it stopped when it is started again.
    """
    with one_line():
        from anabranch import sim

        plan = sim.Plan(folder, tuple(scenarios), networks, seeds, program)
        with progress.progress() as bars:
            bar = bars.add_task("runs", total=None)

            def on_run(name: str, done: sim.Done) -> None:
                bars.advance(bar)
                said = f"{name}: {done.record['downloads']} downloads, {done.record['took']:.0f} s"
                bars.console.print(said, markup=False, highlight=False)

            report = sim.sweep(
                plan, jobs=jobs, executor=executor, memory=memory << 20, on_run=on_run
            )
        machines = f"{len(report.nodes)} machines" if len(report.nodes) != 1 else "1 machine"
        print(f"{report.kept} kept, {report.done} done on {machines}, hash {report.hash}: {folder}")
