"""How long evaluations will take on this machine, from a short measurement of each attack.

An attack is tried on few loads of the same pages, by the same evaluation. What that took is carried
on to the whole: of a network epoch by epoch, of others by how time grew from one size to the next.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anabranch import protocol
from anabranch.attacks import EpochReport
from anabranch.attacks.network import NetworkAttack
from anabranch.evaluate import Spec, evaluate
from anabranch.evaluate.attack import class_of, make
from anabranch.nets import require_jax
from anabranch.observers import path_count
from anabranch.sweep.listing import Unit
from anabranch.traces import Traces

FACTOR = 3.0
"""Estimates and real runs have been within this of each other; a test holds small ones to it."""

EPOCHS = 2
"""That a network is tried for: the first one compiles it."""
BATCHES = 2
"""Mini-batches of a network's trial, where there are so many loads."""
STEP = 4
"""By how much the next trial is larger: less would drown in what the machine does beside it."""
REPEATS, SHORT = 3, 1.0
"""How often a trial of fewer seconds is done; the quickest counts."""
STEEPEST = 2.0
"""The most that time is taken to grow by: with the square of the samples, as kernels do."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an evaluation has to do.

    Attributes:
        trained: samples that train, of all folds.
        predicted: samples that choose or test, of all folds.
        epochs: of a network; 1 of others.
        folds: trainings.
    """

    trained: int
    predicted: int
    epochs: int = 1
    folds: int = 1

    @property
    def samples(self) -> int:
        """All."""
        return self.trained + self.predicted


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluation of few loads.

    Attributes:
        work: what it had to do.
        seconds: that it took.
        epochs: seconds of each epoch of each member of each fold, the first one of each first.
    """

    work: Work
    seconds: float
    epochs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """What trials of an attack told.

    Attributes:
        trials: from few samples to more.
    """

    trials: tuple[Trial, ...] = field(default_factory=tuple)

    def seconds(self, work: Work) -> float:
        """An estimate for other work of the same attack on the same pages."""
        last = self.trials[-1]
        if last.epochs:
            return self._of_network(last, work)
        if len(self.trials) == 1 or work.samples <= last.work.samples:
            return last.seconds * work.samples / last.work.samples
        before = self.trials[-2]
        ratio = work.samples / last.work.samples
        step = last.work.samples / before.work.samples
        steepness = math.log(max(last.seconds, 1e-6) / max(before.seconds, 1e-6)) / math.log(step)
        if steepness > 1:
            return float(last.seconds * ratio ** min(steepness, STEEPEST))
        # What is spent in any case stays as it is: a line through both.
        slope = (last.seconds - before.seconds) / (last.work.samples - before.work.samples)
        return last.seconds + max(slope, 0.0) * (work.samples - last.work.samples)

    @staticmethod
    def _of_network(trial: Trial, work: Work) -> float:
        """Compiling once a member and fold, epochs by their samples, the rest by all samples."""
        firsts = sum(each[0] for each in trial.epochs)
        later = sum(min(each[1:] or each) for each in trial.epochs)
        compiling = max(firsts - later, 0.0)
        rest = max(trial.seconds - sum(map(sum, trial.epochs)), 0.0)
        grown = work.trained / trial.work.trained
        return (
            compiling * work.folds / trial.work.folds
            + later * work.epochs * grown
            + rest * work.samples / trial.work.samples
        )

    def __str__(self) -> str:
        """How it was made, for people."""
        sizes = ", ".join(f"{each.work.samples} samples in {each.seconds:.1f} s"
                          for each in self.trials)  # fmt: skip
        return f"{sizes}, {EPOCHS} epochs" if self.trials[-1].epochs else sizes


def work_of(spec: Spec, traces: Traces) -> Work:
    """What an evaluation of these traces has to do.

    Raises:
        SettingError, TraceError: if they do not suit the spec.
    """
    pages = protocol.choose_pages(traces, spec.design())
    epochs = int(_parameters(spec).get("epochs", 1)) if _is_network(spec) else 1
    if spec.protocol == "paper":
        count = path_count(traces) if spec.schedule is None else spec.paths
        samples = protocol.loads_of(traces, spec.design(), pages).size * count * spec.resplits
        test = samples // protocol.PAPER_PARTS
        return Work((samples - test) * spec.folds, test * spec.folds, epochs, spec.folds)
    folds = list(protocol.honest(traces, spec.design(), pages))
    trained = sum(fold.train.size for fold in folds) * (spec.resplits + spec.merged)
    predicted = sum(fold.validation.size + fold.test.size for fold in folds)
    return Work(trained, predicted, epochs, len(folds))


def measure(
    spec: Spec, traces: Traces, seconds: float, clock: Callable[[], float] = time.monotonic
) -> Measured:
    """Tries an evaluation on ever more loads of each page until it has taken so long.

    Args:
        spec: as it is to be run.
        traces: all of the data.
        seconds: after which no third and no larger trial begins.
        clock: what seconds are taken by.

    Raises:
        SettingError, AttackError, TraceError, ...: as the evaluation itself would.
    """
    _warm(spec, traces)
    trials: list[Trial] = []
    spent = 0.0
    for small in _smaller(spec, traces):
        found = [_try(small, traces, clock)]
        while len(found) < REPEATS and found[0].seconds < SHORT and not found[0].epochs:
            found.append(_try(small, traces, clock))
        trials.append(min(found, key=lambda each: each.seconds))
        spent += sum(each.seconds for each in found)
        # One alone does not tell what is spent in any case.
        if len(trials) > 1 and spent + STEP * trials[-1].seconds > seconds:
            break
    return Measured(tuple(trials))


def question(unit: Unit) -> str:
    """Equal for units that one measurement is enough for: they differ in their work alone."""
    spec = unit.spec
    parts = [str(unit.data), unit.form, spec.attack, dict(spec.parameters), spec.protocol]
    return json.dumps([*parts, spec.world, spec.pages, spec.defence, spec.path_defence])


def _warm(spec: Spec, traces: Traces) -> None:
    """Does what a process does once: it imports, and JAX looks for its devices."""
    if _is_network(spec):
        require_jax()
        import jax

        import anabranch.nets.train  # noqa: F401  # which imports all that networks use

        jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    else:
        _try(next(_smaller(spec, traces)), traces, time.monotonic)


def _try(spec: Spec, traces: Traces, clock: Callable[[], float]) -> Trial:
    began = last = clock()
    epochs: list[list[float]] = []

    def on_epoch(report: EpochReport) -> None:
        nonlocal last
        now = clock()
        if report.epoch == 1:
            epochs.append([])
        epochs[-1].append(now - last)
        last = now

    evaluate(spec, traces, on_epoch=on_epoch)
    took = clock() - began
    return Trial(work_of(spec, traces), took, tuple(map(tuple, epochs)))


def _smaller(spec: Spec, traces: Traces) -> Iterator[Spec]:
    """The spec with few loads of each page, then with ever more, up to all that it takes."""
    whole = work_of(spec, traces)
    pages = protocol.choose_pages(traces, spec.design())
    count = max(1, pages.monitored.size + pages.unmonitored.size)
    each = max(1, spec.resplits + spec.merged) * count * whole.folds
    most = max(1, whole.trained // each)
    least = 2
    if _is_network(spec):
        batch = int(_parameters(spec).get("batch_size", 1))
        least = max(least, -(-BATCHES * batch * whole.folds // each))
    loads = min(least, most)
    while True:
        yield _reduced(spec, loads, whole)
        if loads >= most or _is_network(spec):
            return
        loads = min(STEP * loads, most)


def _reduced(spec: Spec, loads: int, whole: Work) -> Spec:
    parameters = dict(spec.parameters)
    if _is_network(spec):
        parameters["epochs"] = min(EPOCHS, whole.epochs)
    changes: dict[str, Any] = {"loads": loads, "parameters": parameters}
    if spec.protocol == "honest":
        held_out = max(1, round(loads * whole.predicted / max(whole.trained, 1) / 2))
        changes |= {"validation_loads": held_out, "test_loads": held_out}
    return replace(spec, **changes)


def _is_network(spec: Spec) -> bool:
    return issubclass(class_of(spec.attack), NetworkAttack)


def _parameters(spec: Spec) -> dict[str, Any]:
    found: dict[str, Any] = make(spec.attack, spec.parameters, spec.seed).get_params(deep=False)
    return found


def at_best(seconds: list[float], at_once: int) -> float:
    """Seconds of evaluations of which so many are under way at a time, the longest first."""
    ends = np.zeros(max(at_once, 1))
    for each in sorted(seconds, reverse=True):
        ends[ends.argmin()] += each
    return float(ends.max(initial=0.0))
