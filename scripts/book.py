#!/usr/bin/env python3
"""Builds the book of all documents: HTML with a search, without the network; fails on a dead link.

Usage: scripts/book.py INTO [--api FOLDER] [--python FOLDER]

mdBook builds the book from a copy of the documents; the environment variable MDBOOK names the
program. In the copy a folder's README is its index, as mdBook requires. --api and --python name
documentation by `cargo doc` and pdoc, which is copied next to the pages.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent

# The parts of the book, and their documents. A folder stands for its documents that no earlier
# entry lists.
PARTS: dict[str, tuple[str, ...]] = {
    "Guides": (
        "docs/README.md", "docs/guide/wireguard.md", "docs/guide/mosh.md", "docs/guide/quic.md",
        "docs/guide/any-program.md", "docs/guide/paths.md", "docs/guide/far-end.md",
        "docs/guide/onion.md", "docs/guide/camouflage.md", "docs/guide/lab.md",
        "docs/guide/operate.md", "docs/guide/",
    ),
    "How it works": ("ARCHITECTURE.md", "docs/design/", "docs/glossary.md", "docs/invariants.md"),
    "Specifications": ("docs/spec/",),
    "Results": ("docs/results/README.md", "docs/reproduction.md", "docs/results/", "docs/notes/"),
    "Reference": ("docs/formats.md", "docs/emulator.md", "lab/", "docs/", "crates/"),
    "Project": ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "bench/",
                "tests/"),
}  # fmt: skip
# Documents outside the book.
LEFT_OUT = ("fuzz/", ".github/", ".forgejo/", ".gitlab/")
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)\s]+)", re.MULTILINE)
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
SETTINGS = """[book]
title = "Anabranch"
src = "src"
language = "en"

[output.html]
no-section-label = true

[output.html.search]
limit-results = 30
"""


class BookError(Exception):
    """The book cannot be built; the message names the document."""


def documents() -> list[str]:
    """Returns the documents that git tracks, or that `git add` would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in listed.split() if not name.startswith(LEFT_OUT)})


def chapters(names: list[str]) -> dict[str, list[str]]:
    """Returns the documents of each part, in order.

    Raises:
        BookError: if a document belongs to no part.
    """
    left = [name for name in names if name != "README.md"]
    parts = {}
    for part, places in PARTS.items():
        found = [
            name
            for place in places
            for name in left
            if name == place or (place.endswith("/") and name.startswith(place))
        ]
        parts[part] = list(dict.fromkeys(found))
        left = [name for name in left if name not in parts[part]]
    if left:
        raise BookError(f"{', '.join(left)}: not in the book: add it to PARTS in scripts/book.py")
    return parts


def page(name: str) -> str:
    """Returns the path of a document in the copy, where a folder's README becomes its index."""
    folder, base = posixpath.split(name)
    return posixpath.join(folder, "index.md" if base == "README.md" else base)


def title(text: str, name: str) -> str:
    """Returns the text of the first heading, without markup."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if not found:
        raise BookError(f"{name}: has no title: begin it with a line '# TITLE'")
    return re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", found.group(1))


def copied(text: str, name: str) -> tuple[str, set[str]]:
    """Returns the text with its links changed for the copy, and the repository's files
    it links to.
    """
    files = set()

    def link(match: re.Match[str]) -> str:
        before, target = match.groups()
        path, hash_mark, anchor = target.partition("#")
        if not path or urlsplit(target).scheme:
            return match.group(0)
        file = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if (ROOT / file).is_dir():
            file = posixpath.join(file, "README.md")
        if file.startswith("..") or not (ROOT / file).is_file():
            raise BookError(f"{name}: dead link to {target}")
        files.add(file)
        near = posixpath.relpath(page(file), posixpath.dirname(page(name)) or ".")
        return f"{before}{near}{hash_mark}{anchor}"

    pieces, at = [], 0
    for block in FENCE.finditer(text):
        pieces += [LINK.sub(link, text[at : block.start()]), block.group(0)]
        at = block.end()
    return "".join([*pieces, LINK.sub(link, text[at:])]), files


def write(names: list[str], source: Path, api: str) -> None:
    """Writes the copy of the documents, and its table of contents."""
    needed: set[str] = set()
    titles = {}
    for name in names:
        text, files = copied((ROOT / name).read_text(encoding="utf-8"), name)
        needed |= {file for file in files if not file.endswith(".md") or file not in names}
        titles[name] = title(text, name)
        target = source / page(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for file in needed:
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, source / file)
    lines = ["# Summary", "", f"[{titles['README.md']}]({page('README.md')})"]
    for part, own in chapters(names).items():
        lines += ["", f"# {part}", ""]
        lines += [f"- [{titles[name]}]({page(name)})" for name in own]
        if part == "Reference" and api:
            lines.append("- [API documentation](api.md)")
            (source / "api.md").write_text(api, encoding="utf-8")
    (source / "SUMMARY.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def build(folder: Path) -> None:
    """Runs mdBook.

    Raises:
        BookError: if mdBook fails or prints a warning.
    """
    command = [os.environ.get("MDBOOK", "mdbook"), "build", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or re.search(r"\b(WARN|ERROR)\b", done.stdout + done.stderr):
        raise BookError(f"mdBook: {done.stdout}{done.stderr}")


@dataclass
class Links(HTMLParser):
    """The links of a page, and its link targets (ids)."""

    found: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Records the element's links and its id."""
        for key, value in attrs:
            if value is None:
                continue
            if key in ("href", "src") and tag != "base":
                self.found.append(value)
            if key in ("id", "name"):
                self.places.add(value)


def dead(folder: Path) -> Iterator[str]:
    """Yields dead links of the pages: the target file, or the id in it, does not exist."""
    pages = {}
    for file in folder.rglob("*.html"):
        if file.relative_to(folder).parts[0] not in ("api", "python"):
            pages[file] = Links()
            pages[file].feed(file.read_text(encoding="utf-8"))
    for file, links in pages.items():
        # These pages have absolute links, because they may be served for any address.
        if file.name in ("404.html", "print.html", "toc.html"):
            continue
        for link in links.found:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            where = file.relative_to(folder)
            if not target.is_file():
                yield f"{where}: dead link to {link}"
            elif target in pages and unquote(parts.fragment) not in {"", *pages[target].places}:
                yield f"{where}: dead link to {link}: this page has no such heading"


def api_page(api: Path | None, python: Path | None) -> str:
    """Returns a page with links to the documentation of the crates and of the Python package."""
    lines = ["# API documentation", ""]
    if api:
        crates = sorted(folder.name for folder in api.glob("anabranch*") if folder.is_dir())
        lines += [f"* [{name}](api/{name}/index.html) (Rust)" for name in crates]
    if python:
        lines.append("* [anabranch](python/anabranch.html) (Python)")
    return "\n".join([*lines, ""]) if len(lines) > 2 else ""


def make(into: Path, api: Path | None, python: Path | None) -> None:
    """Builds the whole book."""
    names = documents()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "book.toml").write_text(SETTINGS, encoding="utf-8")
        write(names, folder / "src", api_page(api, python))
        build(folder)
        for name, other in (("api", api), ("python", python)):
            if other:
                shutil.copytree(other, folder / "book" / name)
        if found := list(dead(folder / "book")):
            raise BookError("\n".join(found))
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(folder / "book", into)


def main() -> int:
    """Reads the arguments and builds the book."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("into", type=Path)
    parser.add_argument("--api", type=Path)
    parser.add_argument("--python", type=Path)
    arguments = parser.parse_args()
    try:
        make(arguments.into, arguments.api, arguments.python)
    except BookError as error:
        print(f"book: {error}", file=sys.stderr)
        return 1
    print(f"book: wrote {arguments.into / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
