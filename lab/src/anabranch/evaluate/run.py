"""Training, prediction and metrics of one evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from anabranch import metrics, protocol
from anabranch.attacks import Attack
from anabranch.attacks.base import OnEpoch
from anabranch.evaluate.attack import origin, require
from anabranch.evaluate.samples import Sampler, Samples
from anabranch.evaluate.spec import Spec
from anabranch.metrics import UNMONITORED, Outcomes
from anabranch.metrics.outcomes import Bools
from anabranch.observers import Observer, SettingError, path_count
from anabranch.results import Result, plain
from anabranch.traces import Traces
from anabranch.unfinished import Elapsed, Unfinished
from anabranch.validate import TraceError, labels, watched

THREE_SETS = ("train", "validation", "test")


def evaluate(
    spec: Spec,
    traces: Traces,
    data: str = "",
    on_epoch: OnEpoch | None = None,
    unfinished: Unfinished | None = None,
    training: Traces | None = None,
) -> Result:
    """Runs one evaluation. Its result depends only on the arguments, except for the time it took.

    Args:
        spec: settings of the evaluation.
        traces: whole traces, or traces that were already split when recorded.
        data: digest of the data's source, which is stored with the result.
        on_epoch: called after each epoch of a network.
        unfinished: where networks' states are saved regularly. An interrupted evaluation resumes
            from the saved states.
        training: traces for training and validation in place of `traces`, if `spec.training`
            requires them.

    Raises:
        SettingError, SplitError, AttackError, TraceError: if these traces do not suit `spec`.
        MissingExtraError: if the attack needs a library that is not installed.
    """
    require(spec.attack.name)
    if traces.timeless and spec.attack.kind.needs_times:
        problem = f"these traces have no times, which {spec.attack.name} needs"
        raise TraceError(problem, column="time")
    began = Elapsed.now()
    watched(traces)
    pages = protocol.choose_pages(traces, spec.design, spec.seed)
    labels(traces, pages.monitored)
    sampler = Sampler(spec, traces, pages.classes(traces))
    tasks = _tasks(spec, sampler, pages, training)
    judged = [
        _judge(task, number, sampler, on_epoch, unfinished) for number, task in enumerate(tasks)
    ]
    outcomes = Outcomes.concatenate([part.test for part in judged])
    elapsed = Elapsed.now() - began + (unfinished.earlier() if unfinished else Elapsed())
    return Result(
        spec=spec,
        data=data,
        names=traces.names,
        facts={
            "division": _division(spec, traces, pages),
            "pages": int(pages.monitored.size + pages.unmonitored.size),
            "folds": [part.facts for part in judged],
            "sizes": traces.facts.size,
            "recorded_split": traces.facts.schedule if path_count(traces) > 1 else None,
        }
        | ({"outside": dict(origin(spec.attack.name))} if origin(spec.attack.name) else {}),
        metrics=plain(_measured(spec, judged, outcomes, pages)),
        outcomes=outcomes,
        elapsed=asdict(elapsed),
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """Samples for training, validation and test of one attack."""

    train: Samples
    validation: Samples | None
    test: Samples


@dataclass(frozen=True, slots=True)
class _Judged:
    """Predictions of one trained attack, and marks of those accepted as monitored."""

    test: Outcomes
    accepted: Bools
    curve: Bools
    facts: dict[str, Any]


def _tasks(
    spec: Spec, sampler: Sampler, pages: protocol.Pages, training: Traces | None
) -> Iterator[_Task]:
    if (training is not None) != spec.training.uses_other_traces:
        raise SettingError(
            "train_on: data:NAME and the argument with other traces must be given together"
        )
    if spec.design.protocol == "paper":
        return _paper(spec, sampler, pages)
    if training is not None:
        return _elsewhere(spec, sampler, pages, training)
    return _honest(spec, sampler, pages)


def _elsewhere(
    spec: Spec, sampler: Sampler, pages: protocol.Pages, training: Traces
) -> Iterator[_Task]:
    """Yields tasks that train and validate on other traces of the same pages.

    Both sets of traces are divided by the same rules; the test loads are those of `sampler`.
    """
    watched(training)
    known = frozenset(sampler.traces.names)
    names = (*sampler.traces.names, *(name for name in training.names if name not in known))
    places = {name: code for code, name in enumerate(names)}
    codes = np.array([places[name] for name in training.names], np.int32)
    other = replace(training, names=names, label=codes[training.label])
    teacher = Sampler(spec.of_training(), other, pages.classes(other))
    (learnt,) = protocol.honest(other, spec.design, pages, spec.seed)
    (met,) = protocol.honest(sampler.traces, spec.design, pages, spec.seed)
    train, validation = _of_others(teacher.train(learnt.train)), teacher.see(learnt.validation)
    yield _Task(train, _of_others(validation), sampler.seen(met.test))


def _of_others(samples: Samples) -> Samples:
    """Returns the samples with negative `rows`: their loads are not in the tested traces."""
    return replace(samples, rows=-1 - samples.rows)


def _honest(spec: Spec, sampler: Sampler, pages: protocol.Pages) -> Iterator[_Task]:
    own = spec.of_training()
    teacher = sampler if own is spec else Sampler(own, sampler.traces, sampler.classes)
    for fold in protocol.honest(sampler.traces, spec.design, pages, spec.seed):
        task = _Task(
            teacher.train(fold.train), teacher.seen(fold.validation), sampler.seen(fold.test)
        )
        assert not np.isin(task.train.rows, fold.test).any(), "a load is in two sets"
        yield task


def _paper(spec: Spec, sampler: Sampler, pages: protocol.Pages) -> Iterator[_Task]:
    """Yields tasks in which each sub-trace of more than ten packets is a sample of its own."""
    rows = _paper_rows(spec, sampler, pages)
    parts = [sampler.every_path(rows, replica) for replica in range(spec.training.resplits)]
    samples = Samples.joined(parts)
    samples = samples[samples.X.lengths > protocol.PAPER_DROPS]
    for train, test in protocol.paper(samples.y, spec.design.folds, spec.seed):
        yield _Task(samples[train], None, samples[test])


def _paper_rows(spec: Spec, sampler: Sampler, pages: protocol.Pages) -> protocol.Ints:
    """Returns the loads of the pages used, at most `loads` for each page."""
    if spec.observer != Observer():
        raise SettingError(
            "observer: the paper's protocol uses each path as a sample: leave out "
            f"'{spec.observer}'"
        )
    if spec.training.merged:
        raise SettingError(
            "merged: the paper's protocol does not train on whole traces: leave merged out"
        )
    return protocol.loads_of(sampler.traces, spec.design, pages, spec.seed)


def _judge(
    task: _Task,
    number: int,
    sampler: Sampler,
    on_epoch: OnEpoch | None,
    unfinished: Unfinished | None,
) -> _Judged:
    spec = sampler.spec
    _refuse_blind(task, sampler)
    attack = spec.attack.make(spec.seed)
    held_out = None if task.validation is None else task.validation.seen
    attack.fit(
        task.train.X,
        task.train.y,
        groups=task.train.rows,
        validation=None if held_out is None else (held_out.X, held_out.y),
        on_epoch=on_epoch,
        unfinished=None if unfinished is None else unfinished.part(f"fold{number}"),
    )
    test = _predicted(attack, task.test, sampler, number)
    facts = _sizes(task) | {"overhead": sampler.overhead(np.unique(task.test.rows))}
    if spec.design.world == "closed":
        everything = np.ones((len(test), 1), np.bool_)
        return _Judged(test, everything[:, 0], everything, facts)
    if task.validation is None:
        grid = metrics.thresholds(test)
        accepted = test.score > test.rest
        return _Judged(
            test, accepted, test.score[:, None] >= grid, facts | {"threshold": "most probable"}
        )
    validation = _predicted(attack, task.validation, sampler, number)
    grid = metrics.thresholds(validation)
    threshold = metrics.best_threshold(validation, grid, spec.scoring.r)
    accepted, curve = test.score >= threshold, test.score[:, None] >= grid
    return _Judged(test, accepted, curve, facts | {"threshold": threshold})


def _refuse_blind(task: _Task, sampler: Sampler) -> None:
    """Rejects a set in which no packet is seen, and a tested page without training samples.

    A page can be missing in training although loads of it are in each set: the observer may see no
    packet of its training loads, and the paper's protocol drops sub-traces of at most ten packets.
    """
    for name in THREE_SETS:
        side: Samples | None = getattr(task, name)
        if side is not None and not side.X.lengths.any():
            if sampler.spec.splitting.schedule is None and sampler.traces.paths is None:
                raise TraceError(f"no load of the {name} set has any packet")
            raise SettingError(
                f"observer: the observer sees no packet of the {name} set: use fewer paths, or "
                "change paths more often"
            )
    protocol.refuse_unlearnt(sampler.traces.names, task.train.y, task.test.y)


def _predicted(attack: Attack, samples: Samples, sampler: Sampler, fold: int) -> Outcomes:
    """Predicts the most probable monitored page of each sample.

    For the observer `any`, the samples of a load are combined.
    """
    traces = sampler.traces
    combined = sampler.observer.rule == "any" and sampler.spec.design.protocol == "honest"
    proba = attack.predict_proba(samples.X)
    inside = attack.classes_ != UNMONITORED
    pages, packets = attack.classes_[inside], samples.X.lengths
    within = proba[:, inside]
    rest = proba[:, ~inside].sum(axis=1)
    outcomes = Outcomes(
        run=traces.run[samples.rows],
        load=traces.load[samples.rows],
        path=samples.path,
        page=traces.label[samples.rows],
        monitored=samples.y != UNMONITORED,
        packets=packets,
        share=samples.share,
        guess=pages[within.argmax(axis=1)].astype(np.int32),
        score=np.where(packets > 0, within.max(axis=1), -1.0),
        rest=rest,
        fold=np.full(len(samples), fold, np.int16),
    )
    return outcomes.of_any() if combined else outcomes


def _sizes(task: _Task) -> dict[str, Any]:
    """Counts samples, loads and packets of each set, and the share of test samples in training.

    A test sample counts as in training if another sample of its load is in the training set.
    """
    sides = {name: getattr(task, name) for name in THREE_SETS if getattr(task, name) is not None}
    facts: dict[str, Any] = {
        name: {
            "samples": len(side),
            "loads": int(np.unique(side.rows).size),
            "packets": int(side.X.times.size),
        }
        for name, side in sides.items()
    }
    leaked = np.isin(task.test.rows, task.train.rows).mean()
    return facts | {"test_samples_of_training_loads": float(leaked)}


def _measured(
    spec: Spec, judged: list[_Judged], outcomes: Outcomes, pages: protocol.Pages
) -> dict[str, Any]:
    r, bootstrap = spec.scoring.r, spec.scoring.bootstrap
    if spec.design.world == "closed":
        return metrics.closed_world(outcomes, pages.monitored.size, bootstrap, spec.seed)
    accepted = np.concatenate([part.accepted for part in judged])
    curve = np.concatenate([part.curve for part in judged])
    return metrics.open_world(outcomes, accepted, curve, r, bootstrap, spec.seed)


def _division(spec: Spec, traces: Traces, pages: protocol.Pages) -> str:
    if spec.design.protocol == "paper":
        return f"9:1 by sub-trace, {spec.design.folds} of 10 folds; of more than 10 packets only"
    return protocol.describe(traces, spec.design, pages)
