"""Colours of figures, on white paper and on a dark page."""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """A colour in its two forms, as `#rrggbb`."""

    light: str
    """The colour on white paper."""
    dark: str
    """The colour on a dark page."""


INK = Colour("#1d1f23", "#e8eaed")
"""Colour of text and axes."""
FAINT = Colour("#d4d7dc", "#3a3e45")
"""Colour of grids."""
MUTED = Colour("#6b7079", "#9aa0a9")
"""Colour of secondary text."""

BLUE = Colour("#0072b2", "#4aa8e0")
VERMILION = Colour("#d55e00", "#ff8b4a")
GREEN = Colour("#009e73", "#3ccfa4")
PINK = Colour("#cc79a7", "#e3a3c6")
ORANGE = Colour("#e69f00", "#f5b83d")
SKY = Colour("#56b4e9", "#8fd0f5")
VIOLET = Colour("#7a5195", "#b594d1")
BROWN = Colour("#8c6d31", "#c4a466")

COLOURS = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, VIOLET, BROWN)
"""Okabe and Ito's palette for colour-blind readers, without its yellow, which is hard to see on
white paper.
"""
