"""Accuracy of settings and observers as dots with intervals, and by the share that is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from anabranch.report import beyond
from anabranch.report.collection import Collection, Entry
from anabranch.report.comparison import PAPERS
from anabranch.report.drawing import (
    COLOURS,
    DASHES,
    INK,
    MARKS,
    MUTED,
    PALETTE,
    Figure,
    draw,
    not_run,
    percent_axis,
)
from anabranch.report.setting import Setting, attack, attack_place, observer

_ROW = 0.235
"""Inches of a setting's row."""
_WIDTH = 10.0
_MOST_PANELS = 4
"""Attacks side by side; more stand below."""


def figures(collection: Collection, said: str) -> list[Figure]:
    """Those that any result has a place in."""
    drawn = []
    if collection.select(world="closed", protocol="honest", observer="random"):
        drawn.append(_closed_world(collection, said))
    if beyond.watched_pairs(collection):
        drawn.append(_observers(collection, said))
    if beyond.shared(collection):
        drawn.append(_shares(collection, said))
    return drawn


def _closed_world(collection: Collection, said: str) -> Figure:
    names = _attacks(collection.select(world="closed", protocol="honest", observer="random"))
    rows = beyond.settings(collection)

    def fill(axes: Axes, name: str) -> None:
        for y, setting in enumerate(rows):
            entries = beyond.closed(collection, setting, name)
            for shift, entry in _spread(entries):
                _dot(axes, y + shift, entry, COLOURS.get(name, INK), "o")
            if not entries:
                not_run(axes, 0.01, y, va="center")

    note = (
        "Share of the loads whose page is recognised, by an observer of one path drawn at random; "
        "honest protocol, bars are 95 % intervals by page. Filled: all pages and loads (full "
        "design); hollow: a reduced design, a weaker attacker. The designs stand in the table. "
        "Dotted: chance."
    )
    chance = {name: _chance(collection, name) for name in names}
    title = "Closed-world accuracy by setting and attack"
    return _dotted("figure-closed-world", title, note, said, names, rows, fill, chance)


def _observers(collection: Collection, said: str) -> Figure:
    pairs = beyond.watched_pairs(collection)
    rules = beyond.watched(collection)
    names = sorted({name for _, name in pairs}, key=attack_place)
    rows = sorted({setting for setting, _ in pairs}, key=lambda each: each.place)

    def fill(axes: Axes, name: str) -> None:
        for y, setting in enumerate(rows):
            for number, rule in enumerate(rules):
                entries = collection.select(
                    setting, name, world="closed", protocol="honest", observer=rule
                )
                shift = (number - (len(rules) - 1) / 2) * 0.17
                for more, entry in _spread(entries, 0.06):
                    colour = PALETTE[number % len(PALETTE)]
                    _dot(axes, y + shift + more, entry, colour, MARKS[number % len(MARKS)])

    note = (
        "Closed world, honest protocol; bars are 95 % intervals by page. Filled: full design; "
        "hollow: a reduced one. An observer without a mark was not run."
    )
    keys = [
        (observer(rule), PALETTE[number % len(PALETTE)], MARKS[number % len(MARKS)])
        for number, rule in enumerate(rules)
    ]
    title = "Closed-world accuracy by what the observer sees"
    return _dotted("figure-observers", title, note, said, names, rows, fill, {}, keys, 1.9)


def _dotted(
    key: str,
    title: str,
    note: str,
    said: str,
    names: Sequence[str],
    rows: Sequence[Setting],
    fill: Any,
    chance: dict[str, float],
    keys: Sequence[tuple[str, str, str]] = (),
    stretch: float = 1.0,
) -> Figure:
    """A panel for each attack, a row for each setting."""
    lines = -(-len(names) // _MOST_PANELS)
    height = lines * (len(rows) * _ROW * stretch + 0.75) + 0.3 + (0.3 if keys else 0)

    def paint(drawing: Drawing) -> None:
        columns = min(len(names), _MOST_PANELS)
        grid = drawing.subplots(lines, columns, squeeze=False, sharey=True)
        for number, axes in enumerate(grid.flat):
            axes.set_visible(number < len(names))
        for axes, name in zip(grid.flat, names, strict=False):
            axes.set_title(attack(name))
            axes.set_yticks(range(len(rows)), [str(setting) for setting in rows])
            axes.set_ylim(len(rows) - 0.4, -0.6)
            percent_axis(axes.xaxis, "accuracy")
            axes.tick_params(axis="y", length=0, labelsize=8)
            if name in chance:
                axes.axvline(chance[name], color=MUTED, ls=":", lw=1)
            fill(axes, name)
        if keys:
            _legend(drawing, keys)
        drawing.supxlabel(said, fontsize=7, color=MUTED, x=0.01, ha="left")

    width = 2.6 + (_WIDTH - 2.6) * max(2, min(len(names), _MOST_PANELS)) / _MOST_PANELS
    return draw(key, title, note, (width, height), paint)


def _legend(drawing: Drawing, keys: Sequence[tuple[str, str, str]]) -> None:
    axes = drawing.axes[0]
    marks = [
        axes.plot([], [], color=colour, marker=mark, ls="none", label=label)[0]
        for label, colour, mark in keys
    ]
    drawing.legend(handles=marks, loc="outside upper left", ncols=len(keys))


def _shares(collection: Collection, said: str) -> Figure:
    """The paper's settings alone: more lines than these cannot be told apart."""
    chosen = [each for each in PAPERS if each.splits]
    entries = [
        entry
        for entry in beyond.shared(collection)
        if any(entry.setting == setting for setting in chosen)
    ]
    names = _attacks(entries or beyond.shared(collection))
    colours = {setting: PALETTE[number % len(PALETTE)] for number, setting in enumerate(chosen)}
    marks = {setting: MARKS[number % len(MARKS)] for number, setting in enumerate(chosen)}
    lines = -(-len(names) // 2)

    def paint(drawing: Drawing) -> None:
        grid = drawing.subplots(lines, min(2, len(names)), squeeze=False, sharey=True, sharex=True)
        for number, axes in enumerate(grid.flat):
            axes.set_visible(number < len(names))
        for axes, name in zip(grid.flat, names, strict=False):
            axes.set_title(attack(name))
            percent_axis(axes.xaxis, "mean share of the load's packets that is seen")
            percent_axis(axes.yaxis, "accuracy")
            axes.tick_params(labelbottom=True)
            for entry in entries:
                if entry.spec.attack == name:
                    _share_line(axes, entry, colours[entry.setting], marks[entry.setting])
        keys = [(str(setting), colours[setting], marks[setting]) for setting in chosen]
        handles = [
            grid[0, 0].plot([], [], color=colour, marker=mark, label=label)[0]
            for label, colour, mark in keys
        ]
        drawing.legend(handles=handles, loc="outside right upper")
        drawing.supxlabel(said, fontsize=7, color=MUTED, x=0.01, ha="left")

    note = (
        "Loads in quarters by the share that an observer of one random path sees; closed world, "
        "honest protocol, bars are 95 % intervals by page. Lines join the quarters of one result; "
        "filled and solid: full design, hollow and broken: a reduced one. The paper's settings; "
        "the table has all."
    )
    width = 2.2 + 3.7 * max(1, min(2, len(names)))
    title = "Accuracy by the share that is seen"
    return draw("figure-shares", title, note, (width, 3.3 * lines + 0.3), paint)


def _share_line(axes: Axes, entry: Entry, colour: str, mark: str) -> None:
    parts = entry.result.metrics["by_share"]
    rows = [(part["mean_share"], part["accuracy"]) for part in parts]
    known = [(share, each) for share, each in rows if each["value"] is not None]
    x, y = [share for share, _ in known], [each["value"] for _, each in known]
    low = [max(0.0, each["value"] - (each["low"] or 0.0)) for _, each in known]
    high = [max(0.0, (each["high"] or 0.0) - each["value"]) for _, each in known]
    axes.errorbar(
        x,
        y,
        yerr=[low, high],
        color=colour,
        marker=mark,
        ms=5,
        elinewidth=1,
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
    axes.plot(value, y, mark, color=colour, mfc=face, ms=5)


def _spread(entries: Sequence[Entry], step: float = 0.24) -> list[tuple[float, Entry]]:
    """Competing results above one another, within their row."""
    step = min(step, 0.7 / max(1, len(entries)))
    middle = (len(entries) - 1) / 2
    return [((number - middle) * step, entry) for number, entry in enumerate(entries)]


def _attacks(entries: Sequence[Entry]) -> list[str]:
    return sorted({entry.spec.attack for entry in entries}, key=attack_place)


def _chance(collection: Collection, name: str) -> float:
    entries = collection.select(None, name, world="closed", protocol="honest")
    return max((float(entry.result.metrics["chance"]) for entry in entries), default=0.0)
