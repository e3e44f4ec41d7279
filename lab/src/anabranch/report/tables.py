"""Tables in a form independent of HTML and Markdown, and the format of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NOT_RUN = "not run"
"""Text in place of a missing result."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number in a cell of a table.

    Attributes:
        text: the number.
        interval: its 95 % interval, or empty.
        design: design of its result, or empty.
        level: strength of the cell's shade, 0 to 1; None for no shade.
    """

    text: str
    interval: str = ""
    design: str = ""
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: text of a cell without values.
        values: numbers; several if results of one setting differ in their designs.
        missing: whether the result is missing.
        head: whether the cell is the head of its row.
    """

    text: str = ""
    values: tuple[Value, ...] = ()
    missing: bool = False
    head: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report: rows under a header.

    Attributes:
        key: its name in links, such as `table-3`.
        title: one line.
        note: explanation for the reader.
        header: heading of each column.
        rows: each as long as `header`.
        groups: indices of rows that begin a group.
    """

    key: str
    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: frozenset[int] = field(default_factory=frozenset)


def missing() -> Cell:
    """Returns the cell of a missing result."""
    return Cell(NOT_RUN, missing=True)


def estimated(
    estimate: Mapping[str, float | None], design: str = "", *, shaded: bool = False
) -> Value:
    """Returns a rate with its interval."""
    value = estimate["value"]
    level = value if shaded else None
    return Value(percent(value), between(estimate), design, level)


def percent(value: float | None) -> str:
    """Formats a share, such as `36.2 %`; None, as without accepted loads, becomes `undefined`."""
    return "undefined" if value is None else f"{100 * value:.1f} %"


def whole(value: Any) -> str:
    """Formats a share as a whole percentage, such as `36 %`."""
    return f"{100 * value:.0f} %"


def plural(number: int, name: str) -> str:
    """Formats a count with its noun, such as `1 attack` or `2 attacks`."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def between(estimate: Mapping[str, float | None]) -> str:
    """Formats an interval in percent, such as `33.8–39.0`; empty without an interval."""
    low, high = estimate["low"], estimate["high"]
    return "" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}"


def inline(estimate: Mapping[str, float | None]) -> str:
    """Formats a share with its interval for sentences, such as `36.2 % (33.8–39.0)`."""
    interval = between(estimate)
    return percent(estimate["value"]) + (f" ({interval})" if interval else "")


def duration(seconds: float) -> str:
    """Formats a duration in a suitable unit, such as `4.2 s`, `12 min` or `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Joins names: `a, b and c`, or with more than `most` names `a, b and 3 more`."""
    if not names:
        return "none"
    shown = list(names[:most])
    rest = len(names) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
