"""Results of sweeps, found by what was asked and not by names of files or runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch import results
from anabranch.evaluate import Spec
from anabranch.report import published
from anabranch.report.setting import EXPECTED, Setting, attack_place, design, full
from anabranch.results import Numbers
from anabranch.validate import TraceError, source

WHOLE = "whole"
"""The observer of what is not split: there is one path, so that every observer is the same."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A result, under the names that tables have.

    Attributes:
        file: where it stands.
        result: what it holds.
        setting: what the defender chose.
        observer: as `Spec` has it; `WHOLE` where nothing is split.
        design: how the attacker was trained.
        short: the same for figures, without the attack's own parameters.
    """

    file: Path
    result: Numbers
    setting: Setting
    observer: str
    design: str
    short: str

    @property
    def spec(self) -> Spec:
        """All settings."""
        return self.result.spec

    @property
    def run_name(self) -> str | None:
        """What a sweep calls it."""
        name = self.result.facts.get("run_name")
        return None if name is None else str(name)

    @property
    def full(self) -> bool:
        """Whether all pages and loads take part."""
        return full(self.spec)

    @property
    def accuracy(self) -> float:
        """The point of its accuracy; 0 where there is none."""
        return self.estimate("accuracy")["value"] or 0.0

    def estimate(self, name: str) -> dict[str, float | None]:
        """A metric's value and interval."""
        found: dict[str, float | None] = self.result.metrics[name]
        return found


class Collection:
    """All results of a report.

    Attributes:
        entries: ordered by setting, attack, observer, protocol, world and design.
        paper: whether the report has the CoMPS paper's tables whole, where each place without a
            result says so; else it has what there are results of.
        planned: evaluations that a sweep asks for; where one has no result yet, the report says so.
    """

    def __init__(
        self, entries: Iterable[Entry], *, paper: bool = False, planned: Sequence[Spec] = ()
    ) -> None:
        self.entries = tuple(sorted(_told_apart(list(entries)), key=_place))
        self.paper = paper
        self.planned = tuple(planned)

    @classmethod
    def read(
        cls, sources: Sequence[Path], *, paper: bool = False, planned: Sequence[Spec] = ()
    ) -> Collection:
        """All results of `sources`; of equal ones that stand in several, one.

        Args:
            sources: folders of results (`*.json`), and files as `lines` makes them (`*.jsonl`).
            paper: as the attribute.
            planned: as the attribute.

        Raises:
            TraceError: if one cannot be read or holds none, or a file is no result.
        """
        found = [pair for each in sources for pair in _found(each)]
        several = len({result.data for _, result in found}) > 1
        entries = {
            _identity(result): _entry(file, result, several) for file, result in reversed(found)
        }
        return cls(entries.values(), paper=paper, planned=planned)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def select(
        self,
        setting: Setting | None = None,
        attack: str | None = None,
        *,
        world: str | None = None,
        protocol: str | None = None,
        observer: str | None = None,
    ) -> list[Entry]:
        """The entries of exactly this; None is any. What is not split suits every observer."""
        return [
            entry
            for entry in self.entries
            if (setting is None or entry.setting == setting)
            and attack in (None, entry.spec.attack)
            and world in (None, entry.spec.world)
            and protocol in (None, entry.spec.protocol)
            and (observer is None or entry.observer in (observer, WHOLE))
        ]

    def like(self, setting: Setting, attack: str, protocol: str) -> list[Entry]:
        """The entries that compare with the paper's: open world, an observer of one path."""
        chosen = self.select(attack=attack, world="open", protocol=protocol, observer="random")
        return [entry for entry in chosen if entry.setting.like(setting)]

    @property
    def rule(self) -> str:
        """The observer of one path that results are compared by.

        That is one at random, as the paper has it; where a sweep asked for no such, the one that
        most results of splits are of.
        """
        one_path = ("largest", "any", "largest+counter", "any+counter", "random+counter")
        rules = [entry.observer for entry in self.entries]
        others = Counter(rule for rule in rules if rule in one_path)
        return "random" if "random" in rules or not others else others.most_common(1)[0][0]

    def data_name(self, digest: str, *, short: bool = False) -> str:
        """Traces for people: by their name, or by that of the file that was evaluated."""
        files = (each.result.facts.get("file") for each in self.entries
                 if each.result.data == digest)  # fmt: skip
        file = next((str(name) for name in files if name), None)
        return published.short_name(digest, file) if short else published.data_name(digest, file)

    @property
    def settings(self) -> list[Setting]:
        """In the order of tables."""
        return sorted({entry.setting for entry in self.entries}, key=lambda each: each.place)

    @property
    def attacks(self) -> list[str]:
        """Those with a result, in the order of tables."""
        return sorted({entry.spec.attack for entry in self.entries}, key=attack_place)

    @property
    def one_path_attacks(self) -> list[str]:
        """Those with a result where one path is watched, and in a whole report those expected."""
        found = {entry.spec.attack for entry in self.select(observer=self.rule)}
        return sorted({*(EXPECTED if self.paper else ()), *found}, key=attack_place)

    def lines(self) -> str:
        """The numbers of all, a line each, by the names of their files; `read` takes them."""
        parts = (
            results.line(f"{entry.file.parent.name}/{entry.file.name}", entry.result)
            for entry in sorted(self.entries, key=lambda entry: entry.file.name)
        )
        return "".join(parts)

    def took(self, kind: str = "cpu_s") -> float:
        """Seconds of all results together, `cpu_s` or `wall_s`."""
        return sum(entry.result.took[kind] for entry in self.entries)


def _found(place: Path) -> list[tuple[Path, Numbers]]:
    """The results of a folder or of a file of lines, each with its own file's name."""
    if place.suffix != ".jsonl":
        return [(file, _result(file)) for file in _files(place)]
    found = []
    with _readable(place):
        for file, numbers in results.lines(place):
            _check(numbers)
            found.append((Path(file), numbers))
    if not found:
        raise TraceError("holds no results", file=place)
    return found


def _files(folder: Path) -> list[Path]:
    with source(folder):
        if not folder.exists():
            raise TraceError("no such folder")
        if not folder.is_dir():
            raise TraceError("is no folder of results")
        files = sorted(folder.glob("*.json"))
        if not files:
            raise TraceError("holds no results (*.json)")
    return files


def _result(file: Path) -> Numbers:
    """One result, checked as far as a report needs it."""
    with _readable(file):
        result = results.load(file)
        _check(result)
    return result


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Whatever is wrong with what `file` holds becomes an error that names it."""
    try:
        yield
    except TraceError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"not a readable result: {error!r}", file=file) from error


def _check(result: Numbers) -> None:
    """Touches all that tables and figures take from a result."""
    metrics, closed = result.metrics, result.spec.world == "closed"
    for name in ("accuracy",) if closed else ("r_precision", "recall", "f1"):
        _interval(metrics[name])
    for part in metrics["by_share"]:
        _interval(part["accuracy"])
        float(part["mean_share"])
    if closed:
        float(metrics["chance"])
    else:
        int(metrics["unmonitored_pages"]) + int(metrics["unmonitored_predictions"])
        float(metrics["r"])
        for name in ("r_precision", "recall"):
            for point in metrics["curve"][name]:
                _interval(point)
    for fold in result.facts["folds"]:
        float(fold["test_samples_of_training_loads"])
        dict(fold["overhead"] or {})
    float(result.took["cpu_s"]) + float(result.took["wall_s"])


def _interval(estimate: dict[str, Any]) -> None:
    for name in ("value", "low", "high"):
        value = estimate[name]
        if value is not None:
            float(value)


def _entry(file: Path, result: Numbers, several: bool) -> Entry:
    setting = Setting.of(result.spec, result.facts.get("recorded_split"))
    each_path = result.spec.protocol == "paper"
    seen = "random" if each_path else result.spec.observer
    place = result.facts.get("file") or f"data {result.data[:6] or '?'}"
    data = str(place) if several else ""
    watched = seen if setting.splits else WHOLE
    # Numbers that a report had printed, of a result whose file is lost: rounded, without curves.
    mark = " · restored" if result.facts.get("restored") else ""
    whole = f"{design(result.spec, data)}{mark}"
    return Entry(file, result, setting, watched, whole, design(result.spec, data, whole=False))


def _told_apart(entries: list[Entry]) -> list[Entry]:
    """Designs that say the same of different results get the result's place, too.

    Such are results of other versions, other machines or another bootstrap.
    """
    names = [(each.setting, *_question(each), each.design) for each in entries]
    twice = {name for name, count in Counter(names).items() if count > 1}
    return [
        replace(each, design=f"{each.design} · {mark}", short=f"{each.short} · {mark}")
        if name in twice and (mark := f"{each.file.parent.name}/{each.file.stem}")
        else each
        for each, name in zip(entries, names, strict=True)
    ]


def _question(entry: Entry) -> tuple[str, ...]:
    return (entry.spec.attack, entry.observer, entry.spec.protocol, entry.spec.world)


def _identity(result: Numbers) -> str:
    """Equal for equal questions with equal answers, wherever they stand and whatever they took."""
    setting = Setting.of(result.spec, result.facts.get("recorded_split"))
    spec = result.spec.to_dict()
    if not setting.splits:
        # Without a split these settings do nothing.
        for name in ("every", "paths", "mode", "delays", "draw", "observer"):
            del spec[name]
    return json.dumps([spec, result.data, result.metrics], sort_keys=True)


def _place(entry: Entry) -> tuple[object, ...]:
    spec = entry.spec
    return (
        entry.setting.place,
        attack_place(spec.attack),
        entry.observer,
        spec.protocol,
        spec.world,
        not entry.full,
        entry.design,
        entry.file.name,
    )
