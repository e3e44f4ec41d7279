"""Accuracy of attacks with and without a cleartext packet counter, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.evaluate.attack import known
from anabranch.report.collection import WHOLE, Collection, Entry
from anabranch.report.setting import attack, attack_place, observer
from anabranch.report.tables import Cell, Table, estimated, inline, missing

COUNTER = "+counter"
"""Suffix of the name of an observer that reads a cleartext counter."""

MASKED = "QUIC, whose packet numbers are masked (RFC 9001, 5.4)"
SHOWN = "WireGuard and Mosh, whose counters are not encrypted"

_SUMMED_UP = ("rf", "k-fp", "rocket", "forest")
"""Attacks that the findings name individually; the table has the others."""

Pair = tuple[Entry, Entry | None]


def pairs(collection: Collection) -> list[Pair]:
    """Pairs each closed-world result without a counter with the same evaluation with a counter.

    Attacks that cannot use counters are left out.
    """
    found = collection.select(world="closed", protocol="honest")
    twins = {_question(entry): entry for entry in found if entry.observer.endswith(COUNTER)}
    bare = (
        entry
        for entry in found
        if entry.observer != WHOLE and not entry.observer.endswith(COUNTER)
        if _uses_counter(entry.attack)
    )
    return [(entry, twins.get(_question(entry))) for entry in bare]


def table(collection: Collection) -> Table:
    """Returns a table of the counter's effect, by setting."""
    rows = []
    for entry, twin in sorted(pairs(collection), key=_place):
        if twin is None and not collection.paper:
            continue
        rows.append(
            (
                Cell(str(entry.setting), head=True),
                Cell(attack(entry.attack)),
                Cell(observer(entry.observer)),
                _accuracy(entry, entry.design),
                missing() if twin is None else _accuracy(twin),
            )
        )
    note = (
        "Closed-world accuracy of attacks without and with the packet counter; honest protocol, "
        f"95 % intervals by page. Without: {MASKED}. With: {SHOWN}. From the counter in each "
        "packet the observer learns how many packets all paths have carried in this direction "
        "since the load began. Attacks that cannot use the counter are left out."
    )
    header = ("setting", "attack", "observer", "without the counter", "with it")
    return Table("counter", "Effect of an unencrypted counter", note, header, tuple(rows))


def findings(collection: Collection) -> Iterator[str]:
    """Yields the protocols for which the page's numbers are valid, then effects of the counter."""
    yield (
        "All numbers of this page, except those “with the counter”, are for packets without a "
        f"visible counter: {MASKED}, or a far end that hides the counter. They are not valid for "
        f"{SHOWN}. There the observer of one path sees gaps in the counter, and learns how many "
        "packets all paths carry, and when."
    )
    known = [(bare, twin) for bare, twin in pairs(collection) if twin is not None]
    if not known and collection.paper:
        yield "No evaluation with the counter was run."
    for bare, twin in sorted(known, key=_place):
        if bare.attack in _SUMMED_UP and bare.observer == "largest":
            yield (
                f"{attack(bare.attack)}, {bare.setting}, {observer(bare.observer)} "
                f"[{bare.short}]: {inline(bare.estimate('accuracy'))} without the counter, "
                f"{inline(twin.estimate('accuracy'))} with it."
            )


def _accuracy(entry: Entry, design: str = "") -> Cell:
    return Cell(values=(estimated(entry.estimate("accuracy"), design, shaded=True),))


def _uses_counter(name: str) -> bool:
    """Returns whether an attack can use counters; False for a third-party one that is missing."""
    kind = known(name)
    return kind is not None and kind.uses_counter


def _question(entry: Entry) -> tuple[object, ...]:
    """Returns a key that results have in common if they differ only in the counter."""
    rule = entry.observer.removesuffix(COUNTER)
    return (entry.setting, entry.attack, rule, entry.design, entry.result.data)


def _place(pair: Pair) -> tuple[object, ...]:
    """Sort key: pairs with both results first; then as in other tables, `largest` first."""
    entry, twin = pair
    where = (entry.setting.place, attack_place(entry.attack), entry.observer, entry.design)
    return (twin is None, *where)
