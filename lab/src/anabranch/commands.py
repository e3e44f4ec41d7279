"""`anabranch-lab evaluate` and `anabranch-lab sweep`.

Their imports are inside the functions: other commands start faster without scikit-learn.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as replace_in
from pathlib import Path
from time import monotonic
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

from anabranch import shown
from anabranch.camouflage.command import camouflage
from anabranch.compare import compare
from anabranch.covertness.command import covertness
from anabranch.doctor import doctor
from anabranch.report.command import report
from anabranch.validate import TraceError, source

if TYPE_CHECKING:
    from anabranch.attacks import EpochReport
    from anabranch.evaluate.spec import Spec
    from anabranch.results import Result
    from anabranch.sweep.listing import Unit
    from anabranch.traces import Traces


def register(app: typer.Typer) -> None:
    """Adds both commands, and the commands that read their results."""
    app.command()(evaluate)
    app.command()(sweep)
    app.command()(simulate)
    app.command()(compare)
    app.command()(report)
    app.command()(doctor)
    app.command()(covertness)
    app.command()(camouflage)


def evaluate(
    data: Annotated[Path, typer.Argument(metavar="IN", help="A file or folder of traces.")],
    form: Annotated[
        str | None, typer.Option("--from", help="Format of IN, if its name does not show it.")
    ] = None,
    unmonitored_y: Annotated[
        int | None,
        typer.Option(
            "--unmonitored-y", metavar="Y", help="Number of the unmonitored pages in an npz file."
        ),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="Schedule, as in `split`. Without it traces stay unsplit.")
    ] = None,
    every: Annotated[str | None, typer.Option(help="Length of a run, as in `split`.")] = None,
    paths: Annotated[int, typer.Option(help="Number of paths, 1 or more.")] = 3,
    mode: Annotated[
        str | None,
        typer.Option(
            help="follow or follow:20ms: an unmodified server; independent: a far end; together: "
            "one schedule for both directions, which no program has. Default: follow, or the mode "
            "that the schedule or --path-defence needs."
        ),
    ] = None,
    draw: Annotated[
        str,
        typer.Option(
            help="When new probabilities are drawn: load (for each page load), session:20 (after "
            "20 loads) or silence:1s."
        ),
    ] = "load",
    delay: Annotated[
        list[str] | None,
        typer.Option(metavar="S|UP/DOWN", help="Delay of each path, as in `split`."),
    ] = None,
    defence: Annotated[
        str | None,
        typer.Option(help="Padding before the split, as in `defend`."),
    ] = None,
    path_defence: Annotated[
        str | None, typer.Option(help="Padding of each path, after the split.")
    ] = None,
    observer: Annotated[
        str,
        typer.Option(
            help="What the attack sees: random (one path), largest (the path with most packets), "
            "any (an attack on each path; one that names the page is enough), merged (all paths) "
            "or merged:K (K paths). Append +counter for an unencrypted counter, and to the first "
            "two +earlier for earlier loads (with --draw session:N)."
        ),
    ] = "random",
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="Attack: k-fp, k-fp-paths, cumul, p-fp, df, tik-tok, var-cnn, rf, minirocket (in "
            "results: rocket), forest or size; FILE.py:Class; or a name from an installed package. "
            "Repeat it to compare the first attack with each other one on the same loads. "
            "Default: k-fp."
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ATTACK.]NAME=VALUE",
            help="Parameter of the attack. With several attacks, name the attack.",
        ),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="honest; or paper: as in the CoMPS paper.")
    ] = "honest",
    folds: Annotated[int, typer.Option(help="Folds of the paper's protocol, 1 to 10.")] = 1,
    world: Annotated[str, typer.Option(help="closed (all pages known) or open.")] = "closed",
    pages: Annotated[int | None, typer.Option(help="Number of pages. Default: all.")] = None,
    monitored: Annotated[
        int | None, typer.Option(help="Monitored pages, in an open world.")
    ] = None,
    loads: Annotated[int | None, typer.Option(help="Training loads of each page.")] = None,
    validation_loads: Annotated[
        int | None, typer.Option(help="Validation loads of each page.")
    ] = None,
    test_loads: Annotated[int | None, typer.Option(help="Test loads of each page.")] = None,
    test_run: Annotated[int | None, typer.Option(help="Run for the test.")] = None,
    validation_run: Annotated[int | None, typer.Option(help="Run for validation.")] = None,
    resplits: Annotated[int, typer.Option(help="Number of splits of each training load.")] = 1,
    merged: Annotated[bool, typer.Option("--merged", help="Train on unsplit traces too.")] = False,
    train_on: Annotated[
        str | None,
        typer.Option(
            metavar="unsplit|FILE",
            help="Train an attack that does not know of the split: on unsplit loads, or on the "
            "traces of FILE of the same pages. Test it on IN.",
        ),
    ] = None,
    r: Annotated[float, typer.Option(help="Unmonitored loads for each monitored one.")] = 20.0,
    bootstrap: Annotated[int, typer.Option(help="Number of resamples for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write the result to FILE.json and the predictions to FILE.parquet. With several "
            "attacks: FILE.0.json and so on.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let --out replace an older result.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as one JSON object.")
    ] = False,
) -> None:
    """Train an attack on the packets that an observer sees, and print how many loads it names."""
    settings = {key: value for key, value in locals().items() if key not in _NOT_SETTINGS}
    with one_line():
        from anabranch import evaluate as lab
        from anabranch import io, results
        from anabranch.splitting import after_warning

        settings |= {"delays": _delays(delay or [])}
        if mode is None:
            del settings["mode"]
        training = _training(settings)
        specs = _specs(settings, attack or ["k-fp"], parameter or [])
        for spec in specs:
            _refuse_idle(spec)
        _warn_together(specs)
        if form is not None and form not in io.FORMATS:
            raise TraceError(f"--from: there are {', '.join(io.FORMATS)}, not '{form}'")
        outs = _outs(out, len(specs))
        for each in outs:
            _check_out(each, data, form, replace=replace)
        traces = io.read(data, form, io.Meaning(unmonitored=unmonitored_y))
        digest = results.digest(data, form)
        found = []
        for spec, place in zip(specs, outs, strict=True):
            _refuse_idle(spec, recorded=traces.paths is not None)
            with source(data), after_warning(), _epochs() as on_epoch:
                found.append(
                    _named(lab.evaluate(spec, traces, digest, on_epoch, None, training), data)
                )
            if place is not None:
                results.save(found[-1], place)
    if as_json:
        print(json.dumps(found[0].metrics if len(found) == 1 else _several(found)))
    elif len(found) == 1:
        shown.show(found[0])
    else:
        shown.show_several(found)


def _training(settings: dict[str, Any]) -> Traces | None:
    """Returns the traces of --train-on, and puts their digest into the settings."""
    from anabranch import io, results

    text = settings["train_on"]
    if text is None or text == "unsplit":
        return None
    traces = io.read(Path(text))
    settings["train_on"] = f"data:{results.digest(Path(text))}"
    return traces


def _named(result: Result, data: Path) -> Result:
    """Returns the result with the name of the evaluated file."""
    return replace_in(result, facts=result.facts | {"file": data.resolve().name})


def _warn_together(specs: Sequence[Spec]) -> None:
    splits = sum(spec.is_simulation_only for spec in specs)
    if splits:
        from anabranch.splitting import warn_together

        warn_together(splits, len(specs))


def _specs(settings: dict[str, Any], attacks: list[str], parameters: list[str]) -> list[Spec]:
    """Returns a spec for each attack, each with its own parameters."""
    from anabranch import evaluate as lab
    from anabranch.attacks import ALIASES
    from anabranch.evaluate.attack import name_of

    given = _parameters(parameters)
    names = [name_of(each) for each in attacks]
    if len(set(names)) < len(names):
        raise TraceError("--attack: one attack is given twice")
    own: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in given.items():
        of, dot, short = key.rpartition(".")
        of = ALIASES.get(of, of)
        if not dot and len(names) > 1:
            raise TraceError(f"--parameter {key}: of which attack? Write {names[0]}.{key}=VALUE")
        if dot and of not in own:
            raise TraceError(f"--parameter {key}: there are {', '.join(names)}, not '{of}'")
        own[of if dot else names[0]][short] = value
    return [lab.Spec.from_dict(settings | {"attack": name, "parameters": own[name]})
            for name in names]  # fmt: skip


def _outs(out: Path | None, number: int) -> list[Path | None]:
    """Returns the file of each of several results: FILE.0.json and so on."""
    if out is None or number == 1:
        return [out] * number
    return [out.with_suffix(f".{place}{out.suffix}") for place in range(number)]


def _several(found: list[Result]) -> dict[str, Any]:
    """Returns the numbers by attack, and the first one's gain over each of the others."""
    from dataclasses import asdict

    gains = {other.spec.attack: asdict(each) for _, other, each in shown.pairs(found)}
    return {"attacks": {each.spec.attack: each.metrics for each in found}, "less": gains}


def sweep(
    listing: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="List of evaluations.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="IN", help="Traces for entries that name none; relative to the current folder."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Folder for results. Default: SPEC.results."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Evaluations at a time, as far as memory allows. Default: one for each processor."
        ),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local: processes of this machine; ray: a cluster.")
    ] = "local",
    known: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Skip evaluations whose numbers `report --numbers` has written to this file.",
        ),
    ] = None,
) -> None:
    """Run all evaluations of a list. Started again, it continues where it stopped."""
    with one_line():
        from anabranch import results
        from anabranch import sweep as lab

        units = lab.read(listing, data)
        _warn_together([unit.spec for unit in units])
        target = folder or listing.with_suffix(".results")
        names = set()
        if known is not None:
            with source(known):
                names = {Path(file).stem for file, _ in results.lines(known)}
        with _bar() as bar:
            report = lab.sweep(
                units,
                target,
                jobs=jobs,
                executor=executor,
                known=names,
                on_unit=bar.advance,
                on_start=bar.start,
            )
        shown.show_report(report)
        print(f"{report.kept} kept, {report.done} done, {len(report.failed)} failed: {target}")
        if report.failed:
            unit, why = report.failed[0]
            raise TraceError(f"{unit}: {why}")


def simulate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for results.")],
    scenarios: Annotated[
        list[Path],
        typer.Argument(metavar="SCENARIO.toml...", help="Scenarios of `anabranch sim`."),
    ],
    networks: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of drawn networks for each scenario.")
    ] = 1,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeds.")] = 1,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs at a time, as far as memory allows. Default: one per processor."
        ),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local: processes of this machine; ray: a cluster.")
    ] = "local",
    memory: Annotated[
        int, typer.Option(min=1, metavar="MIB", help="Memory that a run needs, in MiB.")
    ] = 1024,
    program: Annotated[str, typer.Option(help="The program, by name or path.")] = "anabranch",
) -> None:
    """Simulate scenarios on several machines, as `anabranch sim sweep` does on one.

    Started again, it continues where it stopped.
    """
    with one_line():
        from anabranch import sim

        plan = sim.Plan(folder, tuple(scenarios), networks, seeds, program)
        with progress() as bars:
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


def _refuse_idle(spec: Spec, recorded: bool | None = None) -> None:
    for name, why in spec.idle(recorded):
        raise TraceError(f"--{_OPTIONS.get(name, name).replace('_', '-')}: {why}")


_OPTIONS = {"delays": "delay"}
"""Settings whose options have other names: this one is given once for each path."""

_NOT_SETTINGS = (
    "data",
    "form",
    "unmonitored_y",
    "delay",
    "attack",
    "parameter",
    "out",
    "replace",
    "as_json",
)


@contextmanager
def one_line() -> Iterator[None]:
    """Converts expected errors to `TraceError`, which the command line reports with code 2."""
    from anabranch.evaluate import ERRORS

    try:
        yield
    except TraceError:
        raise
    except ERRORS as error:
        raise TraceError(str(error)) from error
    except MemoryError as error:
        raise TraceError(f"not enough memory: {error}") from error


def _delays(texts: list[str]) -> list[Any]:
    from anabranch.cli import parse_delay

    return [parse_delay(text) for text in texts]


def _parameters(texts: list[str]) -> dict[str, Any]:
    """Parses `NAME=VALUE`: a number, true or false, otherwise text."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise TraceError(f"--parameter '{text}': write NAME=VALUE")
        if name in found:
            raise TraceError(f"--parameter '{text}': {name} is given twice")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):  # not JSON, or longer or deeper than any number
            found[name] = value
    return found


def _check_out(out: Path | None, data: Path, form: str | None, *, replace: bool) -> None:
    """Refuses a target that exists, or could not be written after an hour of work."""
    if out is None:
        return
    if out.suffix != ".json":
        raise TraceError("--out: the name of a result ends in .json", file=out)
    from anabranch import io

    rows = out.with_suffix(".parquet")
    with source(out):
        if not out.parent.is_dir():
            raise TraceError("its folder does not exist")
        for file in (out, rows):
            if file.is_dir() or not os.access(out.parent, os.W_OK):
                raise TraceError("cannot be written", file=file)
            io.refuse_source(file, data, form)
        if rows.exists() and not out.exists():
            raise TraceError("--out: predictions would replace a file of another kind", file=rows)
        if out.exists() and not replace:
            raise TraceError("--out: it exists: choose another name, or add --replace", file=out)


class _EachMinute:
    """Prints progress at most once a minute, where there is no terminal for a bar.

    Args:
        clock: seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def show(self, said: str) -> None:
        """Prints a line to stderr if a minute has passed since the last one."""
        now = self._clock()
        if now - self._last >= 60:
            self._last = now
            print(said, file=sys.stderr, flush=True)


@contextmanager
def _epochs() -> Iterator[Any]:
    """Shows a bar for the epochs of a network, or a line a minute; nothing without epochs."""
    with progress() as bars:
        tasks: dict[tuple[str, int], Any] = {}
        lines = _EachMinute()

        def on_epoch(report: EpochReport) -> None:
            key = (report.member, report.epochs)
            if report.epoch == 1 or key not in tasks:
                tasks[key] = bars.add_task(report.member, total=report.epochs)
            accuracy = report.validation_accuracy
            known = "" if accuracy is None else f", validation {accuracy:.1%}"
            said = f"{report.member}: loss {report.loss:.3f}{known}"
            bars.update(tasks[key], completed=report.epoch, description=said)
            if bars.disable:
                lines.show(f"{said}, epoch {report.epoch} of {report.epochs}")

        yield on_epoch


@contextmanager
def _bar() -> Iterator[_Bar]:
    with progress() as bars:
        yield _Bar(bars)


class _Bar:
    """One bar for all units, and a line for each where there is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("units", total=None)

    def start(self, left: int, at_once: int) -> None:
        said = f"{left} units, {at_once} at a time"
        self.progress.update(self.task, total=left, description=said)
        self.progress.advance(self.task, 0)  # the estimate of the remaining time starts here

    def advance(self, unit: Unit, outcome: Result | str) -> None:
        self.progress.advance(self.task)
        said = outcome if isinstance(outcome, str) else shown.headline(outcome)
        self.progress.console.print(f"{unit}: {said}", markup=False, highlight=False)


def progress() -> Progress:
    """Returns bars on a terminal, nothing elsewhere."""
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
        # Units take minutes: the default of 30 s would never contain two to estimate the speed.
        speed_estimate_period=1e9,
    )
