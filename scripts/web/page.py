"""The files that a page on disk needs: the files in its HTML and style sheets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urljoin, urlsplit

from tree import Tree

# Placeholder host name of the site itself while addresses are resolved.
SITE = "site.invalid"
PAGES = {".html", ".htm", ".xhtml"}
# Maximum bytes of a page; larger files are not hand-written.
MOST_TEXT = 4_000_000
CSS_ADDRESS = re.compile(
    r"""url\(\s*(?:"([^"]*)"|'([^']*)'|([^)'"\s]+))\s*\)|@import\s+(?:"([^"]*)"|'([^']*)')"""
)
# The attribute that has the file's address, by element. A `link` counts only with one of the
# relations below.
ATTRIBUTES = {
    "img": "src", "script": "src", "source": "src", "video": "poster", "embed": "src",
    "input": "src", "iframe": "src", "audio": "src", "link": "href", "body": "background",
}  # fmt: skip
RELATIONS = {"stylesheet", "icon", "shortcut icon", "apple-touch-icon", "preload", "manifest"}


@dataclass
class Needs:
    """The loads of one page: files of its own site, and its references to other hosts.

    `here` maps paths from the site's root to the files' sizes in bytes. `missing` has paths that
    do not exist. `elsewhere` has other hosts that the page refers to (a content network, a font
    service).
    """

    here: dict[PurePosixPath, int] = field(default_factory=dict)
    missing: set[PurePosixPath] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Size in bytes of the page and its loads, each file once."""
        return sum(self.here.values())


def needs(tree: Tree, root: PurePosixPath, page: PurePosixPath) -> Needs:
    """Returns the files that a browser fetches for `page`, with style sheets and frames.

    `root` is the site's root within the tree, `page` a path from there. Fetches by scripts are not
    found, so the result is a lower bound.
    """
    found = Needs()
    waiting = [page]
    while waiting:
        at = waiting.pop()
        if at in found.here or at in found.missing:
            continue
        file = tree.find(root / at)
        if file is None or not file.is_file():
            found.missing.add(at)
            continue
        found.here[at] = file.stat().st_size
        waiting.extend(_named(at, file, found))
    return found


def _named(at: PurePosixPath, file: Path, found: Needs) -> Iterator[PurePosixPath]:
    """Yields the site's paths in a page or a style sheet; records other hosts in `found`."""
    kind = at.suffix.lower()
    if kind not in PAGES | {".css"} or found.here[at] > MOST_TEXT:
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    for address in in_css(text) if kind == ".css" else in_html(text):
        target = urlsplit(urljoin(f"http://{SITE}/{at}", address.strip().replace("\\", "/")))
        if target.scheme not in {"http", "https"}:
            continue
        if target.netloc == SITE:
            yield PurePosixPath(unquote(target.path).lstrip("/") or "index.html")
        else:
            found.elsewhere.add(target.netloc)


def in_css(text: str) -> Iterator[str]:
    """Yields the addresses in a style sheet, in order."""
    for match in CSS_ADDRESS.finditer(text):
        yield next((group for group in match.groups() if group), "")


def in_html(text: str) -> Iterator[str]:
    """Yields the addresses in a page that a browser fetches by itself, in order."""
    reader = _Elements()
    reader.feed(text)
    yield from reader.addresses


class _Elements(HTMLParser):
    """Collects the addresses of elements and of inline styles."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Records an element's own file and its inline style."""
        values = {name: value for name, value in attrs if value}
        self._in_style = tag == "style"
        wanted = ATTRIBUTES.get(tag)
        if wanted in values and (tag != "link" or values.get("rel", "").lower() in RELATIONS):
            self.addresses.append(values[wanted])
        self.addresses.extend(in_css(values.get("style", "")))

    def handle_endtag(self, tag: str) -> None:
        """Ends a style element."""
        self._in_style = self._in_style and tag != "style"

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Ends invalid markup (`<![figure[`) at the next bracket, as browsers do."""
        end = self.rawdata.find(">", i)
        return end + 1 if end >= 0 else -1

    def handle_data(self, data: str) -> None:
        """Reads text inside a style element only."""
        if self._in_style:
            self.addresses.extend(in_css(data))
