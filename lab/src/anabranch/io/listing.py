"""Listings of captures: a file in a folder of captures, with a JSON object on each line."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from anabranch.validate import TraceError

Kinds = Mapping[str, type]
"""The type of each key; whole numbers are accepted for `float`."""

Needed = Callable[[Mapping[str, Any]], Collection[str]]

_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def rows(listing: Path, kinds: Kinds, needed: Needed) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line number and the object of each line of a listing; blank lines are skipped.

    Args:
        listing: the file.
        kinds: the keys that a line may have.
        needed: returns the keys that a line must have, with values other than null and empty text.

    Raises:
        TraceError: if a line is wrong; the message names the line and the key.
    """
    for number, line in enumerate(listing.read_text("utf-8").splitlines(), 1):
        if line.strip():
            try:
                yield number, _row(line, kinds, needed)
            except TraceError as error:
                raise TraceError(f"line {number}: {error}") from error


def _row(line: str, kinds: Kinds, needed: Needed) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError("the line is not JSON") from error
    if not isinstance(given, dict):
        raise TraceError("the line is not a JSON object")
    for key, value in given.items():
        if key not in kinds:
            raise TraceError(f"'{key}' is not a key of this list: expected {', '.join(kinds)}")
        if type(value) not in ({kinds[key], int} if kinds[key] is float else {kinds[key]}):
            raise TraceError(f"'{key}' is {value!r}, not {_NAMES[kinds[key]]}")
    for key in needed(given):
        if given.get(key) in (None, ""):
            raise TraceError(f"'{key}' is missing")
    return given
