"""Captured page loads (`bench/camouflage_fingerprinting.py`) as traces.

`loads.jsonl` has a line of JSON for each load:

    {"file": "tor-http-text/003.pcap", "kind": "tor-http-text", "server": "198.51.100.1:8009",
     "turn": 3, "monitored": true, "site": "lodash", "began": 1764449000.1,
     "loaded": 1764449002.3, "ended": 1764449002.8}

The capture has the load's packets between `began` and `ended`; `loaded` is the time of the
browser's load event, all in seconds since 1970. For a failed load, `failed` is the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch.io import draft, listing, parquet, pcapng
from anabranch.io.headers import End, end, segment
from anabranch.traces import Builder, Traces
from anabranch.validate import TraceError, source

LISTING = "loads.jsonl"
TABLE = "loads.parquet"


@dataclass(frozen=True, slots=True)
class Load:
    """A captured page load, from one line of `loads.jsonl`.

    Attributes:
        file: name of the capture in its folder.
        kind: the client's tunnel (such as `tor`), the profile of our transport around it, and the
            database (`a` or `b`) with the profile's covers; for example `tor-http-site-a`.
        server: address and port to which the client connects.
        turn: the repetition of the experiment.
        monitored: whether the site is loaded in every turn.
        site: name of the site.
        began, loaded, ended: seconds since 1970.
        failed: why the load failed; empty if it did not.
    """

    file: str
    kind: str
    server: str
    turn: int
    monitored: bool
    site: str
    began: float
    loaded: float
    ended: float
    failed: str = ""


def read(folder: Path) -> list[Load]:
    """Returns all loads of a folder, in the order of the listing.

    Raises:
        TraceError: names the listing and the wrong line.
    """
    path = folder / LISTING
    with source(path):
        found = [Load(**row) for _, row in listing.rows(path, _KINDS, lambda _: _NEEDED)]
        if not found:
            raise TraceError("lists no loads")
    return found


_KINDS = get_type_hints(Load)
_NEEDED = [each.name for each in fields(Load) if each.default is MISSING]


def traces(folder: Path, loads: Sequence[Load]) -> dict[str, Traces]:
    """Returns the packets of all loads that did not fail, by kind.

    A load's number is the position of its line in the listing, from 1; its run is its turn. Sizes
    are bytes of IP packets. Times are seconds since the load's first packet.

    Raises:
        TraceError: if a capture is damaged, or has no packet of a load.
    """
    builders: dict[str, Builder] = {}
    number = 0
    for file in dict.fromkeys(load.file for load in loads):
        own = [load for load in loads if load.file == file]
        with source(folder / file):
            times, sizes = _packets(folder / file, end(own[0].server))
            for load in own:
                number += 1
                if load.failed:
                    continue
                inside = (times >= load.began) & (times < load.ended)
                if not inside.any():
                    raise TraceError(f"has no packet of the load of {load.site}")
                builders.setdefault(load.kind, Builder()).add(
                    load.site,
                    times[inside] - times[inside][0],
                    sizes[inside],
                    load=number,
                    run=load.turn,
                    monitored=load.monitored,
                )
    return {kind: builder.build() for kind, builder in builders.items()}


def _packets(file: Path, server: End) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Returns times [s since 1970] and signed sizes of the packets to and from a server, sorted."""
    rows = sorted(_rows(file, server))
    times, sizes = zip(*rows, strict=True) if rows else ((), ())
    return np.array(times, np.float64), np.array(sizes, np.int32)


def _rows(file: Path, server: End) -> Iterator[tuple[float, int]]:
    for record in pcapng.records(file.read_bytes(), file):
        found = segment(record.link, record.frame)
        if found is not None and server in (found.sender, found.receiver):
            yield record.time / 1e9, found.size if found.receiver == server else -found.size


def write(folder: Path, target: Path) -> list[str]:
    """Converts the captures of a folder; returns the names of the kinds.

    `target` gets a file of traces for each kind, and `loads.parquet`, which has all loads with
    their durations and failures.

    Raises:
        TraceError: as `read` and `traces` do.
    """
    loads = read(folder)
    target.mkdir(parents=True, exist_ok=True)
    found = traces(folder, loads)
    for kind, own in found.items():
        place = target / f"{kind}.parquet"
        parquet.write(own, place)
        place.chmod(0o644)
    place = target / TABLE
    with source(place), draft.file(place) as part:
        pq.write_table(_table(loads), part, compression="zstd")
        part.chmod(0o644)
    return list(found)


def _table(loads: Sequence[Load]) -> pa.Table:
    columns = {name: [getattr(load, name) for load in loads]
               for name in ("kind", "turn", "monitored", "site", "failed")}  # fmt: skip
    columns["seconds"] = [load.loaded - load.began for load in loads]
    return pa.table(columns)


def kinds(folder: Path) -> list[str]:
    """Returns the kinds of loads (tunnel, profile and database) whose traces a folder has.

    Raises:
        TraceError: if the folder has none.
    """
    found = sorted(file.stem for file in folder.glob("*.parquet") if file.name != TABLE)
    if not found:
        raise TraceError(
            "has no traces of page loads: add --captures to convert captures", file=folder
        )
    return found
