"""Folders in WFZoo's format, with one text file for each load.

`A-B.cell` is load B of monitored page A, `C.cell` is a load of the unmonitored page C. Older
collections have the same files without the suffix. A line is `time<TAB>direction`, + from client
to server; some tools write a signed size instead of the direction. An optional `labels.tsv` in the
folder gives names to the numbers A and C. A file without packets, as failed crawls leave it, is
not a load.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch import validate
from anabranch.io import draft
from anabranch.io.meaning import Meaning
from anabranch.traces import Builder, Facts, Traces, loads
from anabranch.validate import TraceError, source

NAMES = "labels.tsv"
"""File with lines `page<TAB>label`, an addition to WFZoo's format; a page is `A`, or `open C` if
unmonitored.
"""

_NAME = re.compile(r"(\d+)(?:-(\d+))?(?:\.cell)?")

_MONITORED = re.compile(r"\d+-\d+")

_LARGEST = np.iinfo(np.int32).max
"""Maximum size of a packet."""


def read(path: Path, meaning: Meaning | None = None) -> Traces:
    """Reads a folder. A page without a name in `labels.tsv` has its number as label.

    Raises:
        TraceError: if a line is wrong, or a file has no packets; the message names the file.
    """
    del meaning
    names = _read_names(path / NAMES)
    builder = Builder()
    keyed = _keyed(path)
    if not keyed:
        raise TraceError("this folder has no .cell files")
    for (key, file), (other, second) in pairwise(keyed):
        if key == other:
            raise TraceError(f"{file.name} and {second.name} are the same load")
    for (site, instance), file in keyed:
        page = str(site) if instance >= 0 else f"open {site}"
        with source(file):
            times, sizes = zip(*_packets(file), strict=True)
        builder.add(names.get(page, page), times, sizes, monitored=instance >= 0)
    traces = builder.build()
    return replace(traces, facts=Facts(size=_unit(traces.sizes)))


def matches(path: Path) -> bool:
    """Returns whether a folder has files of this format: `*.cell`, or `A-B` without suffix."""
    names = [entry.name for entry in path.iterdir()]
    return any(name.endswith(".cell") or _MONITORED.fullmatch(name) for name in names)


def files(path: Path) -> list[Path]:
    """Returns the files of a folder that `read` reads."""
    names = path / NAMES
    return [file for _, file in _keyed(path)] + ([names] if names.exists() else [])


def write(traces: Traces, path: Path) -> None:
    """Writes a folder of directions.

    Sizes and paths are lost. Loads of all runs are numbered together.

    Raises:
        TraceError: if the folder exists and is not empty, a load is empty, or a label has a line
            break.
    """
    validate.filled(traces, "cells")
    _refuse_lines(traces.names)
    with draft.folder(path) as folder:
        pages = _pages(traces)
        instances: Counter[str] = Counter()
        for k, (_, times, sizes) in enumerate(loads(traces)):
            page = pages[k]
            stem = page.removeprefix("open ") if " " in page else f"{page}-{instances[page]}"
            instances[page] += 1
            signs = np.sign(sizes).tolist()
            rows = zip(times.tolist(), signs, strict=True)
            (folder / f"{stem}.cell").write_text("".join(f"{t!r}\t{s}\n" for t, s in rows))
        names = dict(zip(pages, traces.labels.tolist(), strict=True))
        (folder / NAMES).write_text("".join(f"{page}\t{label}\n" for page, label in names.items()))


def _pages(traces: Traces) -> list[str]:
    """Returns the page of each load: the number of its monitored label, or `open` and a number.

    Each unmonitored load is a page of its own.
    """
    codes: dict[int, int] = {}
    pages = []
    unmonitored = 0
    for code, monitored in zip(traces.label.tolist(), traces.monitored.tolist(), strict=True):
        if monitored:
            pages.append(str(codes.setdefault(code, len(codes))))
        else:
            pages.append(f"open {unmonitored}")
            unmonitored += 1
    return pages


def _keyed(path: Path) -> list[tuple[tuple[int, int], Path]]:
    """Returns the files of a folder with their keys, sorted by page and instance."""
    return sorted((key, file) for file in path.iterdir() if (key := _key(file.name)))


def _key(name: str) -> tuple[int, int] | None:
    """Parses a file name into page and instance; the instance is -1 for unmonitored pages."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2] or -1)) if found else None


def _packets(file: Path) -> list[tuple[float, float]]:
    """Returns the time and the signed size of each packet of a file."""
    packets: list[tuple[float, float]] = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.strip():
            packet = _packet(line, number)
            if packets and packet[0] < packets[-1][0]:
                raise TraceError(f"line {number} has an earlier time than the previous line")
            packets.append(packet)
    if not packets:
        raise TraceError("contains no packets")
    return packets


def _packet(line: str, number: int) -> tuple[float, float]:
    try:
        time, size = map(float, line.split()[:2])
    except ValueError:
        raise TraceError(f"line {number} is not a time and a direction") from None
    if not 0 <= time < math.inf:
        raise TraceError(f"line {number} has a time that is negative or not a finite number")
    if not (size.is_integer() and 0 < abs(size) <= _LARGEST):
        raise TraceError(f"line {number} has {size:g} instead of a direction, such as 1 or -1")
    return time, size


def _unit(sizes: NDArray[np.int32]) -> str:
    values = np.unique(abs(sizes))
    if values.size != 1:
        return "ip-packet"
    return "direction" if values[0] == 1 else "cell"


def _read_names(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    with source(file):
        rows = [line.split("\t", 1) for line in file.read_text().splitlines()]
        if any(len(row) != 2 for row in rows):
            raise TraceError("a line is not 'page<TAB>label'")
    return {row[0]: row[1] for row in rows}


def _refuse_lines(names: tuple[str, ...]) -> None:
    for name in names:
        if len(f"{name}|".splitlines()) > 1:
            raise TraceError(
                f"{name!r} has a line break, which {NAMES} cannot hold", column="label"
            )
