"""Which captures a folder has: `manifest.jsonl`, a line of JSON for each.

    {"file": "real-a/0001.pcap", "class": "real-a", "site": "lodash", "session": 1,
     "server": "10.99.0.1:80", "for": "all"}

`class` is what made the traffic, `site` whose pages it loaded or imitates, `session` a number that
is this client's alone within the class. `server` leaves out connections to others. `for` is `all`,
or `detectors`: made for its first packets, in a way that says nothing of sizes and times. The last
two may be missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from anabranch.io.headers import End, end
from anabranch.validate import TraceError, source

NAME = "manifest.jsonl"
PURPOSES = ("all", "detectors")
_WORDS = {"file": str, "class": str, "site": str, "session": int, "server": str, "for": str}
_NEEDED = ("file", "class", "site", "session")


@dataclass(frozen=True, slots=True)
class Entry:
    """A capture: a line of the manifest."""

    file: Path
    name: str
    """Its class."""
    site: str
    session: int
    server: End | None
    purpose: str
    """One of `PURPOSES`."""


def read(folder: Path) -> list[Entry]:
    """The captures of a folder, in the manifest's order.

    Raises:
        TraceError: names the manifest and its line that is wrong.
    """
    listing = folder / NAME
    with source(listing):
        lines = listing.read_text("utf-8").splitlines()
        entries = [_entry(folder, line, number)
                   for number, line in enumerate(lines, 1) if line.strip()]  # fmt: skip
        if not entries:
            raise TraceError("names no captures")
        seen: set[Path] = set()
        for number, each in enumerate(entries, 1):
            if each.file in seen:
                raise TraceError(f"line {number}: the file stands there twice")
            seen.add(each.file)
    return entries


def _entry(folder: Path, line: str, number: int) -> Entry:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"line {number}: no JSON") from error
    if not isinstance(given, dict):
        raise TraceError(f"line {number}: no JSON object")
    for key, value in given.items():
        if key not in _WORDS:
            raise TraceError(f"line {number}: there is no '{key}' in a manifest")
        if type(value) is not _WORDS[key]:
            kind = "a whole number" if _WORDS[key] is int else "a text"
            raise TraceError(f"line {number}: '{key}' is not {kind}")
    for key in _NEEDED:
        if given.get(key) in (None, ""):
            raise TraceError(f"line {number}: '{key}' is missing")
    purpose = given.get("for", "all")
    if purpose not in PURPOSES:
        raise TraceError(f"line {number}: 'for' is all or detectors, not '{purpose}'")
    try:
        server = end(given["server"]) if "server" in given else None
    except ValueError as error:
        raise TraceError(f"line {number}: 'server': {error}") from error
    file = folder / given["file"]
    return Entry(file, given["class"], given["site"], given["session"], server, purpose)
