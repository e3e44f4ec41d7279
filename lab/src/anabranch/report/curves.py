"""Figures 6 and 7: precision against recall, with the CoMPS paper's points where it has any."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from anabranch.report import published
from anabranch.report.collection import WHOLE, Collection, Entry
from anabranch.report.comparison import (
    COMBINED,
    LENGTHS,
    PATHS,
    STRATEGIES,
    UNDEFENDED,
    WR,
    WR_TIME,
)
from anabranch.report.drawing import (
    DASHES,
    FOOT,
    INK,
    MUTED,
    PALETTE,
    Figure,
    colour_of,
    draw,
    percent_axis,
    place,
)
from anabranch.report.setting import Setting, attack, attack_place, observer

_LEFT, _TOP, _WIDTH, _HEIGHT, _BELOW = 0.65, 0.4, 4.1, 2.7, 0.55
"""Inches in a panel: left labels, title, width and height of the axes, text below the axes."""
_COLUMN = 5.0
_LINE = 0.172
"""Height of a legend's line in inches."""
_LETTERS = 68
"""Maximum characters of a legend's line next to its mark."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line in a panel of a figure: its setting, attack and colour."""

    label: str
    colour: str
    attack: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    lines: tuple[_Line, ...]


def figures(collection: Collection, source: str) -> list[Figure]:
    """Draws Figure 6, and Figure 7 for each attack with enough results, by each protocol.

    Figure 7 needs results on two of its defended settings; by the honest protocol, DF has it in
    any case. In a report that is not about the paper, there is instead one figure for each
    protocol, with a panel for each setting with open-world results.

    Args:
        collection: the results.
        source: the source of the numbers, shown below each figure.
    """
    drawn = []
    if not collection.paper:
        return [_open_world(collection, each, source) for each in ("honest", "paper")
                if collection.select(world="open", protocol=each)]  # fmt: skip
    for protocol in ("honest", "paper"):
        if protocol == "honest" or collection.select(world="open", protocol=protocol):
            drawn.append(_figure_6(collection, protocol, source))
            drawn += _figures_7(collection, protocol, source)
    return drawn


def _open_world(collection: Collection, protocol: str, source: str) -> Figure:
    found = collection.select(world="open", protocol=protocol)
    panels = []
    for setting in sorted({each.setting for each in found}, key=lambda each: each.place):
        names = {each.spec.attack.name for each in found if each.setting == setting}
        lines = [_Line(attack(name), colour_of(name), name, setting)
                 for name in sorted(names, key=attack_place)]  # fmt: skip
        panels.append(_Panel(str(setting), tuple(lines)))
    title = "Open world: r-precision and recall by setting"
    return _figure(collection, "figure-open-world", title, panels, protocol, source)


def _entries(collection: Collection, line: _Line, protocol: str) -> list[Entry]:
    """Returns the results of a line: those of exactly its setting.

    In a report on the paper, these are the results comparable with the paper's setting.
    """
    if collection.paper:
        return collection.like(line.setting, line.attack, protocol)
    return collection.select(line.setting, line.attack, world="open", protocol=protocol)


def _short(entry: Entry) -> str:
    """Returns the design, and the observer unless it is one path at random."""
    watched = entry.observer
    return entry.short if watched in (WHOLE, "random") else f"{entry.short}, {observer(watched)}"


def _figure_6(collection: Collection, protocol: str, source: str) -> Figure:
    names = collection.one_path_attacks
    panels = [
        _Panel(title, tuple(_Line(attack(n), colour_of(n), n, setting) for n in names))
        for title, setting in (("every 50 packets", WR), ("every 100 ms", WR_TIME))
    ]
    title = "Figure 6: r-precision and recall, weighted random over 3 paths"
    return _figure(collection, "figure-6", title, panels, protocol, source)


def _figures_7(collection: Collection, protocol: str, source: str) -> list[Figure]:
    panels = {
        "(a) schedules": (UNDEFENDED, *STRATEGIES),
        "(b) run lengths": (UNDEFENDED, *LENGTHS),
        "(c) paths": (UNDEFENDED, *PATHS),
        "(d) with WTF-PAD": COMBINED,
    }
    every = {setting for settings in panels.values() for setting in settings}
    drawn = []
    for name in sorted({"df", *collection.attacks}, key=attack_place):
        there = [bool(collection.like(each, name, protocol)) for each in every - {UNDEFENDED}]
        if sum(there) > 1 or (name == "df" and protocol == "honest"):
            lines = [
                _Panel(title, tuple(_coloured(settings, name)))
                for title, settings in panels.items()
            ]
            key = "figure-7" if name == "df" else f"figure-7-{name}"
            title = f"Figure 7 for {attack(name)}: r-precision and recall as settings change"
            drawn.append(_figure(collection, key, title, lines, protocol, source))
    return drawn


def _coloured(settings: Sequence[Setting], name: str) -> list[_Line]:
    """Returns a line for each setting, with its colour.

    In all panels, the undefended setting is grey, and the paper's default has the first colour.
    """
    spare = iter(PALETTE[1:])
    fixed = {UNDEFENDED: MUTED, WR: PALETTE[0]}
    return [
        _Line(str(setting), fixed.get(setting) or next(spare), name, setting)
        for setting in settings
    ]


def _figure(
    collection: Collection,
    key: str,
    title: str,
    panels: Sequence[_Panel],
    protocol: str,
    source: str,
) -> Figure:
    by_paper = protocol == "paper"
    longest = max(_lines(collection, panel, protocol) for panel in panels)
    row = _TOP + _HEIGHT + _BELOW + _LINE * longest + 0.15
    rows = -(-len(panels) // 2)

    def paint(drawing: Drawing) -> None:
        for number, panel in enumerate(panels):
            left, top = number % 2 * _COLUMN + _LEFT, number // 2 * row + _TOP
            axes = place(drawing, left, top, _WIDTH, _HEIGHT)
            _paint(axes, panel, collection, protocol)

    diamond = (
        f"A diamond is a point that the paper gives for its own data ({published.name()}). The "
        "paper has no other numbers for its curves. "
    )
    diamond = diamond if any(published.found(line.attack, line.setting)
                             for panel in panels for line in panel.lines) else ""  # fmt: skip
    point = "where the most probable class decides" if by_paper else "that validation chose"
    note = (
        "Each line shows recall and r-precision for all thresholds. The dot is the operating "
        f"point {point}; its bars and the band around the line are 95 % intervals by page. "
        f"{diamond}Solid lines are full designs, thinner ones a second full design, broken ones "
        "reduced designs. † marks an attack with parameters of its own, which the table names."
    )
    if by_paper:
        key, title = f"{key}-paper", f"{title}, by the paper's protocol"
    return draw(key, title, note, source, (2 * _COLUMN, rows * row + FOOT), paint)


def _lines(collection: Collection, panel: _Panel, protocol: str) -> int:
    """Returns the number of lines in a panel's legend."""
    labels = []
    for line in panel.lines:
        entries = _entries(collection, line, protocol)
        labels += [_label(line, _short(entry)) for entry in entries] or [_label(line, _NOT_RUN)]
        if published.found(line.attack, line.setting) is not None:
            labels.append(_label(line, _as_published()))
    return sum(1 + label.count("\n") for label in labels)


_NOT_RUN = "not run"


def _as_published() -> str:
    return f"{published.name()}, as published"


def _label(line: _Line, source: str) -> str:
    """Returns a line's legend: its label and the `source` of its numbers, folded to the panel."""
    return textwrap.fill(f"{line.label}: {source}", _LETTERS, subsequent_indent="   ")


def _paint(axes: Axes, panel: _Panel, collection: Collection, protocol: str) -> None:
    percent_axis(axes.xaxis, "recall")
    percent_axis(axes.yaxis, "r-precision")
    axes.set_title(panel.title)
    for line in panel.lines:
        entries = _entries(collection, line, protocol)
        for number, entry in enumerate(entries):
            _curve(axes, line, entry, number)
        if not entries:
            axes.plot([], [], color=line.colour, lw=0.8, ls=":", label=_label(line, _NOT_RUN))
        _published(axes, line)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.02, -_BELOW / _HEIGHT),
        borderaxespad=0,
        borderpad=0,
        handlelength=2.6,
        labelspacing=0.35,
        fontsize=7.5,
    )


def _curve(axes: Axes, line: _Line, entry: Entry, number: int) -> None:
    column = _columns(entry)
    recall, precision = column("recall", "value"), column("r_precision", "value")
    low, high = column("r_precision", "low"), column("r_precision", "high")
    known = np.isfinite(recall) & np.isfinite(precision)
    dash = DASHES[0] if entry.full else DASHES[1 + number % (len(DASHES) - 1)]
    label = _label(line, _short(entry))
    width = 0.8 if number and entry.full else 1.6
    style = {"color": line.colour, "ls": dash, "lw": width, "marker": "", "label": label}
    axes.plot(recall[known], precision[known], **style)
    axes.fill_between(recall[known], low[known], high[known], color=line.colour, alpha=0.1, lw=0)
    _operating_point(axes, line, entry)


def _operating_point(axes: Axes, line: _Line, entry: Entry) -> None:
    recall, precision = entry.estimate("recall"), entry.estimate("r_precision")
    x, y = recall["value"], precision["value"]
    if x is None or y is None:
        return
    face = line.colour if entry.full else "none"
    bars = [_arms(recall, x), _arms(precision, y)]
    axes.errorbar(
        x, y, xerr=bars[0], yerr=bars[1], fmt="o", ms=5.5, color=line.colour, mfc=face, elinewidth=1
    )


def _arms(estimate: dict[str, float | None], value: float) -> list[list[float]]:
    low, high = estimate["low"], estimate["high"]
    return [
        [max(0.0, value - (value if low is None else low))],
        [max(0.0, (value if high is None else high) - value)],
    ]


def _published(axes: Axes, line: _Line) -> None:
    point = published.found(line.attack, line.setting)
    if point is None:
        return
    label = _label(line, _as_published())
    axes.plot(
        point.recall, point.r_precision, "D", ms=7, mfc=line.colour, mec=INK, mew=1.1, label=label,
        ls="none",
    )  # fmt: skip


def _columns(entry: Entry) -> Callable[[str, str], np.ndarray]:
    """Returns a function that gives one part of a metric at each point of the curve.

    The part is `value`, `low` or `high`; it is NaN where it is not defined.
    """
    curve = entry.result.metrics["curve"]

    def column(metric: str, part: str) -> np.ndarray:
        return np.array([point[part] for point in curve[metric]], np.float64)

    return column
