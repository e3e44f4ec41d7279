"""Common parts of all figures: colours, marks, text, and reproducible SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from anabranch import palette, registry

INK, FAINT, MUTED = palette.INK.light, palette.FAINT.light, palette.MUTED.light
"""Colours of text and axes, of grids, and of secondary text."""

PALETTE = tuple(colour.light for colour in palette.COLOURS)
"""Colours that distinguish settings and observers."""

DARK = dict(
    [palette.INK, palette.FAINT, palette.MUTED, *palette.COLOURS]
    + [row.colour for row in registry.ATTACKS]
)
"""The same colours, and those of attacks, for a dark page."""

MARKS = ("o", "s", "^", "v", "<", "D", "P", "h")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))

FOOT = 0.28
"""Inches at the bottom of a figure for the source of its numbers."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "anabranch",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing.

    Attributes:
        key: name of its file and its links, such as `figure-6`.
        title: one line.
        note: explanation for the reader.
        svg: the file, with colours for white paper.
    """

    key: str
    title: str
    note: str
    svg: str

    @property
    def inline(self) -> str:
        """Returns only the `svg` element, with the page's colours and ids unique on the page."""
        text = self.svg[self.svg.index("<svg ") :].strip()
        text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.key}-", text)
        for number, colour in enumerate(DARK):
            text = text.replace(colour, f"var(--c{number})")
        label = re.sub(r'[<>&"]', "", self.title)
        return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def colour_of(attack: str) -> str:
    """Returns the colour of an attack, the same in all figures; `INK` for third-party attacks."""
    row = registry.BY_NAME.get(attack)
    return INK if row is None else row.colour.light


@contextmanager
def style() -> Iterator[None]:
    """Sets the style of all figures, whatever the machine's own configuration is."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def draw(
    key: str,
    title: str,
    note: str,
    source: str,
    size: tuple[float, float],
    paint: Callable[[Drawing], None],
) -> Figure:
    """Makes a figure; equal input gives equal bytes.

    Args:
        key: as in `Figure`.
        title: as in `Figure`.
        note: as in `Figure`.
        source: the source of the numbers, shown at the foot, because figures are also used on their
            own.
        size: width and height in inches, including the foot.
        paint: draws the content, above `FOOT`.
    """
    with style():
        drawing = Drawing(figsize=size)
        paint(drawing)
        drawing.text(0.05 / size[0], 0.06 / size[1], source, fontsize=7, color=MUTED)
        file = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Title": title}
        drawing.savefig(file, format="svg", metadata=metadata)
    return Figure(key, title, note, file.getvalue())


def percent_axis(axis: Any, label: str, ticks: Sequence[float] = (0, 0.25, 0.5, 0.75, 1)) -> None:
    """Sets an axis to 0 to 100 %, with margins that keep marks at the ends complete."""
    axis.set_ticks(ticks, [f"{100 * tick:.0f}" for tick in ticks])
    axis.axes.set(**{f"{axis.axis_name}lim": (-0.02, 1.02)})
    axis.set_label_text(f"{label}, %")


def place(drawing: Drawing, left: float, top: float, width: float, height: float) -> Axes:
    """Adds axes of a size in inches, by their distance from the left and the top of the figure.

    Axes are not placed automatically, because long legends and labels would shrink them.
    """
    across, down = drawing.get_size_inches()
    corner = (left / across, 1 - (top + height) / down)
    return drawing.add_axes((*corner, width / across, height / down))


def not_run(axes: Axes, x: float, y: float, **options: Any) -> None:
    """Writes the mark of a missing result at a point of the axes."""
    options = {"fontsize": 6.5} | options
    axes.text(x, y, "not run", color=MUTED, fontstyle="italic", **options)
