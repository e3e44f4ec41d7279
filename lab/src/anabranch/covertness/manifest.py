"""The captures of a folder: `manifest.jsonl`, a line of JSON for each.

    {"file": "real-a/0001.pcap", "class": "real-a", "site": "lodash", "session": 1,
     "server": "10.99.0.1:80", "for": "all"}

`class` is the program that made the traffic, `site` the site that it loaded or imitated. `session`
is the number of a visit, unique within a class. Captures of several classes with the same number
were made at about the same time, and are never divided between training and test of a forest.
`server`, which may be missing, excludes connections to other servers. `for` is `all` (the default)
or `detectors`: the capture was made for its first packets, its sizes and times have no meaning,
and it needs neither site nor session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.io import listing
from anabranch.io.headers import End, end
from anabranch.validate import TraceError, source

NAME = "manifest.jsonl"
_KINDS = {"file": str, "class": str, "site": str, "session": int, "server": str, "for": str}
_NEEDED = {"all": ("file", "class", "site", "session"), "detectors": ("file", "class")}


@dataclass(frozen=True, slots=True)
class Entry:
    """A capture, from one line of the manifest."""

    file: Path
    name: str
    """The capture's class."""
    purpose: str
    """Field `for`: `all` or `detectors`."""
    site: str
    """The site. With the purpose `detectors` it may be empty, with session 0."""
    session: int
    server: End | None


def read(folder: Path) -> list[Entry]:
    """Returns the captures of a folder, in the manifest's order.

    Raises:
        TraceError: names the manifest and the wrong line.
    """
    path = folder / NAME
    with source(path):
        rows = listing.rows(path, _KINDS, _needed)
        entries = {number: _entry(folder, row, number) for number, row in rows}
        if not entries:
            raise TraceError("lists no captures")
        _compare(entries)
    return list(entries.values())


def _compare(entries: dict[int, Entry]) -> None:
    """Refuses duplicate files, duplicate sessions of a class, and sessions with several sites."""
    files: set[Path] = set()
    sessions: set[tuple[str, int]] = set()
    sites: dict[int, str] = {}
    for number, each in entries.items():
        if each.file in files:
            raise TraceError(f"line {number}: the file is listed twice")
        files.add(each.file)
        if each.purpose != "all":
            continue
        if (each.name, each.session) in sessions:
            raise TraceError(f"line {number}: an earlier line has the same class and session")
        sessions.add((each.name, each.session))
        if sites.setdefault(each.session, each.site) != each.site:
            raise TraceError(f"line {number}: an earlier line has this session for another site")


def _needed(row: Mapping[str, Any]) -> tuple[str, ...]:
    purpose = row.get("for", "all")
    if purpose not in _NEEDED:
        raise TraceError(f"'for' is '{purpose}': expected all or detectors")
    return _NEEDED[purpose]


def _entry(folder: Path, row: Mapping[str, Any], number: int) -> Entry:
    try:
        server = end(row["server"]) if "server" in row else None
    except ValueError as error:
        raise TraceError(f"line {number}: 'server': {error}") from error
    site, session = row.get("site", ""), row.get("session", 0)
    purpose = row.get("for", "all")
    return Entry(folder / row["file"], row["class"], purpose, site, session, server)
