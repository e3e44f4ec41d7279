"""Comparison of each accuracy with that of the attack `size`, which uses only sizes of pages."""

from __future__ import annotations

import json
from collections.abc import Iterator

from anabranch.evaluate import Spec
from anabranch.report import published
from anabranch.report.collection import WHOLE, Collection, Entry
from anabranch.report.counter import COUNTER
from anabranch.report.setting import Setting, attack, attack_place, design, observer
from anabranch.report.tables import (
    NOT_RUN,
    Cell,
    Table,
    estimated,
    inline,
    listed,
    missing,
    plural,
)

SIZE = "size"
"""The attack that uses only the numbers of packets and bytes of each direction."""

Row = tuple[Setting, str, str]
"""A setting, the attack and the observer."""


def table(collection: Collection) -> Table:
    """Returns each attack's accuracy by setting and data set, next to that of the attack `size`."""
    places = data(collection)
    twins = _twins(collection)
    rows = [
        (
            Cell(str(setting), head=True),
            Cell(attack(name)),
            Cell("everything" if rule == WHOLE else observer(rule)),
            *(cell for place in places for cell in _pair(collection, twins, place, row)),
        )
        for row in wanted(collection)
        for setting, name, rule in (row,)
    ]
    note = (
        "The table compares each attack with “size alone”, a forest that uses only the number of "
        "packets and bytes in each direction, without order and time. Both have the same data, "
        "setting, observer and seed, in the design shown. Closed-world accuracy, honest "
        "protocol, 95 % intervals by page; no visible counter. A delay of packets does not "
        "change sizes, so it cannot lower the accuracy of “size alone”."
    )
    shown = [name for place in places for name in (_name(place, places), "size alone")]
    header = ("setting", "attack", "observer", *shown)
    return Table("sizes", "Recognised by the size alone", note, header, tuple(rows))


def findings(collection: Collection) -> Iterator[str]:
    """Yields a planned sweep's progress, and the strongest attack's range for each data set."""
    places = data(collection)
    for place in places if collection.planned else []:
        done = {_settings(entry.spec) for entry in collection if entry.result.data == place}
        left = [spec for spec in collection.planned if _settings(spec) not in done]
        names = dict.fromkeys(str(Setting.of(spec)) for spec in left)
        rest = f"; {NOT_RUN}: {listed(list(names), 6)}" if left else ""
        yield (
            f"{collection.data_name(place, short=True)}: {len(collection.planned) - len(left)} of "
            f"{len(collection.planned)} planned evaluations are complete{rest}."
        )
    for place in places:
        found = [entry for entry in _attacks(collection, place) if entry.setting.splits]
        for rule in dict.fromkeys(entry.observer for entry in found):
            yield _ends(
                collection.data_name(place, short=True),
                rule,
                [entry for entry in found if entry.observer == rule],
            )


def _ends(data: str, rule: str, found: list[Entry]) -> str:
    ordered = sorted(found, key=_accuracy)
    least, most = ordered[0], ordered[-1]
    text = " ".join(
        f"{word}: {entry.setting}, {attack(entry.attack)}, {inline(entry.estimate('accuracy'))}."
        for word, entry in (("Lowest", least), ("Highest", most))
    )
    of = f"{plural(len(found), 'result')} of split loads"
    return f"{data}, {observer(rule)}, {of}. {text}"


def data(collection: Collection) -> list[str]:
    """Returns the digests of the data sets in the table, those with most test loads first."""
    tests: dict[str, int] = {}
    for entry in filter(_counts, collection):
        # Results restored from a report's tables lack the number of test loads.
        place, loads = entry.result.data, int(entry.result.metrics.get("predictions", 0))
        tests[place] = max(loads, tests.get(place, 0))
    return sorted(tests, key=lambda each: (-tests[each], each))


def wanted(collection: Collection) -> list[Row]:
    """Returns the table's rows: those with a result both of the attack and of `size`.

    A full report, or a report about a planned sweep, also has rows without a result of `size`.
    Planned evaluations have rows too.
    """
    found = {_row(entry) for entry in collection if _counts(entry) and entry.attack != SIZE}
    sized = {
        (entry.setting, entry.observer)
        for entry in collection
        if _counts(entry) and entry.attack == SIZE
    }
    if not collection.paper:
        found = {row for row in found if (row[0], row[2]) in sized or collection.planned}
    for spec in collection.planned:
        setting = Setting.of(spec)
        if spec.attack.name != SIZE and spec.design.world == "closed":
            watched = str(spec.observer) if setting.splits else WHOLE
            found.add((setting, spec.attack.name, watched))
    return sorted(found, key=lambda row: (row[0].place, attack_place(row[1]), row[2]))


def _pair(
    collection: Collection, twins: dict[tuple[object, ...], Entry], place: str, row: Row
) -> tuple[Cell, Cell]:
    """Returns a row's two cells for one data set: accuracies of its attack, and of `size`."""
    entries = [entry for entry in _attacks(collection, place) if _row(entry) == row]
    if not entries:
        # The size alone may have a result before the attack does.
        bare = [twin for key, twin in twins.items() if key[:3] == (place, row[0], row[2])]
        return missing(), _cell(bare[:1])
    keys = dict.fromkeys(_twin(entry) for entry in entries)
    return _cell(entries), _cell([twins[key] for key in keys if key in twins])


def _cell(entries: list[Entry]) -> Cell:
    if not entries:
        return missing()
    values = [
        estimated(entry.estimate("accuracy"), design(entry.spec, whole=False), shaded=True)
        for entry in entries
    ]
    return Cell(values=tuple(values))


def _twins(collection: Collection) -> dict[tuple[object, ...], Entry]:
    """Returns the results of the attack `size`, by their `_twin`; full designs take precedence."""
    sizes = [each for each in collection if _counts(each) and each.spec.attack.name == SIZE]
    return {_twin(entry): entry for entry in sorted(sizes, key=lambda each: each.full)}


def _twin(entry: Entry) -> tuple[object, ...]:
    """Returns the key that a result shares with the result of `size` to compare it with."""
    return (entry.result.data, entry.setting, entry.observer, entry.spec.seed)


def _attacks(collection: Collection, place: str) -> list[Entry]:
    return [
        entry
        for entry in collection
        if _counts(entry) and entry.attack != SIZE and entry.result.data == place
    ]


def _counts(entry: Entry) -> bool:
    spec = entry.spec
    plain = not entry.observer.endswith(COUNTER)
    return spec.design.world == "closed" and spec.design.protocol == "honest" and plain


def _row(entry: Entry) -> Row:
    return (entry.setting, entry.attack, entry.observer)


def _accuracy(entry: Entry) -> float:
    return entry.estimate("accuracy")["value"] or 0.0


def _settings(spec: Spec) -> str:
    return json.dumps(spec.to_dict(), sort_keys=True)


def _name(place: str, places: list[str]) -> str:
    return "accuracy" if len(places) == 1 else published.short_name(place)
