#!/usr/bin/env python3
"""Counts markers of hard English in the doc comments of the workspace, by crate.

Usage: scripts/language.py [--record] [CRATE]
Without arguments it prints a table; with CRATE, each comment of that crate with a marker. --record
writes the counts to scripts/language.json; the guard `plain_comments` fails if one is exceeded.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
from rust_source import without_tests  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RECORD = "scripts/language.json"
# The first pattern is matched at the beginning of a comment, the others anywhere in it.
MARKERS = {
    "begins with What or Who": r"^(What|Who|Whose|Whom|By which|To whom|Of what|Of which)\b",
    "tell, say": r"\b(told|tells?|said|says?)\b",
    "so many": r"\bso (many|long|much)\b",
    "beside": r"\b(beside|behind|anew)\b",
    "by which": r"\b(by|of|to) (which|whom)\b",
    "one that": r"\b(one|those|all|it) that\b",
}
# Digits and backticks are signs of numbers and identifiers; of this marker, more is better.
CONCRETE = re.compile("[`0-9]")
_DOC = re.compile(r"\s*//[/!] ?(.*)")


@dataclass
class Counts:
    """Counts of comments, words and markers of hard English in one crate."""

    comments: int = 0
    words: int = 0
    concrete: int = 0
    markers: tuple[int, ...] = (0,) * len(MARKERS)

    def __add__(self, other: Counts) -> Counts:
        markers = tuple(a + b for a, b in zip(self.markers, other.markers, strict=True))
        return Counts(
            self.comments + other.comments, self.words + other.words,
            self.concrete + other.concrete, markers,
        )  # fmt: skip

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates: the first marker in % of comments; the others and `concrete` per 1,000 words."""
        first, *rest = self.markers
        words = max(self.words, 1)
        share = 100 * first / max(self.comments, 1)
        return (share, *(1000 * count / words for count in (*rest, self.concrete)))


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yields each doc comment outside tests as one line, with the number of its first line."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate([*without_tests(text).split("\n"), ""], 1):
        if found := _DOC.match(line):
            first = first if parts else number
            parts.append(found[1])
        elif parts:
            yield first, " ".join(parts).strip()
            parts = []


def counted(comment: str) -> Counts:
    """Counts words and markers of hard English in one comment."""
    first, *rest = MARKERS.values()
    begins = int(re.search(first, comment) is not None)
    others = (len(re.findall(marker, comment, re.IGNORECASE)) for marker in rest)
    return Counts(
        1, len(comment.split()), len(CONCRETE.findall(comment)), (begins, *others)
    )  # fmt: skip


def is_source(name: str) -> bool:
    """Returns whether a file is part of a crate's program, and not of its tests."""
    return bool(re.match(r"crates/\w+/src/.*\.rs$", name)) and "tests" not in name


def by_crate(files: dict[str, str]) -> dict[str, Counts]:
    """Returns the counts of each crate; `files` has texts by their paths in the repository."""
    found: dict[str, Counts] = {}
    for name, text in files.items():
        if is_source(name):
            crate = name.split("/")[1]
            total = sum((counted(comment) for _, comment in comments(text)), Counts())
            found[crate] = found.get(crate, Counts()) + total
    return found


def main(arguments: list[str]) -> int:
    """Prints a table, or a crate's comments, or writes the record."""
    paths = sorted(ROOT.glob("crates/*/src/**/*.rs"))
    files = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    found = by_crate(files)
    if "--record" in arguments:
        record = {crate: list(counts.markers) for crate, counts in sorted(found.items())}
        rows = ",\n".join(f'  "{crate}": {json.dumps(counts)}' for crate, counts in record.items())
        (ROOT / RECORD).write_text(f"{{\n{rows}\n}}\n")
        return 0
    if arguments:
        return _hits(files, arguments[0])
    print(
        f"{'':12}{'comments':>9}{'words':>8}", *(f"{name:>24}" for name in (*MARKERS, "` or 0-9"))
    )
    total = sum(found.values(), Counts())
    for crate, counts in [*sorted(found.items()), ("all", total)]:
        rates = (f"{rate:24.1f}" for rate in counts.rates)
        print(f"{crate:12}{counts.comments:9}{counts.words:8}", *rates)
    return 0


def _hits(files: dict[str, str], crate: str) -> int:
    for name, text in files.items():
        if is_source(name) and name.startswith(f"crates/{crate}/"):
            for number, comment in comments(text):
                if any(counted(comment).markers):
                    print(f"{name}:{number}: {comment}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
