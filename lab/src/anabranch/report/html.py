"""A report as HTML: one file, without scripts and without network requests."""

from __future__ import annotations

import re
from html import escape
from importlib import resources

from anabranch.report.drawing import DARK, Figure
from anabranch.report.page import Page, Section
from anabranch.report.tables import Cell, Table, Value


def document(page: Page) -> str:
    """Returns the whole HTML file."""
    body = [f"<h1>{escape(page.title)}</h1>", _origin(page), _contents(page), _findings(page)]
    body += map(_section, page.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(page.title)}</title>\n"
        # No script and no external resource, whatever a label contains.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        # An empty icon: browsers would otherwise request one from the server.
        f'<link rel="icon" href="data:,">\n<style>\n{_style()}</style>\n</head>\n<body>\n'
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _style() -> str:
    """Returns the style sheet, and the figures' colours for light and dark pages."""
    sheet = resources.files("anabranch.report").joinpath("style.css").read_text("utf-8")
    light = ";".join(f"--c{number}:{colour}" for number, colour in enumerate(DARK))
    dark = ";".join(f"--c{number}:{colour}" for number, colour in enumerate(DARK.values()))
    return (
        f"{sheet}:root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        # Print uses the light colours even if the screen is dark.
        f"@media print{{:root{{color-scheme:light;--bg:#fff;--ink:#1d1f23;{light}}}}}\n"
    )


def _origin(page: Page) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{_prose(text)}</dd>" for name, text in page.origin)
    return f'<dl class="origin">{rows}</dl>'


def _contents(page: Page) -> str:
    links = "".join(f'<a href="#{each.key}">{escape(each.title)}</a>' for each in page.sections)
    return f"<nav>{links}</nav>"


def _findings(page: Page) -> str:
    parts = [
        f"<h3>{escape(finding.topic)}</h3>\n<ul>"
        + "".join(f"<li>{_prose(text)}</li>" for text in finding.sentences)
        + "</ul>"
        for finding in page.findings
    ]
    points = "\n".join(parts)
    return f'<h2 id="findings">What was found</h2>\n<div class="findings">\n{points}\n</div>'


def _prose(text: str) -> str:
    """Escapes text, keeps numbers next to their units, and marks text in backticks as code."""
    text = re.sub(r"(\d) (%|ms\b|×)", "\\1\u00a0\\2", escape(text))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def _section(section: Section) -> str:
    parts = "\n".join(map(_part, section.parts))
    return f'<h2 id="{section.key}">{escape(section.title)}</h2>\n{parts}'


def _part(part: str | Table | Figure) -> str:
    if isinstance(part, str):
        return f"<p>{_prose(part)}</p>"
    return _figure(part) if isinstance(part, Figure) else _table(part)


def _figure(figure: Figure) -> str:
    return (
        f'<figure id="{figure.key}"><h3>{escape(figure.title)}</h3>\n'
        f'<p class="note">{_prose(figure.note)}</p>\n{figure.inline}\n</figure>'
    )


def _table(table: Table) -> str:
    head = (
        f'<h3 id="{table.key}">{escape(table.title)}</h3>\n<p class="note">{_prose(table.note)}</p>'
    )
    if not table.rows:
        return f'{head}\n<p class="missing">No results: not run.</p>'
    names = "".join(f'<th scope="col">{_prose(name)}</th>' for name in table.header)
    rows = "\n".join(
        f"<tr{' class=first' if number in table.groups else ''}>{''.join(map(_cell, row))}</tr>"
        for number, row in enumerate(table.rows)
    )
    return (
        f'{head}\n<div class="wide"><table><thead><tr>{names}</tr></thead>\n<tbody>\n{rows}\n'
        "</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    if cell.head:
        return f'<th scope="row">{escape(cell.text)}</th>'
    if cell.missing:
        return f'<td class="missing">{escape(cell.text)}</td>'
    if not cell.values:
        return f'<td class="text">{escape(cell.text)}</td>'
    # A cell with several results has the shade of the highest value.
    levels = [value.level for value in cell.values if value.level is not None]
    shade = f' class="heat" style="--level:{max(levels):.3f}"' if levels else ""
    return f"<td{shade}>{''.join(map(_value, cell.values))}</td>"


def _value(value: Value) -> str:
    interval = f" <i>{escape(value.interval)}</i>" if value.interval else ""
    design = f"<small>{escape(value.design)}</small>" if value.design else ""
    return f'<div class="v"><b>{escape(value.text)}</b>{interval}{design}</div>'
