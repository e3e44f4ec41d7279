#!/usr/bin/env python3
"""Draws README's picture of a page of `anabranch report`: a session's paths and their traffic.

Usage: scripts/picture.py REPORT.html OUT.svg [SESSION]

The drawing reuses the report's sketch of the paths, and its rows, which plot each path's downlink
rate. SESSION is a word in the session's headline; the default is QUIC.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

WIDTH, ROW_HEIGHT, LEFT, TOP = 860, 46, 150, 210
STYLE = """
  .p0 { fill: #2568b8 } .p1 { fill: #d06a00 } .p2 { fill: #1e8a5a } .whole { fill: #7d8791 }
  .line { fill: none; stroke-width: 3px }
  .line.p0 { stroke: #2568b8 } .line.p1 { stroke: #d06a00 } .line.p2 { stroke: #1e8a5a }
  text { font: 15px system-ui, "DejaVu Sans", sans-serif; fill: #1b1f24 }
  .muted, .axis { fill: #59626c } .axis { font-size: 12px }
  .ground { fill: #fdfdfc } .row { fill: #eef0f2 } .end { fill: #f4f5f6; stroke: #59626c }
  .white { fill: #fdfdfc; stroke: #1b1f24; stroke-width: 1.5px }
"""


def section(page: str, word: str) -> str:
    """Returns the part of the page about the first session whose headline contains ``word``."""
    for part in page.split("<section id=")[1:]:
        headline = re.search(r"<h2[^>]*>(.*?)</h2>", part)
        if headline and word in headline.group(1):
            return part.split("</section>")[0]
    sys.exit(f"picture: no session of the report has {word!r} in its headline")


def first(pattern: str, text: str, what: str) -> re.Match[str]:
    """Returns the first match.

    Raises:
        SystemExit: if there is none, because the page's layout has changed.
    """
    found = re.search(pattern, text, re.DOTALL)
    if found is None:
        sys.exit(f"picture: the report page has no {what}: adapt the pattern in this script")
    return found


def rate_rows(part: str) -> list[tuple[str, str, str, str]]:
    """Returns name, remark, width in units and outline of each row of the downlink's rate."""
    figure = first(r"<h3>Rate over time</h3>.*?data-way=\"Downlink\">(.*?)data-way", part, "rates")
    pattern = (
        r'<bdi>(?P<name>[^<]*)</bdi></span><span class="muted">(?P<remark>[^<]*)</span>.*?'
        r'viewBox="0 0 (?P<width>[\d.]+) 100".*?<path class="(?P<colour>\w+)" d="(?P<shape>[^"]*)"'
    )
    found = list(re.finditer(pattern, figure.group(1), re.DOTALL))
    if len(found) < 3:
        sys.exit("picture: the report has fewer than two paths: record a split session")
    return [
        (
            each["name"],
            each["remark"],
            each["width"],
            f'class="{each["colour"]}" d="{each["shape"]}"',
        )
        for each in found
    ]


def shares(part: str) -> dict[str, str]:
    """Returns each path's share of the downlink, as the page shows it."""
    bar = first(r"<title>Downlink: ([^<]*)</title>", part, "shares").group(1)
    return dict(re.findall(r"(\S+) ([\d.]+ %)", bar))


def picture(page: str, word: str) -> str:
    """Returns the picture as SVG: the paths and the traffic of one session."""
    part = section(page, word)
    sketch = first(r'<svg class="sketch"[^>]*>(.*?)</svg>', page, "sketch").group(1)
    # The sketch counts all sessions; this picture shows one.
    sketch = re.sub(r'<text class="muted"[^>]*>[^<]*</text>', "", sketch)
    sketch = re.sub(r"<title>.*?</title>", "", sketch)
    seen, drawn = shares(part), rate_rows(part)
    room = WIDTH - LEFT - 20
    rows = []
    for at, (name, remark, width, path) in enumerate(drawn):
        y = TOP + at * (ROW_HEIGHT + 12)
        told = "all together" if name.startswith("all ") else f"{name} saw {seen.get(name, '0 %')}"
        rows.append(f'<text x="10" y="{y + 20}">{told}</text>')
        rows.append(f'<text x="10" y="{y + 38}" class="axis">{remark}</text>')
        rows.append(f'<rect class="row" x="{LEFT}" y="{y}" width="{room}" height="{ROW_HEIGHT}"/>')
        scale = f"translate({LEFT} {y}) scale({room / float(width):.5f} {ROW_HEIGHT / 100:.3f})"
        rows.append(f'<g transform="{scale}"><path {path}/></g>')
    height = TOP + len(drawn) * (ROW_HEIGHT + 12) + 10
    body = "\n".join(rows)
    title = f"One {word} download over {len(drawn) - 1} paths, and what each observer saw of it"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">
<title>{title}</title>
<style>{STYLE}</style>
<rect class="ground" width="{WIDTH}" height="{height}"/>
<g transform="translate({(WIDTH - 560) // 2} 10)">{sketch}</g>
{body}
</svg>
"""


def main() -> None:
    """Reads the report and writes the picture."""
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    word = sys.argv[3] if len(sys.argv) == 4 else "QUIC"
    Path(sys.argv[2]).write_text(picture(page, word), encoding="utf-8")


if __name__ == "__main__":
    main()
