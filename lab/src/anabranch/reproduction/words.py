"""Tables and paragraphs in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

BEGIN = "<!-- anabranch-lab reproduction: from here to the end mark, all is generated -->"
END = "<!-- anabranch-lab reproduction: end -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(map(_cell, row)) + " |"


def wrapped(text: str, width: int = 98) -> Iterator[str]:
    """Yields lines of at most `width` characters, divided at spaces."""
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def item(text: str) -> Iterator[str]:
    """Yields the lines of an item of a list."""
    first, *others = wrapped(text, width=96)
    yield f"* {first}"
    yield from (f"  {line}" for line in others)


def marked(lines: Iterable[str]) -> str:
    """Returns the generated part of a page, between its begin and end marks."""
    return "\n".join([BEGIN, "", *lines, "", END, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
