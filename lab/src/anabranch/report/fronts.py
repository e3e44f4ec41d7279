"""A figure of recognition against added bytes, with the Pareto fronts."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from anabranch.report.collection import Collection
from anabranch.report.costs import NOTHING, PADDING, SPLIT, Panel, Point, panels
from anabranch.report.drawing import (
    FOOT,
    INK,
    MARKS,
    MUTED,
    PALETTE,
    Figure,
    draw,
    percent_axis,
    place,
)

_LOOKS = {
    SPLIT: (PALETTE[0], MARKS[0]),
    PADDING: (PALETTE[1], MARKS[1]),
    NOTHING: (INK, MARKS[5]),
}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BETWEEN = 3.0, 3.0, 0.65, 0.6, 0.6
"""Inches: width and height of a panel, space left of it, above it, and between panels."""
_LINEAR = 0.1
"""End of the axis's linear part, in added bytes per byte; from there it is logarithmic."""


def figures(collection: Collection, source: str) -> list[Figure]:
    """Draws recognition against added bytes, a panel for each data set.

    Args:
        collection: the results.
        source: the source of the numbers, shown below the figure.
    """
    found = panels(collection)
    return [_drawn(found, source)] if found else []


def _drawn(found: Sequence[Panel], source: str) -> Figure:
    most = max(point.cost.added for panel in found for point in panel.points)

    def paint(drawing: Drawing) -> None:
        for number, panel in enumerate(found):
            left = _LEFT + number * (_WIDTH + _BETWEEN)
            _paint(place(drawing, left, _TOP, _WIDTH, _HEIGHT), panel, most)
        keys = [
            drawing.axes[0].plot([], [], color=colour, marker=mark, ls="none", label=kind)[0]
            for kind, (colour, mark) in _LOOKS.items()
        ]
        drawing.legend(handles=keys, loc="upper left", ncols=len(keys), borderaxespad=0.2)

    note = (
        "Each mark is a setting: the bytes that it adds, and the share of loads that the "
        "strongest of the judging attacks recognises. Closed world, honest protocol, full "
        "design; split loads are seen on the fullest path. A filled mark, with its 95 % interval "
        "by page, is a setting that no other setting of its kind beats in bytes, time, delay and "
        "recognition together; hollow marks are beaten. A line shows, for each kind, the lowest "
        "recognition up to that number of bytes, whatever the time. Padding and shaping are "
        "listed from left to right in the order of their table. The axis of bytes is linear up "
        f"to {100 * _LINEAR:.0f} %, and logarithmic beyond."
    )
    size = (max(_LEFT + len(found) * (_WIDTH + _BETWEEN), 6.0), _TOP + _HEIGHT + 0.5 + FOOT)
    return draw("figure-costs", "Privacy against bytes added", note, source, size, paint)


def _paint(axes: Axes, panel: Panel, most: float) -> None:
    axes.set_title(panel.name)
    axes.set_xscale("symlog", linthresh=_LINEAR, linscale=1.0)
    ticks = [0.0, *(each for each in (0.1, 1.0, 10.0, 100.0) if each <= 2 * most)]
    end = max(1.6 * most, 2 * _LINEAR)
    axes.set_xticks(ticks, [f"{100 * tick:.0f}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(-0.06 * _LINEAR, end)
    axes.set_xlabel("bytes added, %")
    percent_axis(axes.yaxis, "recognised")
    front = panel.front()
    for kind, (colour, mark) in _LOOKS.items():
        points = panel.of(kind)
        for point in points:
            _mark(axes, point, colour, mark, filled=point in front)
        if kind == NOTHING:
            for point in points:
                axes.axhline(point.value, color=MUTED, ls=":", lw=1)
        elif points:
            x, y = steps(points)
            axes.step([*x, end], [*y, y[-1]], where="post", color=colour, lw=1.2)


def _mark(axes: Axes, point: Point, colour: str, mark: str, *, filled: bool) -> None:
    x, estimate = point.cost.added, point.entry.estimate("accuracy")
    low, high = estimate["low"], estimate["high"]
    if filled and low is not None and high is not None:
        axes.plot([x, x], [low, high], color=colour, lw=1, solid_capstyle="butt", clip_on=False)
    face, size = (colour, 5.0) if filled else ("none", 3.5)
    width = 1.0 if filled else 0.6
    axes.plot(x, point.value, mark, color=colour, mfc=face, ms=size, mew=width, clip_on=False)


def steps(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Returns a front's steps: added bytes and recognition at each new minimum of recognition.

    `points` are sorted by added bytes.
    """
    x: list[float] = []
    y: list[float] = []
    for point in points:
        if not y or point.value < y[-1]:
            x.append(point.cost.added)
            y.append(point.value)
    return x, y
