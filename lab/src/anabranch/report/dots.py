"""Accuracy of settings and observers as dots with intervals, and by the share seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from anabranch.report import beyond
from anabranch.report.collection import Collection, Entry
from anabranch.report.comparison import PAPERS
from anabranch.report.drawing import (
    DASHES,
    FOOT,
    MARKS,
    MUTED,
    PALETTE,
    Figure,
    colour_of,
    draw,
    not_run,
    percent_axis,
    place,
)
from anabranch.report.setting import Setting, attack, attack_place, observer

_ROW, _TALL_ROW = 0.2, 0.42
"""Height in inches of a setting's row with one mark per design, and with one per observer."""
_NAMES, _PAGE, _GAP = 2.35, 11.0, 0.18
"""Inches: width of the settings' names, maximum width of a figure, gap between panels."""
_PANEL = (2.4, 1.8, 0.55)
"""Inches of a panel of `_shares`: width, height, and the space above and below the panel."""


def figures(collection: Collection, source: str) -> list[Figure]:
    """Draws the figures that have at least one result."""
    drawn = []
    if collection.select(world="closed", protocol="honest", observer=collection.rule):
        drawn.append(_closed_world(collection, source))
    if beyond.watched_pairs(collection):
        drawn.append(_observers(collection, source))
    shown = _shared_settings(collection)
    if any(entry.setting in shown for entry in beyond.shared(collection)):
        drawn.append(_shares(collection, source))
    return drawn


def _closed_world(collection: Collection, source: str) -> Figure:
    names = _attacks(collection.select(world="closed", protocol="honest", observer=collection.rule))

    def fill(axes: Axes, name: str, y: int, setting: Setting) -> bool:
        entries = beyond.closed(collection, setting, name)
        for shift, entry in _spread(entries):
            _dot(axes, y + shift, entry, colour_of(name), "o")
        return bool(entries)

    note = (
        "Share of the loads whose page is recognised, by setting. Observer: "
        f"{observer(collection.rule)}; honest protocol. Bars are 95 % intervals by page. Filled "
        "dots: all pages and loads (full design). Hollow dots: a reduced design, which makes the "
        "attack weaker; the table describes each design. Dotted lines: chance."
    )
    chance = {name: _chance(collection, name) for name in names}
    chart = _Chart(names, beyond.closed_settings(collection), fill, _ROW, chance)
    title = "Closed-world accuracy by setting and attack"
    return _dotted("figure-closed-world", title, note, source, chart)


def _observers(collection: Collection, source: str) -> Figure:
    pairs = beyond.watched_pairs(collection)
    rules = beyond.watched(collection)
    looks = [(PALETTE[n % len(PALETTE)], MARKS[n % len(MARKS)]) for n in range(len(rules))]

    def fill(axes: Axes, name: str, y: int, setting: Setting) -> bool:
        # A row in which only the report's observer has results would compare nothing.
        for number, rule in enumerate(rules if (setting, name) in pairs else []):
            found = collection.select(
                setting, name, world="closed", protocol="honest", observer=rule
            )
            shift = (number - (len(rules) - 1) / 2) * 0.17
            for more, entry in _spread(found, 0.06):
                _dot(axes, y + shift + more, entry, *looks[number])
        return (setting, name) in pairs

    note = (
        "Share of the loads whose page is recognised, by what the observer sees. Closed world, "
        "honest protocol; bars are 95 % intervals by page. Filled marks: full design; hollow "
        "marks: a reduced design. If an observer has no mark, its evaluation was not run."
    )
    names = sorted({name for _, name in pairs}, key=attack_place)
    rows = sorted({setting for setting, _ in pairs}, key=lambda each: each.place)
    keys = [(observer(rule), *look) for rule, look in zip(rules, looks, strict=True)]
    chart = _Chart(names, rows, fill, _TALL_ROW, keys=keys)
    title = "Closed-world accuracy by what the observer sees"
    return _dotted("figure-observers", title, note, source, chart)


@dataclass(frozen=True, slots=True)
class _Chart:
    """A panel for each attack, a row for each setting.

    Attributes:
        names: the attacks.
        rows: the settings.
        fill: draws an attack's results in a setting at a height; returns whether there are any.
        row: inches of a row.
        chance: an accuracy to mark in each attack's panel.
        keys: entries of the legend: text, colour, mark.
    """

    names: Sequence[str]
    rows: Sequence[Setting]
    fill: Callable[[Axes, str, int, Setting], bool]
    row: float
    chance: Mapping[str, float] = field(default_factory=dict)
    keys: Sequence[tuple[str, str, str]] = ()


def _dotted(key: str, title: str, note: str, source: str, chart: _Chart) -> Figure:
    panels, top = len(chart.names), 0.6 if chart.keys else 0.3
    width = min(3.2, (_PAGE - _NAMES) / panels - _GAP)
    height = len(chart.rows) * chart.row

    def paint(drawing: Drawing) -> None:
        for number, name in enumerate(chart.names):
            left = _NAMES + number * (width + _GAP)
            axes = place(drawing, left, top, width, height)
            _panel(axes, name, chart, named=number == 0)
        if chart.keys:
            _legend(drawing, chart.keys, width + _NAMES)

    size = (max(_NAMES + panels * (width + _GAP), 6.0), top + height + 0.5 + FOOT)
    return draw(key, title, note, source, size, paint)


def _panel(axes: Axes, name: str, chart: _Chart, *, named: bool) -> None:
    axes.set_title(attack(name))
    labels = [str(setting) if named else "" for setting in chart.rows]
    axes.set_yticks(range(len(chart.rows)), labels)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    percent_axis(axes.xaxis, "accuracy", (0, 0.5, 1))
    axes.tick_params(axis="y", length=0, labelsize=8)
    if name in chart.chance:
        axes.axvline(chart.chance[name], color=MUTED, ls=":", lw=1)
    before = None
    for y, setting in enumerate(chart.rows):
        if before not in (None, (setting.group, setting.schedule)):
            axes.axhline(y - 0.5, color=MUTED, lw=0.7)
        before = (setting.group, setting.schedule)
        if not chart.fill(axes, name, y, setting):
            not_run(axes, 0.5, y, va="center", ha="center", alpha=0.75)


def _legend(drawing: Drawing, keys: Sequence[tuple[str, str, str]], width: float) -> None:
    axes = drawing.axes[0]
    marks = [
        axes.plot([], [], color=colour, marker=mark, ls="none", label=label)[0]
        for label, colour, mark in keys
    ]
    # Two rows for a single narrow panel.
    columns = len(keys) if width < drawing.get_size_inches()[0] else -(-len(keys) // 2)
    drawing.legend(handles=marks, loc="upper left", ncols=columns, borderaxespad=0.2)


def _shared_settings(collection: Collection) -> list[Setting]:
    """Returns the paper's split settings if the report is on the paper, or those with results."""
    if collection.paper:
        return [each for each in PAPERS if each.splits]
    found = {entry.setting for entry in beyond.shared(collection)}
    return sorted(found, key=lambda each: each.place)


def _shares(collection: Collection, source: str) -> Figure:
    """Draws a panel for each setting, one colour for each attack."""
    chosen = _shared_settings(collection)
    entries = [entry for entry in beyond.shared(collection) if entry.setting in chosen]
    names = _attacks(entries)
    width, height, between = _PANEL
    columns = 3
    lines = -(-len(chosen) // columns)

    def paint(drawing: Drawing) -> None:
        for number, setting in enumerate(chosen):
            left = 0.65 + number % columns * (width + 0.75)
            top = 0.7 + number // columns * (height + between + 0.35)
            axes = place(drawing, left, top, width, height)
            axes.set_title(str(setting))
            percent_axis(axes.xaxis, "mean share that is seen")
            percent_axis(axes.yaxis, "accuracy")
            own = [entry for entry in entries if entry.setting == setting]
            for entry in own:
                _share_line(axes, entry)
            if not own:
                not_run(axes, 0.5, 0.5, ha="center", fontsize=9)
        keys = [
            drawing.axes[0].plot([], [], color=colour_of(name), marker=mark, label=label)[0]
            for name, mark, label in ((name, _mark(name), attack(name)) for name in names)
        ]
        drawing.legend(handles=keys, loc="upper left", ncols=max(1, len(keys)), borderaxespad=0.2)

    papers = " The figure has the settings of the paper; the table has all."
    more = papers if collection.paper else ""
    note = (
        "Recognition of four groups of loads, ordered by the share of packets that the observer "
        f"sees ({observer(collection.rule)}). Closed world, honest protocol; bars are 95 % "
        "intervals by page. Lines join the groups of one result. Filled marks and solid lines: "
        f"full design; hollow marks and broken lines: a reduced design.{more}"
    )
    size = (columns * (width + 0.75) + 0.1, lines * (height + between + 0.35) + 0.5 + FOOT)
    title = "Accuracy by the share that is seen"
    return draw("figure-shares", title, note, source, size, paint)


def _mark(name: str) -> str:
    place = attack_place(name)[0]
    return MARKS[place % len(MARKS)]


def _share_line(axes: Axes, entry: Entry) -> None:
    parts = entry.result.metrics["by_share"]
    rows = [(part["mean_share"], part["accuracy"]) for part in parts]
    known = [(share, each) for share, each in rows if each["value"] is not None]
    x, y = [share for share, _ in known], [each["value"] for _, each in known]
    low = [max(0.0, each["value"] - (each["low"] or 0.0)) for _, each in known]
    high = [max(0.0, (each["high"] or 0.0) - each["value"]) for _, each in known]
    colour = colour_of(entry.attack)
    axes.errorbar(
        x,
        y,
        yerr=[low, high],
        color=colour,
        marker=_mark(entry.attack),
        ms=4.5,
        elinewidth=0.8,
        ls=DASHES[0] if entry.full else DASHES[1],
        mfc=colour if entry.full else "none",
    )


def _dot(axes: Axes, y: float, entry: Entry, colour: str, mark: str) -> None:
    estimate = entry.estimate("accuracy")
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    if value is None:
        return
    if low is not None and high is not None:
        axes.plot([low, high], [y, y], color=colour, lw=1.2, solid_capstyle="butt")
    face = colour if entry.full else "none"
    axes.plot(value, y, mark, color=colour, mfc=face, ms=5, clip_on=False)


def _spread(entries: Sequence[Entry], step: float = 0.24) -> list[tuple[float, Entry]]:
    """Returns results of one row with heights, spread so that their marks do not overlap."""
    step = min(step, 0.7 / max(1, len(entries)))
    middle = (len(entries) - 1) / 2
    return [((number - middle) * step, entry) for number, entry in enumerate(entries)]


def _attacks(entries: Sequence[Entry]) -> list[str]:
    return sorted({entry.attack for entry in entries}, key=attack_place)


def _chance(collection: Collection, name: str) -> float:
    entries = collection.select(None, name, world="closed", protocol="honest")
    return max((float(entry.result.metrics["chance"]) for entry in entries), default=0.0)
