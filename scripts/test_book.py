#!/usr/bin/env python3
"""Tests that the book's checks fail on dead links, and on documents without a part."""

from __future__ import annotations

import sys
import tempfile
import unittest
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.dont_write_bytecode = True
import book  # noqa: E402


class Book(unittest.TestCase):
    """Links of documents and of pages; parts of the book."""

    def refusal(self, act: Callable[[], object]) -> str:
        """Returns the message of the book's error; fails if there is none."""
        try:
            act()
        except book.BookError as error:
            return str(error)
        raise AssertionError("it was not refused")

    def test_every_document_has_a_place_and_leads_somewhere(self) -> None:
        names = book.documents()
        placed = [name for own in book.chapters(names).values() for name in own]
        assert sorted([*placed, "README.md"]) == names
        for name in names:
            text = (book.ROOT / name).read_text(encoding="utf-8")
            assert book.title(text, name)
            book.copied(text, name)

    def test_a_document_without_a_place(self) -> None:
        told = self.refusal(lambda: book.chapters(["README.md", "notes.md"]))
        assert told.startswith("notes.md: not in the book")

    def test_a_folders_readme_is_its_index(self) -> None:
        text = "[a](../README.md#install) [b](wireguard.md)\n```sh\n[c](none.md)\n```\n"
        changed, files = book.copied(text, "docs/guide/mosh.md")
        assert "](../README.md" not in changed
        assert "](../index.md#install)" in changed
        assert "[c](none.md)" in changed, "a block of code stays as it is"
        assert files == {"docs/README.md", "docs/guide/wireguard.md"}

    def test_a_link_to_a_missing_file(self) -> None:
        for target in ("none.md", "../../../none.md"):
            text = f"[c]({target})"
            told = self.refusal(partial(book.copied, text, "docs/guide/mosh.md"))
            assert told == f"docs/guide/mosh.md: dead link to {target}"

    def test_dead_links_of_pages(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "a.html").write_text(
                '<a href="b.html#here">b</a><a href="https://example.org/x">x</a><img src="a.html">'
            )
            (folder / "b.html").write_text('<h2 id="here">b</h2><a href="#here">h</a>')
            assert list(book.dead(folder)) == []
            (folder / "b.html").write_text('<h2 id="there">b</h2><a href="c.html">c</a>')
            found = sorted(book.dead(folder))
            assert found == [
                "a.html: dead link to b.html#here: this page has no such heading",
                "b.html: dead link to c.html",
            ]


if __name__ == "__main__":
    unittest.main()
