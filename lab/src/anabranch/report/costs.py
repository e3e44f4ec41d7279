"""Comparison of splits and padding: recognition by the strongest attack against a setting's cost.

The observer of a split load sees the path with most packets; the observer of an unsplit load with
padding or shaping sees all packets. Only results with all pages and loads (full designs) are used,
because results of a weaker attacker do not show that a setting is safer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from anabranch.defences import Jitter
from anabranch.defences.texts import parse
from anabranch.report import published, sizes
from anabranch.report.collection import WHOLE, Collection, Entry
from anabranch.report.comparison import UNDEFENDED
from anabranch.report.setting import Setting, attack, attack_place, design
from anabranch.report.tables import (
    Cell,
    Table,
    Value,
    estimated,
    inline,
    listed,
    missing,
    percent,
    plural,
)

SPLIT, PADDING, NOTHING = "split by us", "padding and shaping", "undefended"
"""Kinds of settings. Our splits may be padded or delayed as well."""

BELOW, ABOVE, ALIKE, NONE = "below", "above", "no clear difference", "nothing at equal cost"
"""Comparisons of our best setting with a defence: our whole interval is below, or above, the
defence's whole interval; the intervals overlap; or no setting of ours costs as little.
"""

TIME = (
    "Time is not the time that a user waits. It is the delay of the last packet of a recorded "
    "load, computed afterwards. The recorded TCP does not react to the delay, but a real one slows "
    "down. `docs/results/schedules.md` has the effect of a delay on goodput, measured with real "
    "splitters."
)

_EQUAL = (
    "“At equal cost” means: with at most the same bytes added and the same time added and, if "
    "both are known, at most the same delay of a packet. The time for which a shaper holds a "
    "packet is not measured."
)

_PRICES = ("bytes added", "time added", "random delay")

_PADS = ("front", "wtf-pad", "decoys")
"""Families of defences that delay no packet."""

Judge = tuple[str, int]
"""An attack and its seed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a setting on the test loads.

    Attributes:
        added: bytes for each real byte.
        time: seconds for each second that loads took.
        delay: mean delay of a packet in seconds, up and down, or None if unknown.
    """

    added: float
    time: float
    delay: tuple[float, float] | None

    def within(self, other: Cost) -> bool:
        """Returns whether no cost is higher than that of `other`, rounded as in tables.

        Delays are compared if both are known.
        """
        delays = zip(self.delay or (), other.delay or (), strict=False)
        pairs = [*zip(_shown(self), _shown(other), strict=True), *delays]
        return all(mine <= theirs for mine, theirs in pairs)


@dataclass(frozen=True, slots=True)
class Point:
    """A setting on one data set.

    Attributes:
        kind: `SPLIT`, `PADDING` or `NOTHING`.
        entry: the strongest result of the judges.
        cost: the cost of the setting on these loads.
        other: the strongest result of another attack or seed, or None.
    """

    kind: str
    entry: Entry
    cost: Cost
    other: Entry | None = None

    @property
    def setting(self) -> Setting:
        """The defender's setting (split and padding) of this point."""
        return self.entry.setting

    @property
    def value(self) -> float:
        """The share of loads that the strongest attack recognises."""
        return self.entry.accuracy

    def beats(self, other: Point) -> bool:
        """Returns whether this point is better than `other` in one respect, and worse in none.

        The respects are cost (`Cost.within`) and recognition.
        """
        good = self.value <= other.value and self.cost.within(other.cost)
        return good and (self.value < other.value or not other.cost.within(self.cost))


@dataclass(frozen=True, slots=True)
class Panel:
    """The points of one data set.

    Attributes:
        data: its digest.
        judges: attacks with seeds that have results in at least half of the settings of each kind,
            `SPLIT` and `PADDING`. A point shows the strongest of them.
        points: settings with results of all judges and with known costs.
        left: settings without results of all judges.
    """

    data: str
    judges: tuple[Judge, ...]
    points: tuple[Point, ...]
    left: tuple[Setting, ...]

    @property
    def name(self) -> str:
        """The readable name of the data."""
        return published.short_name(self.data)

    def of(self, kind: str) -> list[Point]:
        """Returns the points of a kind, the cheapest in bytes first, then the least recognised."""
        return sorted((point for point in self.points if point.kind == kind), key=_place)

    def front(self) -> list[Point]:
        """Returns the points that no point of the same kind (split or padding) beats."""
        return [
            point
            for point in sorted(self.points, key=_place)
            if not any(other.beats(point) for other in self.points if other.kind == point.kind)
        ]

    def best(self, defence: Point) -> Point | None:
        """Returns our least recognised point that costs at most as much as `defence`."""
        within = [each for each in self.of(SPLIT) if each.cost.within(defence.cost)]
        return min(within, key=lambda each: (each.value, *_place(each)), default=None)

    def verdict(self, defence: Point) -> str:
        """Compares our best point with a defence: `BELOW`, `ABOVE`, `ALIKE` or `NONE`."""
        ours = self.best(defence)
        if ours is None:
            return NONE
        mine, theirs = (each.entry.estimate("accuracy") for each in (ours, defence))
        if _less(mine["high"], theirs["low"]):
            return BELOW
        return ABOVE if _less(theirs["high"], mine["low"]) else ALIKE


@lru_cache(maxsize=1)  # called three times for a page: for findings, tables and figure
def panels(collection: Collection) -> tuple[Panel, ...]:
    """Returns each data set with results of both kinds, in the order of `sizes.data`."""
    found = (_panel(collection, data) for data in sizes.data(collection))
    return tuple(panel for panel in found if panel is not None)


def tables(found: Sequence[Panel]) -> tuple[Table, Table]:
    """Returns a table of the fronts, and a table that compares each defence with our best setting.

    Args:
        found: as returned by `panels`.
    """
    return _fronts(found), _defences(found)


def _fronts(found: Sequence[Panel]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    groups = set()
    for panel in found:
        groups.add(len(rows))
        rows += [
            (
                Cell(panel.name),
                Cell(str(point.setting), head=True),
                Cell(point.kind),
                _recognised(point.entry),
                Cell(attack(point.entry.attack)),
                *_prices(point.cost),
                missing() if point.other is None else _recognised(point.other, whole=True),
            )
            for point in panel.front()
        ]
    note = (
        "The table shows the settings that no other setting of their kind beats: no other is at "
        "least as good in bytes, time, delay and recognition, and better in one of them. Costs "
        "are compared as shown; delays are compared only if both are known. Recognised: "
        "closed-world accuracy of the strongest attack among the judges, honest protocol, full "
        f"design, 95 % intervals by page. {_judging(found)} The observer of a split load sees the "
        "fullest path, that of an unsplit load all packets. Other attacks or seeds: the "
        "strongest other result. It cannot be compared, because some settings have none. Delay: "
        "the mean random delay of a packet at each end. In a burst, packets also wait for "
        "earlier packets, for the longest delay at most. The time for which shapers hold a "
        "packet is not measured."
    )
    header = ("data", "setting", "kind", "recognised", "by", *_PRICES, "other attacks or seeds")
    return Table("costs", "Privacy against cost", note, header, tuple(rows), frozenset(groups))


def _defences(found: Sequence[Panel]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    groups = set()
    for panel in found:
        groups.add(len(rows))
        front = panel.front()
        for point in panel.of(PADDING):
            ours = panel.best(point)
            ours_cells = [Cell(NONE), *(Cell("–") for _ in ("recognised", "by", *_PRICES))]
            if ours is not None:
                ours_cells = [Cell(str(ours.setting)), *_numbers(ours)]
            rows.append(
                (
                    Cell(panel.name),
                    Cell(str(point.setting), head=True),
                    *_numbers(point),
                    Cell("yes" if point in front else "no"),
                    *ours_cells,
                    Cell(panel.verdict(point)),
                )
            )
    note = (
        "Next to each defence is the setting of ours with the lowest recognition, among settings "
        "that cost at most the same in bytes, in time and, if both are known, in delay. “Below”: "
        "the whole interval of our setting is below the whole interval of the defence. “Above”: "
        "the opposite. Otherwise there is no clear difference. The best of many settings is "
        "partly the best by chance. A split needs several paths whose observers do not "
        "cooperate; padding needs one path."
    )
    header = ("data", "defence", "recognised", "by", *_PRICES, "on the front",
              "our best", "recognised", "by", *_PRICES, "ours is")  # fmt: skip
    title = "Padding and shaping, and our best setting at equal cost"
    return Table("costs-defences", title, note, header, tuple(rows), frozenset(groups))


def findings(collection: Collection) -> Iterator[str]:
    """Yields definitions of time and of equal cost, then one comparison for each data set.

    A comparison lists the defences under which more loads are recognised than under our best
    setting at equal cost, then the other defences.
    """
    found = panels(collection)
    if found:
        yield TIME
        yield _EQUAL
    for panel in found:
        defences = panel.of(PADDING)
        stand: dict[str, list[Point]] = {BELOW: [], ALIKE: [], ABOVE: [], NONE: []}
        for point in defences:
            stand[panel.verdict(point)].append(point)
        below = stand.pop(BELOW)
        names = f" ({_names(point.setting for point in below)})" if below else ""
        rest = "".join(
            f" {word.capitalize()}: {'; '.join(_beside(panel, each) for each in those)}."
            for word, those in stand.items()
            if those
        )
        left = f" Not tested with all of these attacks: {_names(panel.left)}." if panel.left else ""
        beaten = f"less than {len(below)} of" if below else "less than none of"
        yield (
            f"{panel.name}, attacked by {_said(panel.judges)}: at equal cost our best setting is "
            f"recognised {beaten} {plural(len(defences), 'defence')} by padding and shaping{names}."
            f"{rest}{left}"
        )


def _panel(collection: Collection, data: str) -> Panel | None:
    entries: dict[Setting, list[Entry]] = {}
    for entry in collection.select(world="closed", protocol="honest"):
        if entry.result.data == data and entry.full and _kind(entry) is not None:
            entries.setdefault(entry.setting, []).append(entry)
    judges = _judges(entries.values())
    if not judges:
        return None
    points, left = [], []
    for setting, own in entries.items():
        judging = [entry for entry in own if _judge(entry) in judges]
        if {_judge(entry) for entry in judging} != set(judges):
            left.append(setting)
            continue
        entry = _strongest(judging)
        cost, kind = _cost(entry), _kind(entry)
        others = [each for each in own if _judge(each) not in judges]
        if cost is not None and kind is not None:
            points.append(Point(kind, entry, cost, _strongest(others) if others else None))
    if not {SPLIT, PADDING} <= {point.kind for point in points}:
        return None
    return Panel(data, judges, tuple(points), tuple(left))


def _judges(found: Iterable[Sequence[Entry]]) -> tuple[Judge, ...]:
    """Returns attacks and seeds with results in at least half of the settings of each kind."""
    asked: dict[str | None, list[set[Judge]]] = {SPLIT: [], PADDING: []}
    for own in found:
        asked.setdefault(_kind(own[0]), []).append({_judge(entry) for entry in own})
    names = {name for sets in asked.values() for each in sets for name in each}
    common = [
        name
        for name in names
        if all(2 * sum(name in each for each in asked[kind]) >= len(asked[kind]) > 0
               for kind in (SPLIT, PADDING))
    ]  # fmt: skip
    return tuple(sorted(common, key=lambda name: (attack_place(name[0]), name[1])))


def _kind(entry: Entry) -> str | None:
    """Returns the kind of the setting; None if it is not compared.

    Recorded splits, and splits under another observer than `largest`, are not compared.
    """
    setting = entry.setting
    if setting.schedule is not None:
        return SPLIT if entry.observer == "largest" else None
    if setting == UNDEFENDED:
        return NOTHING
    return PADDING if entry.observer == WHOLE else None


def _cost(entry: Entry) -> Cost | None:
    """Returns the cost of the most expensive fold; None if it is unknown."""
    setting = entry.setting
    if setting.delays:
        # The time that delays on the paths add to loads has not been measured.
        return None
    if setting.defence is None and setting.path_defence is None:
        return Cost(0.0, 0.0, (0.0, 0.0))
    costs = [fold["overhead"] for fold in entry.result.facts["folds"]]
    known = [(cost["bandwidth"], cost["time"]) for cost in costs if cost is not None]
    if not known or any(part is None for pair in known for part in pair):
        return None
    added, time = (max(parts) for parts in zip(*known, strict=True))
    return Cost(float(added), float(time), _delay(setting, float(time)))


def _delay(setting: Setting, time: float) -> tuple[float, float] | None:
    """Returns a packet's mean delay, seconds up and down; None if a defence's is unknown."""
    up = down = 0.0
    for text in filter(None, (setting.defence, setting.path_defence)):
        family = text.partition(":")[0]
        if family == Jitter.name:
            jitter = parse(text)
            assert isinstance(jitter, Jitter)
            up, down = up + jitter.drawn[0], down + jitter.drawn[1]
        elif family not in _PADS and time != 0:
            return None
    return up, down


def _shown(cost: Cost) -> tuple[float, float]:
    """Returns added bytes and time, rounded to a tenth of a percent."""
    return round(cost.added, 3), round(cost.time, 3)


def _numbers(point: Point) -> tuple[Cell, ...]:
    name = attack(point.entry.attack)
    return (_recognised(point.entry), Cell(name), *_prices(point.cost))


def _recognised(entry: Entry, *, whole: bool = False) -> Cell:
    """Returns a result's accuracy with its design; with `whole`, also with the attack."""
    trained = design(entry.spec, whole=False)
    words = f"{attack(entry.attack)} · {trained}" if whole else trained
    return Cell(values=(estimated(entry.estimate("accuracy"), words, shaded=True),))


def _prices(cost: Cost) -> list[Cell]:
    texts = (percent(cost.added), percent(cost.time), _milliseconds(cost.delay))
    return [Cell(values=(Value(text),)) for text in texts]


def _milliseconds(delay: tuple[float, float] | None) -> str:
    if delay is None:
        return "not measured"
    up, down = (f"{1000 * part:g}" for part in delay)
    return f"{up} ms" if up == down else f"{up} ms up, {down} ms down"


def _beside(panel: Panel, defence: Point) -> str:
    """Describes a defence and our best setting at equal cost, for use in sentences."""
    both = [each for each in (defence, panel.best(defence)) if each is not None]
    return ", compared with ".join(
        f"{each.setting} {inline(each.entry.estimate('accuracy'))}" for each in both
    )


def _judging(found: Sequence[Panel]) -> str:
    """Lists the judging attacks, once if they are the same everywhere."""
    words = {panel.name: _said(panel.judges) for panel in found}
    if len(set(words.values())) == 1:
        return f"Judges: {next(iter(words.values()))}."
    return f"Judges: {'; '.join(f'on {name} {text}' for name, text in words.items())}."


def _said(judges: Sequence[Judge]) -> str:
    return listed([f"{attack(name)} (seed {seed})" for name, seed in judges])


def _names(settings: Iterable[Setting]) -> str:
    return listed([str(each) for each in settings])


def _place(point: Point) -> tuple[object, ...]:
    return (_shown(point.cost)[0], point.value, point.setting.place)


def _strongest(entries: Iterable[Entry]) -> Entry:
    return max(entries, key=lambda entry: (entry.accuracy, entry.design))


def _judge(entry: Entry) -> Judge:
    return entry.attack, entry.spec.seed


def _less(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one < other
