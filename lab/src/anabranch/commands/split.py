"""`anabranch-lab split`: splits traces over paths."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from anabranch import io
from anabranch.commands.groups import grouped
from anabranch.commands.options import Input, InputForm, Replace, Seed
from anabranch.io.parquet import Writer
from anabranch.splitting import (
    DEFAULT_EVERY,
    DEFAULT_SCHEDULE,
    Split,
    parse_delay,
    published_every,
    usual_mode,
)
from anabranch.validate import TraceError, source


@dataclass(frozen=True, slots=True)
class Splitting:
    """Options of the split."""

    PANEL: ClassVar[str] = "Split"

    schedule: Annotated[
        str,
        typer.Option(
            help="Choose the path of each run (consecutive packets) by this rule. "
            "`anabranch split --help` lists the rules. batched and hywf need --mode "
            "independent."
        ),
    ] = DEFAULT_SCHEDULE
    every: Annotated[
        str | None,
        typer.Option(
            help="Set the length of a run (consecutive packets on one path): 50p "
            "(packets), ~50p (on average), 50-70p, 100ms, ~100ms, 80-120ms, never."
        ),
    ] = None
    paths: Annotated[int, typer.Option(help="Split over this number of paths, 1 or more.")] = 3
    mode: Annotated[
        str | None,
        typer.Option(
            help="Set how packets from the client and packets from the server get their "
            "paths. follow or follow:20ms: --schedule splits only the client's "
            "packets; the server follows each of these packets to its path 20 ms "
            "later, as an unmodified server does. independent: each direction has a "
            "schedule of its own, as with `anabranch merge`. together: both "
            "directions share one schedule, which no real program can do. Default: "
            "follow, or the mode that --schedule needs."
        ),
    ] = None
    draw: Annotated[
        str,
        typer.Option(
            help="Draw new random probabilities of the paths at these times: load (for "
            "each page load), session:20 (after 20 loads), silence:1s (after a pause "
            "of 1 s)."
        ),
    ] = "load"
    delay: Annotated[
        list[str] | None,
        typer.Option(
            metavar="S|UP/DOWN",
            help="Add a delay to a path: S seconds in both directions, or UP seconds to "
            "the server and DOWN seconds to the client. Give this option once for "
            "each path.",
        ),
    ] = None
    resplits: Annotated[
        int,
        typer.Option(help="Split each load this number of times, with different random choices."),
    ] = 1
    seed: Seed = 0

    def plan(self) -> Split:
        """Returns the split that the options describe.

        Raises:
            SplitError: if an option is wrong.
        """
        delays = tuple(map(parse_delay, self.delay or []))
        every = self.every or published_every(self.schedule) or DEFAULT_EVERY
        mode = self.mode or usual_mode(self.schedule)
        return Split(
            self.schedule, every, self.paths, mode, delays, self.resplits, self.seed, self.draw
        )


@grouped
def split(
    source_path: Input,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT.parquet",
            help="Write this file. With --resplits: OUT.0.parquet, OUT.1.parquet and so on.",
        ),
    ],
    splitting: Splitting,
    form: InputForm = None,
    replace: Replace = False,
) -> None:
    """Split traces over paths with the scheduler of `anabranch split`.

    Without --every, the length of a run (consecutive packets on one path) is that of the
    schedule (batched: 50-70p, hywf: ~20p) or the default of `anabranch split`.
    """
    plan = splitting.plan()
    resplits = plan.resplits
    if target.suffix != ".parquet":
        raise TraceError(
            "OUT: its name must end in .parquet; `convert` makes other formats", file=target
        )
    single = resplits == 1
    targets = [target if single else target.with_suffix(f".{k}.parquet") for k in range(resplits)]
    for file in targets:
        io.refuse_source(file, source_path, form)
        io.refuse_existing(file, replace=replace)
    traces = io.read(source_path, form)
    with ExitStack() as files:  # files are renamed when all are complete
        for replica, file in enumerate(targets):
            with source(source_path):
                done = plan.split(traces, replica)
            files.enter_context(source(file))
            writer = Writer(file, done.facts, optional=done.optional_columns)
            writer = files.enter_context(writer)
            writer.add(done)
            writer.close()  # the number of open files is limited
    print(f"{len(traces)} loads, {traces.times.size} packets, {resplits} splits: {plan}")
