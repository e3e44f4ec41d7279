"""Predicted duration of evaluations on this machine, from short trials of each attack.

A trial is the same evaluation with few loads of the same pages. Its time is extrapolated to all
loads: for a network by its epochs, for other attacks by the growth from one trial to the next.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch import protocol
from anabranch.attacks import EpochReport
from anabranch.attacks.network import NetworkAttack
from anabranch.evaluate import Spec, evaluate
from anabranch.nets import require_jax
from anabranch.observers import path_count
from anabranch.sweep.listing import Unit
from anabranch.traces import Traces

FACTOR = 3.0
"""Largest factor so far between estimated and measured duration, except for MiniRocket (5).

A test checks this factor for small runs.
"""

EPOCHS = 2
"""Number of epochs of a network's trial. The first epoch includes compiling."""
BATCHES = 2
"""Number of mini-batches of a network's trial, if there are enough loads."""
STEP = 4
"""Growth factor of samples from one trial to the next; smaller growth would be lost in noise."""
REPEATS, SHORT = 3, 1.0
"""Number of repetitions of trials that take less than `SHORT` seconds; the quickest counts."""
STEEPEST = 2.0
"""Maximum exponent of the time's growth with the samples: quadratic, as for kernel methods."""


@dataclass(frozen=True, slots=True)
class Work:
    """The amount of work that an evaluation takes.

    Attributes:
        trained: training samples of all folds.
        predicted: validation and test samples of all folds.
        epochs: number of a network's epochs; 1 for other attacks.
        folds: number of trainings.
    """

    trained: int
    predicted: int
    epochs: int = 1
    folds: int = 1

    @property
    def samples(self) -> int:
        """The number of all samples, trained and predicted."""
        return self.trained + self.predicted


@dataclass(frozen=True, slots=True)
class Trial:
    """One short evaluation of few loads, whose duration was measured.

    Attributes:
        work: the work that it took.
        seconds: its duration.
        epochs: for each member of each fold, the seconds of its epochs in order.
    """

    work: Work
    seconds: float
    epochs: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of an attack's trials.

    Attributes:
        trials: in increasing order of samples.
    """

    trials: tuple[Trial, ...] = field(default_factory=tuple)

    def seconds(self, work: Work) -> float:
        """Estimates the seconds of `work` by the same attack on the same pages."""
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
        # Growth is linear with a constant cost: a line through both trials.
        slope = (last.seconds - before.seconds) / (last.work.samples - before.work.samples)
        return last.seconds + max(slope, 0.0) * (work.samples - last.work.samples)

    @staticmethod
    def _of_network(trial: Trial, work: Work) -> float:
        """Scales a network's trial to `work`.

        Compiling scales with folds, epochs with their number and training samples, the rest with
        samples.
        """
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
        """Describes the measurement in words, for messages."""
        sizes = ", ".join(f"{each.work.samples} samples in {each.seconds:.1f} s"
                          for each in self.trials)  # fmt: skip
        return f"{sizes}, {EPOCHS} epochs" if self.trials[-1].epochs else sizes


def work_of(spec: Spec, traces: Traces) -> Work:
    """Returns the work of an evaluation of these traces.

    Raises:
        SettingError, TraceError: if the traces do not suit the spec.
    """
    pages = protocol.choose_pages(traces, spec.design, spec.seed)
    epochs = int(_parameters(spec).get("epochs", 1)) if _is_network(spec) else 1
    if spec.design.protocol == "paper":
        count = path_count(traces) if spec.splitting.schedule is None else spec.splitting.paths
        loads = protocol.loads_of(traces, spec.design, pages, spec.seed).size
        samples, folds = loads * count * spec.training.resplits, spec.design.folds
        test = samples // protocol.PAPER_PARTS
        return Work((samples - test) * folds, test * folds, epochs, folds)
    parts = list(protocol.honest(traces, spec.design, pages, spec.seed))
    trained = sum(fold.train.size for fold in parts) * spec.training.copies
    predicted = sum(fold.validation.size + fold.test.size for fold in parts)
    return Work(trained, predicted, epochs, len(parts))


def measure(
    spec: Spec, traces: Traces, seconds: float, clock: Callable[[], float] = time.monotonic
) -> Measured:
    """Tries an evaluation with growing numbers of loads per page, for about `seconds`.

    Args:
        spec: the evaluation.
        traces: all of the data.
        seconds: limit of the total. After two trials, a larger one begins only if it is likely to
            fit.
        clock: returns the time in seconds.

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
        # A single trial does not reveal the constant cost.
        if len(trials) > 1 and spent + STEP * trials[-1].seconds > seconds:
            break
    return Measured(tuple(trials))


def question(unit: Unit) -> str:
    """Returns a key that is equal for units that differ only in work, and so share trials."""
    spec = unit.spec
    settings = spec.to_dict()
    names = ("attack", "parameters", "protocol", "world", "pages", "defence", "path_defence")
    return json.dumps([str(unit.data), unit.form, *(settings[name] for name in names)])


def _warm(spec: Spec, traces: Traces) -> None:
    """Does one-time work of a process before the trials: imports, and JAX's search for devices."""
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
    elapsed = clock() - began
    return Trial(work_of(spec, traces), elapsed, tuple(map(tuple, epochs)))


def _smaller(spec: Spec, traces: Traces) -> Iterator[Spec]:
    """Yields the spec with few loads of each page, then with growing numbers, up to all loads."""
    whole = work_of(spec, traces)
    pages = protocol.choose_pages(traces, spec.design, spec.seed)
    count = max(1, pages.monitored.size + pages.unmonitored.size)
    each = max(1, spec.training.copies) * count * whole.folds
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
    parameters = dict(spec.attack.parameters)
    if _is_network(spec):
        parameters["epochs"] = min(EPOCHS, whole.epochs)
    changes: dict[str, Any] = {"loads": loads, "parameters": parameters}
    if spec.design.protocol == "honest":
        held_out = max(1, round(loads * whole.predicted / max(whole.trained, 1) / 2))
        changes |= {"validation_loads": held_out, "test_loads": held_out}
    return spec.changed(**changes)


def _is_network(spec: Spec) -> bool:
    return issubclass(spec.attack.kind, NetworkAttack)


def _parameters(spec: Spec) -> dict[str, Any]:
    found: dict[str, Any] = spec.attack.make(spec.seed).get_params(deep=False)
    return found


def at_best(seconds: list[float], at_once: int) -> float:
    """Returns the total time of evaluations, run `at_once` at a time, the longest first."""
    ends = np.zeros(max(at_once, 1))
    for each in sorted(seconds, reverse=True):
        ends[ends.argmin()] += each
    return float(ends.max(initial=0.0))
