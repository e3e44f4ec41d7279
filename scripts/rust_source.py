"""Parser of Rust files for the guards: blanks comments and strings, and finds functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

# Patterns of a comment, a string or a character, which are replaced by blanks of the same length,
# so that offsets stay valid.
_RAW = r'b?r(?P<hashes>#*)".*?"(?P=hashes)'
_TEXT = r'b?"(?:\\.|[^"\\])*"'
_CHARACTER = r"b?'(?:\\(?:u\{[0-9a-fA-F_]+\}|x..|.)|[^'\\\n])'"
_LINE = r"//[^\n]*"
_SKIPPED = re.compile(f"{_RAW}|{_TEXT}|{_CHARACTER}|{_LINE}|/\\*", re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_BRACE = re.compile(r"[{}]")
_BRACKET = re.compile(r"[()\[\];{]")
_FUNCTION = re.compile(r"\bfn\s+(\w+)")
_ATTRIBUTES = r"(?:#\[[^\]]*\]\s*)*"
_TEST_MODULE = re.compile(
    rf"#\[cfg\(test\)\]\s*{_ATTRIBUTES}(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{{"
)


@dataclass(frozen=True)
class Function:
    """A function with a body: ``lines`` runs from its ``fn`` to its closing brace."""

    name: str
    line: int
    lines: int
    in_tests: bool


# Several guards read each file.
@cache
def blank(source: str, keep_comments: bool = False) -> str:
    """Returns the source with strings and comments (unless kept) replaced by blanks."""
    parts, at = [], 0
    while match := _SKIPPED.search(source, at):
        start, end = match.start(), match.end()
        if match.group() == "/*":
            end = _comment_end(source, end)
        is_comment = match.group().startswith(("//", "/*"))
        skipped = source[start:end]
        parts += [source[at:start], skipped if is_comment and keep_comments else _blanks(skipped)]
        at = end
    return "".join([*parts, source[at:]])


@cache
def functions(source: str) -> tuple[Function, ...]:
    """Returns every function with a body. A nested function is also part of its parent."""
    return tuple(_functions(source))


def _functions(source: str) -> Iterator[Function]:
    plain = blank(source)
    tests = list(_test_spans(plain))
    for match in _FUNCTION.finditer(plain):
        body = _body(plain, match.end())
        if body is None:
            continue
        first = plain.count("\n", 0, match.start()) + 1
        last = plain.count("\n", 0, body) + 1
        in_tests = any(start <= match.start() < end for start, end in tests)
        yield Function(match.group(1), first, last - first + 1, in_tests)


def lines_without_tests(source: str) -> int:
    """Returns the number of lines of a file without its test modules."""
    plain = blank(source)
    tested = sum(plain.count("\n", start, end) for start, end in _test_spans(plain))
    return plain.count("\n") - tested


@cache
def without_tests(source: str) -> str:
    """Returns the source with its test modules blanked, line for line."""
    for start, end in _test_spans(blank(source)):
        source = source[:start] + _blanks(source[start:end]) + source[end:]
    return source


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _comment_end(source: str, at: int) -> int:
    """Returns the end of a block comment whose opening is before ``at``. Block comments nest."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(source, at):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(source)


def _body(plain: str, at: int) -> int | None:
    """Returns the end of the body of the function whose name ends at ``at``; None if it
    has none.
    """
    depth = 0
    for bracket in _BRACKET.finditer(plain, at):
        character = bracket.group()
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == ";" and depth == 0:
            return None
        elif character == "{" and depth == 0:
            return _closing(plain, bracket.start())
    return None


def _closing(plain: str, at: int) -> int:
    """Returns the position of the brace that closes the one at ``at``."""
    depth = 0
    for brace in _BRACE.finditer(plain, at):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.start()
    return len(plain)


def _test_spans(plain: str) -> Iterator[tuple[int, int]]:
    for match in _TEST_MODULE.finditer(plain):
        yield match.start(), _closing(plain, match.end() - 1)
