"""Results of sweeps, selected by their settings rather than by names of files or runs."""

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
"""The observer of unsplit loads: with a single path, all observers are the same."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A result with the names that tables use for it.

    Attributes:
        file: the result's file.
        result: its numbers.
        setting: the defender's choices.
        observer: as in `Spec`; `WHOLE` for unsplit loads.
        design: the attacker's training, as text.
        short: `design` for figures, without the attack's own parameters.
    """

    file: Path
    result: Numbers
    setting: Setting
    observer: str
    design: str
    short: str

    @property
    def attack(self) -> str:
        """The name of the result's attack."""
        return self.spec.attack.name

    @property
    def spec(self) -> Spec:
        """All settings of the evaluation that gave this result."""
        return self.result.spec

    @property
    def run_name(self) -> str | None:
        """The result's name in a sweep."""
        name = self.result.facts.get("run_name")
        return None if name is None else str(name)

    @property
    def full(self) -> bool:
        """Whether the evaluation used all pages and all loads."""
        return full(self.spec)

    @property
    def accuracy(self) -> float:
        """The result's accuracy without its interval; 0 if it is undefined."""
        return self.estimate("accuracy")["value"] or 0.0

    def estimate(self, name: str) -> dict[str, float | None]:
        """Returns a metric's value and interval."""
        found: dict[str, float | None] = self.result.metrics[name]
        return found


class Collection:
    """All results of a report.

    Attributes:
        entries: ordered by setting, attack, observer, protocol, world and design.
        paper: whether the report is a full report: it shows the CoMPS paper's tables in full, with
            marks where a result is missing. Otherwise it shows existing results only.
        planned: evaluations of a sweep; the report marks those without a result.
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
        """Reads all results of `sources`, without duplicates.

        Args:
            sources: folders of results (`*.json`), and files with the text of `lines` (`*.jsonl`).
            paper: as the attribute of this name.
            planned: as the attribute of this name.

        Raises:
            TraceError: if a source cannot be read or has no results, or a file is not a result.
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
        """Returns entries with these values; None is any. Unsplit loads match every observer."""
        return [
            entry
            for entry in self.entries
            if (setting is None or entry.setting == setting)
            and attack in (None, entry.attack)
            and world in (None, entry.spec.design.world)
            and protocol in (None, entry.spec.design.protocol)
            and (observer is None or entry.observer in (observer, WHOLE))
        ]

    def like(self, setting: Setting, attack: str, protocol: str) -> list[Entry]:
        """Returns the entries comparable with the paper's: open world, an observer of one path."""
        chosen = self.select(attack=attack, world="open", protocol=protocol, observer="random")
        return [entry for entry in chosen if entry.setting.like(setting)]

    @property
    def rule(self) -> str:
        """The one-path observer that comparisons use.

        It is `random`, as in the paper. If no result has it, it is the one-path observer with the
        most results.
        """
        one_path = ("largest", "any", "largest+counter", "any+counter", "random+counter")
        rules = [entry.observer for entry in self.entries]
        others = Counter(rule for rule in rules if rule in one_path)
        return "random" if "random" in rules or not others else others.most_common(1)[0][0]

    def data_name(self, digest: str, *, short: bool = False) -> str:
        """Returns the readable name of a data set: a known name, or that of the evaluated file."""
        files = (each.result.facts.get("file") for each in self.entries
                 if each.result.data == digest)  # fmt: skip
        file = next((str(name) for name in files if name), None)
        return published.short_name(digest, file) if short else published.data_name(digest, file)

    @property
    def settings(self) -> list[Setting]:
        """All settings in the order of tables."""
        return sorted({entry.setting for entry in self.entries}, key=lambda each: each.place)

    @property
    def attacks(self) -> list[str]:
        """The attacks with a result, in the order of tables."""
        return sorted({entry.attack for entry in self.entries}, key=attack_place)

    @property
    def one_path_attacks(self) -> list[str]:
        """Attacks with a result for one path, and in a full report also the expected attacks."""
        found = {entry.attack for entry in self.select(observer=self.rule)}
        return sorted({*(EXPECTED if self.paper else ()), *found}, key=attack_place)

    def lines(self) -> str:
        """Returns all results' numbers for `read`: a line for each, with the name of its file."""
        parts = (
            results.line(f"{entry.file.parent.name}/{entry.file.name}", entry.result)
            for entry in sorted(self.entries, key=lambda entry: entry.file.name)
        )
        return "".join(parts)

    def elapsed(self, kind: str = "cpu_s") -> float:
        """Returns the seconds of all results together, `cpu_s` or `wall_s`."""
        return sum(entry.result.elapsed[kind] for entry in self.entries)


def _found(place: Path) -> list[tuple[Path, Numbers]]:
    """Returns the results of a folder or of a file of lines, each with the name of its file."""
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
    """Returns one result, checked as far as a report needs it."""
    with _readable(file):
        result = results.load(file)
        _check(result)
    return result


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Converts every error in the content of `file` to an error with its name."""
    try:
        yield
    except TraceError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(f"not a readable result: {error!r}", file=file) from error


def _check(result: Numbers) -> None:
    """Checks a result: reads every value that tables and figures use."""
    metrics, closed = result.metrics, result.spec.design.world == "closed"
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
    float(result.elapsed["cpu_s"]) + float(result.elapsed["wall_s"])


def _interval(estimate: dict[str, Any]) -> None:
    for name in ("value", "low", "high"):
        value = estimate[name]
        if value is not None:
            float(value)


def _entry(file: Path, result: Numbers, several: bool) -> Entry:
    setting = Setting.of(result.spec, result.facts.get("recorded_split"))
    each_path = result.spec.design.protocol == "paper"
    seen = "random" if each_path else str(result.spec.observer)
    place = result.facts.get("file") or f"data {result.data[:6] or '?'}"
    data = str(place) if several else ""
    watched = seen if setting.splits else WHOLE
    # These numbers are from a printed report, because the result's file is lost: they are rounded,
    # and lack curves.
    mark = " · restored" if result.facts.get("restored") else ""
    whole = f"{design(result.spec, data)}{mark}"
    return Entry(file, result, setting, watched, whole, design(result.spec, data, whole=False))


def _told_apart(entries: list[Entry]) -> list[Entry]:
    """Returns the entries; different results with equal names get their file names in `design`.

    Such results come from other versions, other machines or another bootstrap.
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
    design = entry.spec.design
    return (entry.attack, entry.observer, design.protocol, design.world)


def _identity(result: Numbers) -> str:
    """Returns a key that is equal for results with equal settings and numbers, in any file."""
    setting = Setting.of(result.spec, result.facts.get("recorded_split"))
    spec = result.spec.to_dict()
    if not setting.splits:
        # Without a split these settings have no effect.
        for name in ("every", "paths", "mode", "delays", "draw", "observer"):
            del spec[name]
    return json.dumps([spec, result.data, result.metrics], sort_keys=True)


def _place(entry: Entry) -> tuple[object, ...]:
    spec = entry.spec
    return (
        entry.setting.place,
        attack_place(spec.attack.name),
        entry.observer,
        spec.design.protocol,
        spec.design.world,
        not entry.full,
        entry.design,
        entry.file.name,
    )
