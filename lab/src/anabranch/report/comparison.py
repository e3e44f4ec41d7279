"""The CoMPS paper's Tables 3 to 6 next to our results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.report import published
from anabranch.report.collection import Collection, Entry
from anabranch.report.setting import Setting, attack, attack_place
from anabranch.report.tables import Cell, Table, Value, estimated, missing, percent

UNDEFENDED = Setting()
WR = Setting("weighted", "50p", 3)
"""The paper's default setting: weighted random (WR), runs of 50 packets, three paths."""
WR_TIME = Setting("weighted", "100ms", 3)
STRATEGIES = (Setting("round-robin", "50p", 3), Setting("uniform", "50p", 3), WR)
LENGTHS = (WR, Setting("weighted", "100p", 3), Setting("weighted", "200p", 3))
PATHS = (Setting("weighted", "50p", 2), WR, Setting("weighted", "50p", 5))
PADDED = Setting(defence="wtf-pad")
COMBINED = (UNDEFENDED, PADDED, WR, Setting("weighted", "50p", 3, defence="wtf-pad"))

COLLECTED = Setting(recorded="weighted --every 100ms")
"""The setting of Table 6, whose loads were really split."""
COLLECTED_ATTACKS = ("df", "p-fp", "var-cnn")

PAPERS = tuple(
    dict.fromkeys([UNDEFENDED, *STRATEGIES, *LENGTHS, *PATHS, WR_TIME, *COMBINED]),
)
"""All settings of the paper's simulated evaluation."""

PROTOCOLS = {"honest": "ours", "paper": "ours, with the paper's protocol"}
RATES = ("r_precision", "recall", "f1")

_HEADER = ("setting", "attack", "source", "design", "r-precision", "recall", "F1")


def tables(collection: Collection) -> list[Table]:
    """Returns Tables 3, 4, 5 and 6, all for the open world."""
    parameters = (UNDEFENDED, *dict.fromkeys([*STRATEGIES, *PATHS, *reversed(LENGTHS)]))
    both = {*COMBINED, *parameters} - {UNDEFENDED, WR}
    others = _attacks_in(collection, both)
    return [
        _table(
            collection,
            "Table 3",
            "undefended and WR 50p × 3, by attack",
            collection.one_path_attacks,
            (UNDEFENDED, WR),
        ),
        _table(collection, "Table 4", "splitting and WTF-PAD", others, COMBINED),
        _table(collection, "Table 5", "schedules, run lengths, paths", others, parameters),
        _table(
            collection,
            "Table 6",
            "loads that were really split, WR 100 ms × 3, by attack",
            COLLECTED_ATTACKS,
            (COLLECTED,),
        ),
    ]


def coverage(collection: Collection) -> tuple[int, int]:
    """Returns two numbers: the paper's points with a result by the honest protocol, and all."""
    points = published.points()
    there = [bool(collection.like(each.setting, each.attack, "honest")) for each in points]
    return sum(there), len(points)


def _attacks_in(collection: Collection, settings: set[Setting]) -> list[str]:
    """Returns attacks with a result in `settings`; in a full report also DF and RF."""
    found = {"df", "rf"} if collection.paper else set()
    for name in collection.attacks:
        for protocol in PROTOCOLS:
            if any(collection.like(setting, name, protocol) for setting in settings):
                found.add(name)
    return sorted(found, key=attack_place)


def _table(
    collection: Collection,
    source: str,
    about: str,
    attacks: Sequence[str],
    settings: Sequence[Setting],
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    groups = set()
    for name in attacks:
        begin = len(rows)
        for setting in settings:
            rows += _rows(collection, source, name, setting)
        groups |= {begin} if len(rows) > begin else set()
    note = (
        f"Open world, r = 20. {published.name()}: as published, on other data; each sub-trace is a "
        "separate sample in training and test. Ours: the observer sees one path, chosen at random "
        "for each load; the threshold has the best F1 on other loads and pages; 95 % intervals by "
        "page. Ours, with the paper's protocol: every path is a sample, the most probable class "
        "counts, and unmonitored pages are in training and in test."
    )
    key = source.lower().replace(" ", "-")
    return Table(key, f"{source}: {about}", note, _HEADER, tuple(rows), frozenset(groups))


def _rows(
    collection: Collection, source: str, name: str, setting: Setting
) -> Iterator[tuple[Cell, ...]]:
    head = (Cell(str(setting), head=True), Cell(attack(name)))
    point = published.found(name, setting, source)
    entries = {protocol: collection.like(setting, name, protocol) for protocol in PROTOCOLS}
    if not collection.paper and (point is None or not any(entries.values())):
        return
    if point is not None:
        numbers = [_value(getattr(point, rate)) for rate in RATES]
        yield (*head, Cell(f"{published.name()}, {source}"), Cell("as published"), *numbers)
    if not entries["honest"] and collection.paper:
        yield (*head, Cell(PROTOCOLS["honest"]), Cell("–"), *(missing() for _ in RATES))
    for protocol, found in entries.items():
        for entry in found:
            yield (_head(entry), head[1], Cell(PROTOCOLS[protocol]), *_numbers(entry))


def _head(entry: Entry) -> Cell:
    return Cell(str(entry.setting), head=True)


def _numbers(entry: Entry) -> tuple[Cell, ...]:
    rates = [Cell(values=(estimated(entry.estimate(rate)),)) for rate in RATES]
    return (Cell(entry.design), *rates)


def _value(rate: float | None) -> Cell:
    return Cell("not given") if rate is None else Cell(values=(Value(percent(rate)),))
