"""Plain tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from harness.net import Counts


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table with aligned columns: numbers to the right, words to the left."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "  ".join(_pad(cell, width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:]])


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _pad(cell: str, width: int) -> str:
    return cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)


def median_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """Returns ``median (lowest–highest)``."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def shares(counts: Mapping[str, Counts]) -> dict[str, tuple[float, float]]:
    """Returns each path's share of all packets, up and down, from 0 to 1."""
    up = sum(each.up_packets for each in counts.values()) or 1
    down = sum(each.down_packets for each in counts.values()) or 1
    return {name: (each.up_packets / up, each.down_packets / down) for name, each in counts.items()}


def path_table(counts: Mapping[str, Counts]) -> str:
    """Returns a table of packets, bytes and shares of each path in both directions."""
    share = shares(counts)
    head = ["path", "up packets", "up bytes", "up %", "down packets", "down bytes", "down %"]
    return table(
        head,
        (
            (name, c.up_packets, c.up_bytes, 100 * share[name][0],
             c.down_packets, c.down_bytes, 100 * share[name][1])
            for name, c in counts.items()
        ),
    )  # fmt: skip
