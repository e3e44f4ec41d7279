"""A report as Markdown, for documents that are kept with the code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping

from anabranch.report.drawing import Figure
from anabranch.report.page import Page
from anabranch.report.tables import Cell, Table, Value
from anabranch.validate import TraceError

BEGIN = "<!-- anabranch-lab report: from here to the end mark, all is generated -->"
END = "<!-- anabranch-lab report: end -->"
COLUMNS = 100
_MARKUP = re.compile(r" (?=(?:[-+>=]+|\d+[.)])(?: |$))")
_KEPT = "\0"


def document(page: Page, pictures: Mapping[str, str]) -> str:
    """Returns the generated part of a document, between its begin and end marks.

    Args:
        page: the report.
        pictures: a link for each figure, by its key; figures without one are left out.
    """
    lines = [BEGIN, "", "## What was found"]
    for finding in page.findings:
        lines += ["", f"**{escaped(finding.topic)}**", ""]
        lines += [wrapped(f"* {escaped(text)}") for text in finding.sentences]
    lines += ["", "## Where the numbers are from", ""]
    lines += [wrapped(f"* {name}: {escaped(text)}") for name, text in page.origin]
    for section in page.sections:
        lines += ["", f"## {escaped(section.title)}"]
        for part in section.parts:
            lines += [""]
            if isinstance(part, str):
                lines.append(wrapped(escaped(part)))
            elif isinstance(part, Table):
                lines += _table(part)
            elif part.key in pictures:
                lines += _figure(part, pictures[part.key])
            else:
                del lines[-1]
    return "\n".join([*lines, "", END, ""])


def within(old: str | None, new: str, begin: str = BEGIN, end: str = END) -> str:
    """Replaces the generated part of a document; an empty document becomes that part.

    Args:
        old: the document.
        new: the part, with its marks.
        begin: the mark before it.
        end: the mark after it.

    Raises:
        TraceError: if `old` has no marks, so that it was written by hand.
    """
    if old is None or not old.strip():
        return new
    if old.count(begin) != 1 or old.count(end) != 1 or old.index(begin) > old.index(end):
        raise TraceError(
            f"has no place for a report: mark one with the lines '{begin}' and '{end}'"
        )
    before, _, rest = old.partition(begin)
    _, _, after = rest.partition(end)
    return before + new.rstrip("\n") + after


def _figure(figure: Figure, link: str) -> list[str]:
    return [f"### {escaped(figure.title)}", "", wrapped(escaped(figure.note)), "",
            f"![{escaped(figure.title)}]({link})"]  # fmt: skip


def _table(table: Table) -> Iterator[str]:
    yield from (f"### {escaped(table.title)}", "", wrapped(escaped(table.note)), "")
    if not table.rows:
        yield "No results: not run."
        return
    yield _row(map(escaped, table.header))
    yield _row("---" for _ in table.header)
    for row in table.rows:
        yield _row(map(_cell, row))


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    if cell.values:
        return "<br>".join(map(_value, cell.values))
    return escaped(cell.text)


def _value(value: Value) -> str:
    interval = f" ({value.interval})" if value.interval else ""
    design = f" [{escaped(value.design)}]" if value.design else ""
    return f"{value.text}{interval}{design}"


def wrapped(text: str) -> str:
    """Wraps a paragraph, or an item of a list, to lines of 100 columns.

    No line begins with text that Markdown would read as an item or a heading, such as a minus.
    """
    further = "  " if text.startswith("* ") else ""
    lines = textwrap.wrap(
        _MARKUP.sub(_KEPT, text),
        COLUMNS,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_KEPT, " ")


def escaped(text: str) -> str:
    """Escapes text for Markdown and HTML, and removes line ends."""
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|*_\[\]#~])", r"\\\1", text)
