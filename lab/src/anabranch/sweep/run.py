"""Runs the evaluations of a sweep that have no result yet, and stores their results."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from anabranch import io, results
from anabranch.evaluate import ERRORS, evaluate
from anabranch.evaluate.attack import name_of, require
from anabranch.observers import SettingError
from anabranch.results import Result
from anabranch.splitting import after_warning
from anabranch.sweep import executors, memory
from anabranch.sweep.listing import Unit
from anabranch.traces import Traces
from anabranch.unfinished import Unfinished
from anabranch.validate import TraceError, source

OnUnit: TypeAlias = Callable[[Unit, "Result | str"], None]


@dataclass(slots=True)
class Report:
    """The outcome of a sweep.

    Attributes:
        kept: number of units whose results existed before, in the folder or in `known`.
        done: number of units that this sweep evaluated.
        failed: failed units, each with the reason.
        files: the result file of each finished unit, in the order of the units.
    """

    kept: int = 0
    done: int = 0
    failed: list[tuple[Unit, str]] = field(default_factory=list)
    files: list[tuple[Unit, Path]] = field(default_factory=list)


def sweep(
    units: list[Unit],
    folder: Path,
    *,
    jobs: int | None = 1,
    executor: str = "local",
    known: Collection[str] = (),
    on_unit: OnUnit | None = None,
    on_start: Callable[[int, int], None] | None = None,
) -> Report:
    """Evaluates the units whose results are not in `folder` yet.

    A result appears when it is complete, so a stopped sweep loses at most the running units. Of a
    network's training on this machine, it loses at most five minutes. Each result is named after
    the hash of its settings, data and version.

    Args:
        units: the evaluations; those with equal settings are run once.
        folder: folder of results; created if missing.
        jobs: maximum number of units at a time; fewer if memory is short. None: one per processor
            of this machine, or with `ray` of the whole cluster.
        executor: `local` or `ray`.
        known: names of results (`results.key`) that exist elsewhere; their units are skipped.
        on_unit: called after each unit with its result, or the reason of its failure.
        on_start: called once with the numbers of remaining units and of units at a time.

    Raises:
        TraceError: if data cannot be read, or the folder cannot be created.
        SettingError: if `jobs` or `executor` is wrong.
        MissingExtraError: if the executor or an attack needs a library that is not installed.
    """
    if jobs is not None and jobs < 1:
        raise SettingError(f"jobs: {jobs} is too few: give at least 1")
    executors.require(executor)
    for attack in {unit.spec.attack.name for unit in units}:
        require(attack)
    digests = {where: results.digest(*where) for where in {unit.where for unit in units}}
    targets = {
        place: folder / f"{results.key(unit.spec, digests[unit.where], unit.reading)}.json"
        for place, unit in enumerate(units)
    }
    first = {target: place for place, target in reversed(targets.items())}
    kept = {target for target in first if target.stem in known or results.complete(target)}
    left = sorted(place for target, place in first.items() if target not in kept)
    report = Report(kept=len(kept))
    needs = _needs([units[place] for place in left])
    with source(folder):
        folder.mkdir(parents=True, exist_ok=True)
    local = executor == "local"  # states saved on other nodes would stay there
    tasks = [
        _Task(units[place], digests[units[place].where], targets[place], local) for place in left
    ]
    with executors.EXECUTORS[executor](needs, jobs) as workers:
        if workers.at_once > 1 or not local:
            _traces.cache_clear()  # worker processes read the traces themselves
        if on_start is not None:
            on_start(len(left), workers.at_once)
        for task, outcome in workers.run(tasks, _attempt):
            _keep(task, outcome, report)
            if on_unit is not None:
                on_unit(task.unit, outcome)
    files = ((unit, targets[place]) for place, unit in enumerate(units))
    report.files = [(unit, file) for unit, file in files if results.complete(file)]
    return report


@dataclass(frozen=True, slots=True)
class _Task:
    """A unit to run: its data's digest, its result's path, and whether its training can resume."""

    unit: Unit
    digest: str
    target: Path
    goes_on: bool

    def unfinished(self) -> Unfinished:
        """Returns the store for the states of the unit's unfinished trainings."""
        return Unfinished(self.target.with_suffix(""))


def _attempt(task: _Task) -> Result | str:
    """Returns a unit's result, or the reason of its failure, which does not stop other units.

    An unexpected error is reported with its type.
    """
    unit = task.unit
    unfinished = task.unfinished() if task.goes_on else None
    try:
        if unit.attack_file is not None:
            name_of(unit.attack_file)
        traces = traces_of(unit)
        training = None if unit.training is None else _traces(unit.training, None, None)
        with after_warning():  # the sweep warns once for all units
            done = evaluate(unit.spec, traces, task.digest, None, unfinished, training)
        return replace(done, facts=done.facts | {"run_name": unit.name, "file": unit.data.name})
    except TraceError as error:
        error.file = error.file or unit.data
        return str(error)
    except ERRORS as error:
        return str(error)
    except Exception as error:
        return repr(error)


def _keep(task: _Task, outcome: Result | str, report: Report) -> None:
    if isinstance(outcome, str):
        report.failed.append((task.unit, outcome))
        return
    results.save(outcome, task.target)
    task.unfinished().forget()
    report.done += 1


def _needs(units: list[Unit]) -> list[int]:
    """Returns the bytes that each unit needs. It reads all data, so errors are reported early."""
    needs = [0] * len(units)
    for place in sorted(range(len(units)), key=lambda place: str(units[place].data)):
        unit = units[place]
        traces = traces_of(unit)
        needs[place] = memory.needed(unit.spec, traces)
    return needs


def traces_of(unit: Unit) -> Traces:
    """Returns the data of a unit.

    Raises:
        TraceError: if they cannot be read.
    """
    return _traces(unit.data, unit.form, unit.unmonitored_y)


@lru_cache(maxsize=2)
def _traces(path: Path, form: str | None, unmonitored_y: int | None) -> Traces:
    """Returns the data of a unit; cached, because consecutive units usually share them."""
    return io.read(path, form, io.Meaning(unmonitored=unmonitored_y))
