"""Files of traces: one module for each format, each with `read` and `write`.

| name | what it is |
|---|---|
| `parquet` | our schema, docs/formats.md: a row per packet; `anabranch split --trace` writes it |
| `pcapng` | a folder of captures, one for each path, by `anabranch split --pcap` or tcpdump |
| `lists` | Parquet with a row per load: `label`, `instance`, `times`, `sizes` and maybe `run` |
| `wflib` | npz with `X` = direction × time [s], zero padded, and `y` |
| `directions` | npz with `X` = directions, zero padded, and `y`: no times |
| `cells` | a folder of `A-B.cell` and `C.cell`: a line `time<TAB>direction` per packet |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from anabranch.io import cells, directions, lists, packed, parquet, pcapng, wflib
from anabranch.io.meaning import Meaning
from anabranch.traces import Traces
from anabranch.validate import TraceError, source

__all__ = [
    "FORMATS",
    "Meaning",
    "detect",
    "files",
    "read",
    "refuse_existing",
    "refuse_source",
    "write",
]

FORMATS: Mapping[str, tuple[Callable[[Path, Meaning], Traces], Callable[[Traces, Path], None]]] = {
    "parquet": (parquet.read, parquet.write),
    "pcapng": (pcapng.read, pcapng.write),
    "lists": (lists.read, lists.write),
    "wflib": (wflib.read, wflib.write),
    "directions": (directions.read, directions.write),
    "cells": (cells.read, cells.write),
}
"""Reader and writer of each format."""

_FOLDERS: Mapping[str, Callable[[Path], list[Path]]] = {
    "pcapng": pcapng.files,
    "cells": cells.files,
}
"""Functions that list a folder's files, for formats that are folders."""

_UNTOLD: Mapping[str, tuple[str, ...]] = {
    "parquet": (),
    "pcapng": ("label", "monitored", "server"),
    "lists": ("monitored",),
    "wflib": ("monitored", "unmonitored"),
    "directions": ("monitored", "unmonitored"),
    "cells": (),
}
"""Attributes of `Meaning` that the user may have to supply, by format."""


def read(path: Path | str, form: str | None = None, meaning: Meaning | None = None) -> Traces:
    """Reads traces in the given format, or in the format detected from name and content.

    Args:
        path: `loads.parquet`, `wflib.npz`, `path.pcapng`, or a folder of captures or `.cell` files.
        form: one of `FORMATS`; None detects it (`detect`).
        meaning: facts that the file does not contain.

    Raises:
        TraceError: if the file is invalid, or the format does not use a given attribute of
            `meaning`; the message names the file and the column or attribute.
    """
    path = Path(path)
    form, meaning = form or detect(path), meaning or Meaning()
    reader, _ = FORMATS[form]
    with source(path):
        for name in meaning.names():
            if name not in _UNTOLD[form]:
                raise TraceError(
                    f"{name}: files of the format {form} contain this themselves "
                    "or cannot have it: leave it out"
                )
        return reader(path, meaning)


def write(traces: Traces, path: Path | str, form: str | None = None) -> None:
    """Writes traces in the given format; by default `parquet` or `wflib`, by the suffix of `path`.

    The file or folder appears when it is complete, or not at all.

    Raises:
        TraceError: if there is no load, the format cannot hold these traces, or the path cannot
            be written.
    """
    path, endings = Path(path), {".parquet": "parquet", ".npz": "wflib"}
    form = form or endings.get(path.suffix)
    if form is None:
        raise TraceError(
            f"the format cannot be recognised: name one of {', '.join(FORMATS)}", file=path
        )
    _, writer = FORMATS[form]
    with source(path):
        if not len(traces):
            raise TraceError("there are no loads to write")
        writer(traces, path)


def files(path: Path, form: str | None = None) -> list[Path]:
    """Returns the files that `read` reads: the named file, or a folder's files of its format.

    Raises:
        TraceError: if `path` does not exist, or is a folder of no known format.
    """
    with source(path):
        if path.is_dir():
            listed = _FOLDERS.get(form or _detect_folder(path))
            return [] if listed is None else listed(path)
        if not path.exists():
            raise TraceError("no such file or folder")
        return [path]


def refuse_source(target: Path, path: Path, form: str | None = None) -> None:
    """Refuses to write `target` if it is a file that `read` reads for `path`.

    Raises:
        TraceError: if `target` is such a file, or the traces cannot be read.
    """
    if target.resolve() in {file.resolve() for file in [path, *files(path, form)]}:
        raise TraceError("OUT is also IN: choose another OUT", file=target)


def refuse_existing(target: Path, *, replace: bool) -> None:
    """Refuses to write a file that exists, unless it may be replaced.

    Raises:
        TraceError: if it exists.
    """
    if target.is_file() and not replace:
        problem = "it exists: choose another name, or add --replace"
        raise TraceError(problem, file=target)


def detect(path: Path | str) -> str:
    """Detects the format of a file or folder.

    Raises:
        TraceError: if the format is unknown.
    """
    path = Path(path)
    with source(path):
        if path.is_dir():
            return _detect_folder(path)
        if not path.exists():
            raise TraceError("no such file or folder")
        if pcapng.is_named(path):
            return "pcapng"
        if path.suffix == ".npz":
            return "directions" if directions.matches(path) else "wflib"
        if path.suffix == ".parquet":
            return "lists" if lists.matches(path) else "parquet"
        packed.check_file(path)
    raise TraceError(
        f"the format cannot be recognised: name one of {', '.join(FORMATS)}", file=path
    )


def _detect_folder(path: Path) -> str:
    if pcapng.files(path):
        return "pcapng"
    if cells.matches(path):
        return "cells"
    raise TraceError(
        "this folder has no .pcapng, .pcap or .cell files (A-B.cell or A-B: load B of page A)"
    )
