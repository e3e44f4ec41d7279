"""`anabranch-lab`: the lab on the command line.

Exit code 0: success. 2: the input or an option is wrong; one line names it, and nothing is written.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from anabranch import __version__, commands, io, validate
from anabranch.defences.base import DefenceError
from anabranch.defences.command import defend
from anabranch.io.headers import End, end
from anabranch.io.parquet import Writer
from anabranch.outside import OutsideError
from anabranch.reproduction import reproduction
from anabranch.splitting import (
    DEFAULT_EVERY,
    DEFAULT_SCHEDULE,
    Delay,
    Split,
    SplitError,
    published_every,
    usual_mode,
)
from anabranch.traces import Traces
from anabranch.validate import TraceError, TraceWarning, source

app = typer.Typer(
    name="anabranch-lab",
    help="Measure what the observer of one path learns from a split session.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Form = StrEnum("Form", list(io.FORMATS))  # type: ignore[misc]  # mypy wants the names spelt out

Input = Annotated[Path, typer.Argument(metavar="IN", help="File or folder of traces to read.")]
InputForm = Annotated[
    Form | None, typer.Option("--from", help="Format of IN, if its name does not show it.")
]
Label = Annotated[str, typer.Option(help="Label for a capture, because captures have none.")]
Unmonitored = Annotated[
    bool, typer.Option("--unmonitored", help="Mark all labels of IN as unmonitored.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Let OUT replace an older file.")]
UnmonitoredY = Annotated[
    int | None,
    typer.Option("--unmonitored-y", metavar="Y", help="Number of the unmonitored pages in npz."),
]


def main() -> None:
    """Runs the command line; every expected error becomes one line and exit code 2."""
    warnings.showwarning = _warn
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="anabranch-lab", standalone_mode=False)
        if sys.stdout is not None:  # it may be closed from the start
            sys.stdout.flush()
    except typer.TyperException as error:
        _end(error.format_message())
    except (TraceError, SplitError, DefenceError, OutsideError) as error:
        _end(str(error))
    except OSError as error:
        # Errors of files name the file; what remains is our output, whose reader is gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _end(f"standard output: {error.strerror}")
    else:
        sys.exit(code if isinstance(code, int) else 0)


commands.register(app)


def _end(problem: str) -> NoReturn:
    print(f"anabranch-lab: {problem}".replace("\n", " "), file=sys.stderr)
    sys.exit(2)


def _warn(  # as `warnings.showwarning` is called
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Shows a warning of ours as a line, and a library's warning as Python does."""
    if issubclass(category, TraceWarning):
        text = f"anabranch-lab: warning: {message}".replace("\n", " ")
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    print(text, file=file or sys.stderr)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"anabranch-lab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


@app.command()
def convert(
    source_path: Input,
    target: Annotated[Path, typer.Argument(metavar="OUT", help="File or folder to write.")],
    form: InputForm = None,
    to: Annotated[Form | None, typer.Option(help="Format of OUT, if its name shows none.")] = None,
    label: Label = "",
    unmonitored: Unmonitored = False,
    unmonitored_y: UnmonitoredY = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Use only packets of this server from captures. Packets to it are the uplink.",
        ),
    ] = None,
    allow_single: Annotated[
        bool,
        typer.Option("--allow-single", help="Accept monitored labels that have only one load."),
    ] = False,
    replace: Replace = False,
) -> None:
    """Check traces and convert them to another format."""
    meaning = io.Meaning(label, not unmonitored, unmonitored_y, _server(server))
    traces = io.read(source_path, form, meaning)
    if not allow_single:
        with source(source_path):
            validate.labels(traces)
    io.refuse_source(target, source_path, form)
    io.refuse_existing(target, replace=replace)
    io.write(traces, target, to)
    print(f"{len(traces)} loads, {traces.times.size} packets: {target}")


def _server(text: str | None) -> End | None:
    try:
        return None if text is None else end(text)
    except ValueError as error:
        raise TraceError(f"--server: {error}") from error


@app.command()
def inspect(
    source_path: Input,
    form: InputForm = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a file of traces and print its contents."""
    facts = _described(io.read(source_path, form))
    if as_json:
        print(json.dumps(facts))
        return
    table = Table("what", "value", box=None, show_header=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _shown(value))
    Console().print(table)


@app.command()
def split(
    source_path: Input,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT.parquet", help="File to write. With --resplits: OUT.0.parquet and so on."
        ),
    ],
    schedule: Annotated[
        str,
        typer.Option(
            help="As in `anabranch split --schedule`. batched and hywf are from publications and "
            "need --mode independent."
        ),
    ] = DEFAULT_SCHEDULE,
    every: Annotated[
        str | None,
        typer.Option(
            help="Length of a run: 50p (packets), ~50p (mean), 50-70p, 100ms, ~100ms, 80-120ms, "
            "never."
        ),
    ] = None,
    paths: Annotated[int, typer.Option(help="Number of paths, 1 or more.")] = 3,
    mode: Annotated[
        str | None,
        typer.Option(
            help="follow or follow:20ms: an unmodified server answers on the path of the last "
            "packet; independent: a schedule for each direction (far end); together: one for both, "
            "which no program has. Default: follow, or the mode that the schedule needs."
        ),
    ] = None,
    draw: Annotated[
        str,
        typer.Option(
            help="When new probabilities are drawn: load (for each page load), session:20 (after "
            "20 loads), silence:1s."
        ),
    ] = "load",
    delay: Annotated[
        list[str] | None,
        typer.Option(
            metavar="S|UP/DOWN", help="Additional delay in seconds. Give it once for each path."
        ),
    ] = None,
    resplits: Annotated[int, typer.Option(help="Number of splits of each load.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 0,
    form: InputForm = None,
    replace: Replace = False,
) -> None:
    """Split traces over paths with the scheduler of `anabranch split`.

    Without --every the run length is that of the schedule (batched: 50-70p, hywf: ~20p), or the
    splitter's default.
    """
    delays = tuple(map(parse_delay, delay or []))
    every = every or published_every(schedule) or DEFAULT_EVERY
    mode = mode or usual_mode(schedule)
    plan = Split(schedule, every, paths, mode, delays, resplits, seed, draw)
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
    with ExitStack() as files:  # they get their names when all are complete
        for replica, file in enumerate(targets):
            with source(source_path):
                done = plan.split(traces, replica)
            files.enter_context(source(file))
            counters = done.counters is not None
            writer = files.enter_context(Writer(file, done.facts, counters=counters))
            writer.add(done)
            writer.close()  # the number of open files is limited
    print(f"{len(traces)} loads, {traces.times.size} packets, {resplits} splits: {plan}")


app.command()(defend)
app.command()(reproduction)


def _described(traces: Traces) -> dict[str, Any]:
    lengths = traces.lengths
    counts = np.bincount(traces.label, minlength=len(traces.names))
    return {
        "loads": len(traces),
        "packets": int(lengths.sum()),
        "packets_per_load": _spread(lengths),
        "labels": len(traces.names),
        "loads_per_label": _spread(counts),
        "monitored_loads": int(traces.monitored.sum()),
        "runs": np.unique(traces.run).tolist(),
        "seconds": None if traces.timeless else float(traces.times.max(initial=0.0)),
        "up_share": float((traces.sizes > 0).mean()) if traces.sizes.size else None,
        "sizes": traces.facts.size,
        "paths": _paths(traces),
        "schedule": traces.facts.schedule,
        "seed": traces.facts.seed,
    }


def _paths(traces: Traces) -> dict[str, int] | None:
    """Returns the number of packets on each path, by its name."""
    if traces.paths is None:
        return None
    numbers, counts = np.unique(traces.paths, return_counts=True)
    names = dict(enumerate(traces.facts.paths))
    pairs = zip(numbers.tolist(), counts.tolist(), strict=True)
    return {names.get(number, str(number)): count for number, count in pairs}


def _spread(values: Any) -> dict[str, float] | None:
    if values.size == 0:
        return None
    return {
        "least": int(values.min()),
        "median": float(np.median(values)),
        "most": int(values.max()),
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value is None else str(value)


def parse_delay(text: str) -> Delay:
    """Parses `0.02`, or `0/0.02` (up and down)."""
    try:
        up, *down = (float(part) for part in text.split("/"))
    except ValueError:
        raise SplitError(
            f"'{text}' is not a delay: expected seconds (0.02) or up/down (0/0.02)"
        ) from None
    if len(down) > 1:
        raise SplitError(f"'{text}' is not a delay: expected seconds (0.02) or up/down (0/0.02)")
    return (up, down[0]) if down else up
