"""All evaluations of a folder of traces; each result is a line of JSON.

    {"measure": "closed", "attack": "k-fp", "learnt": "tor", "tested": "tor-http-text",
     "data": "1f…", "numbers": {"accuracy": {"value": 0.9, "low": 0.8, "high": 1.0}, …}}

`learnt` and `tested` are the kinds of the training and the test loads. Measures: `closed` (the
share of loads whose site is recognised), `open` (unmonitored sites are one more class) and `sums`
(the paper's classifier, area under the ROC curve of each site). Intervals are 95 %, by bootstrap
over sites.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from anabranch import io, metrics, results
from anabranch.attacks import Attack
from anabranch.camouflage import sums
from anabranch.camouflage.attacks import ATTACKS
from anabranch.camouflage.captures import kinds
from anabranch.camouflage.folds import folds_of, predicted, trained
from anabranch.camouflage.numbers import Row
from anabranch.io import draft
from anabranch.metrics.bootstrap import Estimate, draws, percentiles
from anabranch.metrics.outcomes import Outcomes
from anabranch.results import plain
from anabranch.traces import Traces
from anabranch.validate import TraceError, source

RESULTS = "results.jsonl"
RESAMPLES = 2000
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """An evaluation: measure, attack (empty for `sums`), kinds of training and test loads."""

    measure: str
    attack: str
    learnt: str
    tested: str


def tasks(names: Sequence[str], attacks: Sequence[str]) -> Iterator[Task]:
    """Yields all evaluations: the paper's classifier first, then attack by attack.

    Evaluations with the same training follow each other.
    """
    chosen = sorted(pairs(names), key=lambda pair: names.index(pair[0]))
    yield from (Task("sums", "", *pair) for pair in chosen)
    for attack in attacks:
        yield from (Task("closed", attack, *pair) for pair in chosen)
        yield from (Task("open", attack, name, name) for name in names)


def pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields pairs of kinds of loads: the kind to train on, then the kind to test on.

    For each tested kind, the training kinds are the kind itself, the same tunnel without a
    transport, and the same profile with the other database (source of its covers).
    """
    for tested in names:
        tunnel, _, profile = tested.partition("-")
        yield tested, tested
        if profile and tunnel in names:
            yield tunnel, tested
        if tested[-2:] in ("-a", "-b"):
            other = f"{tested[:-1]}{'b' if tested.endswith('a') else 'a'}"
            if other in names:
                yield other, tested


def judge(folder: Path, attacks: Sequence[str], begun: Callable[[Task], None]) -> list[Row]:
    """Runs the evaluations whose results are missing, and returns the results of all attacks.

    Each result is added to `results.jsonl` in the folder as soon as it is computed. Results of
    older traces are removed from the file.

    Raises:
        TraceError: if traces or results cannot be read.
    """
    names = kinds(folder)
    keys = {task: _key_of(folder, task) for task in tasks(names, list(ATTACKS))}
    known = _current(folder, set(keys.values()))
    loads = Loads(folder)
    for task in tasks(names, attacks):
        begun(task)
        key = keys[task]
        if key not in known:
            numbers = plain(_numbers(task, loads))
            known[key] = {**asdict(task), "data": key[-1], "numbers": numbers}
            with source(folder / RESULTS), (folder / RESULTS).open("a") as lines:
                lines.write(_line(known[key]))
    return [known[key] for key in keys.values() if key in known]


def _current(folder: Path, keys: set[Key]) -> dict[Key, Row]:
    """Returns the stored results with these keys, and removes all others from `results.jsonl`."""
    rows = read(folder)
    kept = {key: row for row in rows if (key := _key(row)) in keys}
    if len(kept) < len(rows):
        with source(folder / RESULTS), draft.file(folder / RESULTS) as target:
            target.write_text("".join(map(_line, kept.values())), "utf-8")
            target.chmod(0o644)
    return kept


def _line(row: Row) -> str:
    return json.dumps(row) + "\n"


def read(folder: Path) -> list[Row]:
    """Returns the results that a folder has.

    Raises:
        TraceError: if they cannot be read.
    """
    file = folder / RESULTS
    if not file.exists():
        return []
    with source(file):
        try:
            rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
            for row in rows:
                _key(row)
        except (ValueError, LookupError, TypeError) as error:
            raise TraceError(f"not a list of results: {error}") from error
    return rows


def _key(row: Row) -> Key:
    return tuple(row[name] for name in ("measure", "attack", "learnt", "tested", "data"))


def _key_of(folder: Path, task: Task) -> Key:
    """Returns the key of a task; its last part is a hash of data and parameters, 16 hex digits."""
    state = hashlib.sha256(json.dumps(ATTACKS.get(task.attack, {})).encode())
    for name in (task.learnt, task.tested):
        state.update(results.digest(folder / f"{name}.parquet").encode())
    return (*asdict(task).values(), state.hexdigest()[:16])


class Loads:
    """The traces of a folder, and the latest trained attacks, both cached."""

    def __init__(self, folder: Path) -> None:
        self.of = cache(lambda name: io.read(folder / f"{name}.parquet"))
        turns = [self.of(name).run for name in kinds(folder)]
        self.folds = folds_of(np.concatenate(turns).tolist())
        self._trained = lru_cache(maxsize=1)(self._train)

    def outcomes(self, task: Task) -> Outcomes:
        """Returns the predictions of an attack for all loads of the tested kind."""
        attacks = self._trained(task.attack, task.learnt, task.measure)
        return predicted(attacks, self._chosen(task.tested, task.measure), self.folds)

    def _train(self, attack: str, learnt: str, measure: str) -> list[Attack]:
        return trained(attack, ATTACKS[attack], self._chosen(learnt, measure), self.folds)

    def _chosen(self, kind: str, measure: str) -> Traces:
        traces = self.of(kind)
        return traces if measure == "open" else traces[traces.monitored]


def _numbers(task: Task, loads: Loads) -> Row:
    if task.measure == "sums":
        return _areas(sums.areas(loads.of(task.learnt), loads.of(task.tested)))
    outcomes = loads.outcomes(task)
    if task.measure == "open":
        return _open(outcomes)
    found = metrics.closed_world(outcomes, np.unique(outcomes.page).size, RESAMPLES, 0)
    return {name: found[name] for name in ("accuracy", "chance", "pages", "predictions")}


def _open(outcomes: Outcomes) -> Row:
    """Returns open-world rates; a load is accepted if a monitored site is the most probable."""
    accepted = outcomes.score > outcomes.rest
    found = metrics.open_world(outcomes, accepted, accepted[:, None], 1.0, RESAMPLES, 0)
    names = ("recall", "wrong_positive_rate", "false_positive_rate", "monitored_predictions",
             "unmonitored_predictions")  # fmt: skip
    return {name: found[name] for name in names}


def _areas(found: dict[str, float]) -> Row:
    values = np.array(list(found.values()))
    chance = np.random.default_rng(0)
    weights = draws(chance, values.size, RESAMPLES)
    low, high = percentiles((weights @ values / values.size)[:, None])
    mean = Estimate(float(values.mean()), float(low[0]), float(high[0]))
    return {"areas": found, "mean": mean}
