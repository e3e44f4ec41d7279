#!/usr/bin/env python3
"""Draws README's screenshot, docs/screen.svg, from a golden file of the splitter's live view.

Usage: scripts/screen.py

A golden file holds the characters of a screen, a line of dashes, and a style letter for each
character (`crates/cli/src/screen/golden.rs`). `make screens` runs this; scripts/guards.py compares
the result.
"""

from __future__ import annotations

from html import escape
from itertools import groupby
from pathlib import Path

SOURCE = "crates/cli/testdata/screens/split-100.txt"
TARGET = "docs/screen.svg"

# Style letters in golden files, each with its SVG attributes.
STYLES = {
    "g": "fill: #7ecb87", "y": "fill: #e5c07b", "r": "fill: #ff7b72; font-weight: bold",
    "c": "fill: #6cc7d1", "m": "fill: #c49ae0", "b": "font-weight: bold", "d": "fill: #98a1ab",
}  # fmt: skip
COLUMN, LINE, MARGIN, SIZE = 8.4, 19, 14, 14


def rows(golden: str) -> list[tuple[str, str]]:
    """Returns each line of a screen with its styles; collapses consecutive empty lines."""
    screen, _, styles = golden.partition(f"\n{'-' * 80}")
    letters = screen.split("\n")
    marks = styles.split("\n")[1:]
    pairs = [
        (line, marks[at].ljust(len(line)) if at < len(marks) else " " * len(line))
        for at, line in enumerate(letters)
    ]
    return [pair for at, pair in enumerate(pairs) if pair[0] or at == 0 or pairs[at - 1][0]]


def spans(line: str, styles: str) -> str:
    """Returns a line as `tspan` elements, one for each run of characters of one style."""
    parts, column = [], 0
    for style, stretch in groupby(zip(line, styles, strict=False), key=lambda pair: pair[1]):
        text = "".join(letter for letter, _ in stretch)
        x = MARGIN + column * COLUMN
        length = f' textLength="{len(text) * COLUMN:.1f}"' if len(text) > 1 else ""
        of = f' class="{style}"' if style in STYLES else ""
        if text.strip():
            parts.append(f'<tspan x="{x:.1f}"{of}{length}>{escape(text)}</tspan>')
        column += len(text)
    return "".join(parts)


def drawing(golden: str) -> str:
    """Returns the SVG of a golden file."""
    lines = rows(golden)
    width = round(2 * MARGIN + max(len(line) for line, _ in lines) * COLUMN)
    height = 2 * MARGIN + len(lines) * LINE
    css = "\n".join(f"  .{letter} {{ {style} }}" for letter, style in STYLES.items())
    texts = "\n".join(
        f'<text y="{MARGIN + at * LINE + SIZE}" xml:space="preserve">{spans(*line)}</text>'
        for at, line in enumerate(lines)
        if line[0]
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>anabranch split: three paths in the live view</title>
<style>
  text {{ font: {SIZE}px ui-monospace, "DejaVu Sans Mono", monospace; fill: #e6e8eb }}
{css}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#1b1f24"/>
{texts}
</svg>
"""


def main() -> None:
    """Writes the drawing."""
    root = Path(__file__).resolve().parent.parent
    golden = (root / SOURCE).read_text(encoding="utf-8")
    (root / TARGET).write_text(drawing(golden), encoding="utf-8")


if __name__ == "__main__":
    main()
