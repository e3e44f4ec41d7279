"""Results as text, in one format for the results page and the index of claims."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

TITLES = {"k-fp": "k-FP", "rocket": "MiniRocket", "rf": "RF"}
"""Attacks in the order of the page's columns, each with its name on the page."""


def area(estimate: Row) -> str:
    """Returns an area under a ROC curve with its interval."""
    return f"{estimate['value']:.3f} ({estimate['low']:.3f}–{estimate['high']:.3f})"


def share(estimate: Row) -> str:
    """Returns a share with its interval, in per cent without the sign."""
    value, low, high = (percent(estimate[name]) for name in ("value", "low", "high"))
    return f"{value} ({low}–{high})"


def percent(value: float) -> str:
    """Returns a share in per cent without the sign."""
    return f"{100 * value:.1f}"
