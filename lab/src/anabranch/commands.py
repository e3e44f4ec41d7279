"""`anabranch-lab evaluate` and `anabranch-lab sweep`.

What they need is imported when they run: other commands start faster without scikit-learn.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from anabranch.compare import compare
from anabranch.report.command import report
from anabranch.validate import TraceError, source

if TYPE_CHECKING:
    from anabranch.attacks import EpochReport
    from anabranch.evaluate.spec import Spec
    from anabranch.results import Result
    from anabranch.sweep.listing import Unit
    from anabranch.sweep.run import Report


def register(app: typer.Typer) -> None:
    """Adds both commands, and those that take their results."""
    app.command()(evaluate)
    app.command()(sweep)
    app.command()(compare)
    app.command()(report)


def evaluate(
    data: Annotated[Path, typer.Argument(metavar="IN", help="A file or folder of traces.")],
    form: Annotated[
        str | None, typer.Option("--from", help="Format of IN, if it does not show.")
    ] = None,
    unmonitored_y: Annotated[
        int | None,
        typer.Option("--unmonitored-y", metavar="Y", help="Unmonitored pages in npz."),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="As `split` has it; without one, traces stay whole.")
    ] = None,
    every: Annotated[str | None, typer.Option(help="Length of a run, as `split` has it.")] = None,
    paths: Annotated[int, typer.Option(help="How many paths, from 1.")] = 3,
    mode: Annotated[
        str, typer.Option(help="together, follow, follow:20ms or independent.")
    ] = "together",
    draw: Annotated[
        str, typer.Option(help="Chances for each load, session:20 (loads) or silence:1s.")
    ] = "load",
    delay: Annotated[
        list[str] | None, typer.Option(metavar="S|UP/DOWN", help="As `split` has it.")
    ] = None,
    defence: Annotated[
        str | None,
        typer.Option(help="Padding before the split, as `defend` has it."),
    ] = None,
    path_defence: Annotated[
        str | None, typer.Option(help="Padding of each path by itself, behind the split.")
    ] = None,
    observer: Annotated[
        str,
        typer.Option(help="random, largest, merged (all paths) or merged:K; each maybe +counter."),
    ] = "random",
    attack: Annotated[
        str,
        typer.Option(
            help="k-fp, k-fp-paths, cumul, p-fp, df, tik-tok, var-cnn, rf, rocket, forest or size."
        ),
    ] = "k-fp",
    parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of the attack.")
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="honest, or paper: what the CoMPS evaluation did.")
    ] = "honest",
    folds: Annotated[int, typer.Option(help="Of the paper's protocol, 1 to 10.")] = 1,
    world: Annotated[str, typer.Option(help="closed or open.")] = "closed",
    pages: Annotated[int | None, typer.Option(help="Pages used.")] = None,
    monitored: Annotated[int | None, typer.Option(help="Of these monitored, if open.")] = None,
    loads: Annotated[int | None, typer.Option(help="Loads a page that train.")] = None,
    validation_loads: Annotated[int | None, typer.Option(help="Loads a page that choose.")] = None,
    test_loads: Annotated[int | None, typer.Option(help="Loads a page that test.")] = None,
    test_run: Annotated[int | None, typer.Option(help="The run that tests.")] = None,
    validation_run: Annotated[int | None, typer.Option(help="The run that chooses.")] = None,
    resplits: Annotated[int, typer.Option(help="Splits of each training load.")] = 1,
    merged: Annotated[bool, typer.Option("--merged", help="Whole traces train too.")] = False,
    r: Annotated[float, typer.Option(help="Unmonitored loads to a monitored one.")] = 20.0,
    bootstrap: Annotated[int, typer.Option(help="Resamples of the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of all draws.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Keeps the result; predictions in FILE.parquet."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Let --out replace a result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Numbers as one JSON object.")] = False,
) -> None:
    """Trains an attack on what an observer sees, and measures what it finds out."""
    settings = {key: value for key, value in locals().items() if key not in _NOT_SETTINGS}
    with _one_line():
        from anabranch import evaluate as lab
        from anabranch import io, results

        settings |= {"delays": _delays(delay or []), "parameters": _parameters(parameter or [])}
        spec = lab.Spec.from_dict(settings)
        _refuse_idle(spec)
        if form is not None and form not in io.FORMATS:
            raise TraceError(f"--from: there are {', '.join(io.FORMATS)}, not '{form}'")
        _check_out(out, data, form, replace=replace)
        traces = io.read(data, form, io.Meaning(unmonitored=unmonitored_y))
        _refuse_idle(spec, recorded=traces.paths is not None)
        with source(data), _epochs() as on_epoch:
            result = lab.evaluate(spec, traces, results.digest(data, form), on_epoch)
        if out is not None:
            results.save(result, out)
    if as_json:
        print(json.dumps(result.metrics))
    else:
        _show(result)


def sweep(
    listing: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="What to evaluate.")],
    data: Annotated[
        Path | None,
        typer.Option(metavar="IN", help="Traces of the runs that do not say, from this folder."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Of results; SPEC.results if not given."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Units at a time, memory allowing; one a processor if not given."),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local (processes of this machine) or ray (a cluster).")
    ] = "local",
) -> None:
    """Evaluates all that a file lists; started again, it goes on where it was stopped."""
    with _one_line():
        from anabranch import sweep as lab

        units = lab.read(listing, data)
        target = folder or listing.with_suffix(".results")
        with _bar() as bar:
            report = lab.sweep(
                units,
                target,
                jobs=jobs,
                executor=executor,
                on_unit=bar.advance,
                on_start=bar.start,
            )
        _show_report(report)
        print(f"{report.kept} kept, {report.done} done, {len(report.failed)} failed: {target}")
        if report.failed:
            unit, why = report.failed[0]
            raise TraceError(f"{unit}: {why}")


def _refuse_idle(spec: Spec, recorded: bool | None = None) -> None:
    for name, why in spec.idle(recorded):
        raise TraceError(f"--{_OPTIONS.get(name, name).replace('_', '-')}: {why}")


_OPTIONS = {"delays": "delay"}
"""Settings whose options are called otherwise: this one is given once for each path."""

_NOT_SETTINGS = (
    "data",
    "form",
    "unmonitored_y",
    "delay",
    "parameter",
    "out",
    "replace",
    "as_json",
)


@contextmanager
def _one_line() -> Iterator[None]:
    """Every foreseeable error as the one that the command line reports and exits with code 2."""
    from anabranch.evaluate import ERRORS

    try:
        yield
    except TraceError:
        raise
    except ERRORS as error:
        raise TraceError(str(error)) from error
    except MemoryError as error:
        raise TraceError(f"there is not enough memory for that: {error}") from error


def _delays(texts: list[str]) -> list[Any]:
    from anabranch.cli import parse_delay

    return [parse_delay(text) for text in texts]


def _parameters(texts: list[str]) -> dict[str, Any]:
    """`NAME=VALUE`: a number, true or false, else text."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise TraceError(f"--parameter '{text}': write NAME=VALUE")
        if name in found:
            raise TraceError(f"--parameter '{text}': {name} is given twice")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):  # no JSON, or longer or deeper than any number
            found[name] = value
    return found


def _check_out(out: Path | None, data: Path, form: str | None, *, replace: bool) -> None:
    """Refuses a target that could not be written after an hour of work, or is there already."""
    if out is None:
        return
    if out.suffix != ".json":
        raise TraceError("--out: the name of a result ends in .json", file=out)
    from anabranch import io

    rows = out.with_suffix(".parquet")
    with source(out):
        if not out.parent.is_dir():
            raise TraceError("the folder that it should stand in does not exist")
        for file in (out, rows):
            if file.is_dir() or not os.access(out.parent, os.W_OK):
                raise TraceError("nothing can be written there", file=file)
            io.refuse_source(file, data, form)
        if rows.exists() and not out.exists():
            raise TraceError("--out: predictions would replace a file not theirs", file=rows)
        if out.exists() and not replace:
            raise TraceError("--out: it exists: choose another place, or add --replace", file=out)


@contextmanager
def _epochs() -> Iterator[Any]:
    """A bar for the epochs of a network; none where there are no epochs or no terminal."""
    with _progress() as progress:
        tasks: dict[tuple[str, int], Any] = {}

        def on_epoch(report: EpochReport) -> None:
            key = (report.member, report.epochs)
            if report.epoch == 1 or key not in tasks:
                tasks[key] = progress.add_task(report.member, total=report.epochs)
            accuracy = report.validation_accuracy
            known = "" if accuracy is None else f", validation {accuracy:.1%}"
            said = f"{report.member}: loss {report.loss:.3f}{known}"
            progress.update(tasks[key], completed=report.epoch, description=said)

        yield on_epoch


@contextmanager
def _bar() -> Iterator[_Bar]:
    with _progress() as progress:
        yield _Bar(progress)


class _Bar:
    """One bar for all units, and a line for each where there is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("units", total=None)

    def start(self, left: int, at_once: int) -> None:
        said = f"{left} units, {at_once} at a time"
        self.progress.update(self.task, total=left, description=said)
        self.progress.advance(self.task, 0)  # the clock of the time left starts here

    def advance(self, unit: Unit, outcome: Result | str) -> None:
        self.progress.advance(self.task)
        said = outcome if isinstance(outcome, str) else _headline(outcome)
        self.progress.console.print(f"{unit}: {said}", markup=False, highlight=False)


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns,
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        # Units take minutes: by the usual 30 s there would never be two to tell the speed by.
        speed_estimate_period=1e9,
    )


def _headline(result: Result) -> str:
    name = "accuracy" if result.spec.world == "closed" else "r_precision"
    return (
        f"{name.replace('_', '-')} {_percent(result.metrics[name])}, {result.took['cpu_s']:.0f} s"
    )


_NUMBERS = {"accuracy": "accuracy", "recall": "recall", "r_precision": "r-precision", "f1": "F1"}


def _show_report(report: Report) -> None:
    """A row for each unit; settings that tell units of one run apart, numbers that any has."""
    from anabranch import results

    rows = [(unit, results.load(file).metrics) for unit, file in report.files]
    shown = [name for name in _NUMBERS if any(name in metrics for _, metrics in rows)]
    settings = _varied([unit for unit, _ in rows])
    table = Table("run", *settings, *(f"{_NUMBERS[name]} %" for name in shown), box=None)
    for unit, metrics in rows:
        values = (str(getattr(unit.spec, name)) for name in settings)
        numbers = [_short(metrics[name]) if name in metrics else "" for name in shown]
        table.add_row(unit.name, *values, *numbers)
    if rows:
        # A file has no width: nothing is folded there.
        Console(width=None if sys.stdout.isatty() else 200).print(table)


def _varied(units: list[Unit]) -> list[str]:
    """Settings that are not the same in all units of some run: its name does not tell them."""
    seen: dict[str, dict[str, set[str]]] = {}
    for unit in units:
        for name, value in unit.spec.to_dict().items():
            seen.setdefault(name, {}).setdefault(unit.name, set()).add(repr(value))
    return [name for name, runs in seen.items() if any(len(values) > 1 for values in runs.values())]


def _show(result: Result) -> None:
    from anabranch import metrics, results

    table = Table("what", "value", "95 % interval by page", box=None)
    for name, estimate in results.estimates(result.metrics):
        table.add_row(name.replace("_", " "), _number(estimate["value"]), _interval(estimate))
    for part in result.metrics["by_share"]:
        shares = f"{part['least_share']:.0%} to {part['greatest_share']:.0%} seen"
        estimate = part["accuracy"]
        table.add_row(f"  {shares}", _number(estimate["value"]), _interval(estimate))
    print(f"{result.spec.told(result.facts['recorded_split'])}; {result.facts['division']}")
    Console().print(table)
    if result.spec.world == "closed":
        pages = result.facts["pages"]
        print(f"guessing among {pages} pages recognises {1 / pages:.1%}")
    unseen = result.metrics["unseen"]
    print(f"{len(result.outcomes)} predictions, {unseen} of which saw nothing", end="; ")
    print(f"{result.took['wall_s']:.0f} s, {result.took['cpu_s']:.0f} s of the processor")
    for fold in result.facts["folds"]:
        if fold["overhead"] is not None:
            print(_cost(fold["overhead"]))
            break  # the folds differ in which unmonitored pages test
    if result.spec.world == "open":
        print(metrics.resolution(result.metrics, unseen=result.spec.protocol == "honest"))


def _cost(overhead: dict[str, Any]) -> str:
    """What padding adds to the test loads."""
    bandwidth, time = _number(overhead["bandwidth"]), _number(overhead["time"])
    return f"padding adds {bandwidth} bytes and {time} time to {overhead['loads']} test loads"


def _percent(estimate: dict[str, float | None]) -> str:
    return f"{_number(estimate['value'])} ({_interval(estimate)})"


def _short(estimate: dict[str, float | None]) -> str:
    return f"{_percent(estimate)}".replace("%", "").replace(" to ", "-")


def _interval(estimate: dict[str, float | None]) -> str:
    return f"{_number(estimate['low'])} to {_number(estimate['high'])}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
