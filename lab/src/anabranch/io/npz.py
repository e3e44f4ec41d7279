"""Common parts of the npz formats: `X`, a zero-padded row per load, and `y`, its label's number.

WFlib requires label numbers from 0 without gaps, with one number, the last, for all unmonitored
pages. Additional arrays of our own keep the information that this loses; other readers ignore them
(docs/formats.md, "npz").
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anabranch.io import draft
from anabranch.io.meaning import Meaning
from anabranch.traces import Traces
from anabranch.validate import TraceError

LENGTH = 10_000
"""Packets per row: WFlib pads and cuts rows to this length."""

Arrays: TypeAlias = dict[str, NDArray[Any]]

_ADDED = ("labels", "pages", "monitored")
"""Our additional arrays: names of labels; each load's index into them; whether it is monitored."""


@dataclass(frozen=True, slots=True)
class Table:
    """The content of an npz file of `n` loads."""

    X: NDArray[Any]
    """(n, packets), numbers."""
    labels: list[str]
    """The label of each load."""
    monitored: NDArray[np.bool_]
    """(n,): whether the load's label is monitored."""
    runs: NDArray[np.int64]
    """(n,): the run of each load, the number of its group of arrays, from 0."""


def read(path: Path, meaning: Meaning) -> Table:
    """Reads `X` and `y`, or `X_NAME` and `y_NAME` of several groups, which become runs 0, 1, ...

    By default, labels are the numbers of `y`, and all are monitored; our arrays and `meaning` can
    change this. A load of class `meaning.unmonitored` has the page in our array `pages`.
    Without this array, each such load is a page of its own (`open 0`, `open 1`, ...), because
    crawls load each unmonitored page once.

    Raises:
        TraceError: if an array is missing or of the wrong shape, or there are no rows.
    """
    arrays, groups = _arrays(path)
    for group in groups:
        _check_shapes(arrays, group)
    _check_widths(arrays, groups)
    X = np.concatenate([arrays["X" + group] for group in groups])
    y = np.concatenate([arrays["y" + group].astype(np.int64) for group in groups])
    if not y.size:
        raise TraceError("contains no rows", column="X")
    runs = np.repeat(np.arange(len(groups)), [arrays["y" + group].size for group in groups])
    outside = _outside(y, meaning)
    monitored = _monitored(arrays, y, meaning) & ~outside
    return Table(X, _labels(arrays, y, outside), monitored, runs)


def write(path: Path, loads: Iterable[NDArray[Any]], traces: Traces) -> None:
    """Writes `y`, and `X` row by row from one array per load, cut and padded to `LENGTH`."""
    each = list(loads)
    kind: DTypeLike = each[0].dtype if each else np.float64
    with draft.file(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in _numbers(traces).items():
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
        with archive.open("X.npy", "w", force_zip64=True) as entry:
            header = {"descr": np.dtype(kind).str, "fortran_order": False}
            shape = {"shape": (len(each), LENGTH)}
            np.lib.format.write_array_header_2_0(entry, header | shape)
            for row in each:
                padded = np.zeros(LENGTH, kind)
                padded[: row.size] = row[:LENGTH]
                entry.write(padded.tobytes())


def rows(X: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yields each row of `X` without its trailing zeros, the padding."""
    for row in X:
        filled = np.flatnonzero(row)
        yield row[: filled[-1] + 1] if filled.size else row[:0]


def refuse_gap(row: NDArray[Any], number: int, first: int) -> None:
    """Refuses a row without padding that has a 0 from index `first` on, before its last packet."""
    gaps = np.flatnonzero(row[first:] == 0)
    if gaps.size:
        problem = f"row {number} has a 0 at index {gaps[0] + first}, before its last packet"
        raise TraceError(problem, column="X")


@contextmanager
def damage() -> Iterator[None]:
    """Converts every error in its `with` block to a `TraceError`; the block only reads a file."""
    try:
        yield
    # On damaged bytes, zipfile, its decompressors and numpy raise many types of errors, such as
    # zlib.error, TokenError, NotImplementedError, EOFError, SystemError, MemoryError.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise TraceError(f"not a readable npz file: {reason}") from error


def _arrays(path: Path) -> tuple[Arrays, list[str]]:
    """Returns the known arrays, and the suffixes of their groups: `_NAME`, or empty."""
    with path.open("rb") as file, damage(), _opened(file) as archive:
        found = archive.files
        # An entry that is not an array becomes bytes; the check of shapes rejects it later.
        arrays = {name: np.asarray(archive[name]) for name in found if _is_known(name)}
    groups = [name[1:] for name in arrays if name.startswith("X_")] or [""]
    for name in (kind + group for group in groups for kind in "Xy"):
        if name not in arrays:
            raise TraceError(f"is missing; the file has {', '.join(found)}", column=name)
    return arrays, groups


def _opened(file: BinaryIO) -> np.lib.npyio.NpzFile:
    archive = np.load(file, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise TraceError("it is a single array (npy)")
    return archive


def _is_known(name: str) -> bool:
    return name in ("X", "y", *_ADDED) or name.startswith(("X_", "y_"))


def _check_shapes(arrays: Arrays, group: str) -> None:
    X, y = arrays["X" + group], arrays["y" + group]
    if X.ndim != 2:
        raise TraceError(f"has the shape {X.shape}, not (loads, packets)", column="X" + group)
    if y.shape != (X.shape[0],):
        problem = f"has the shape {y.shape}, not ({X.shape[0]},) as X{group}"
        raise TraceError(problem, column="y" + group)
    if X.dtype.kind not in "fiu":
        raise TraceError(f"holds {X.dtype}, not numbers", column="X" + group)
    if y.dtype.kind not in "iu" or not np.array_equal(y, y.astype(np.int64)):
        raise TraceError(f"holds {y.dtype}, not whole numbers of 64 bits", column="y" + group)


def _check_widths(arrays: Arrays, groups: list[str]) -> None:
    widths = {"X" + group: arrays["X" + group].shape[1] for group in groups}
    if len(set(widths.values())) > 1:
        each = ", ".join(f"{name} has {width}" for name, width in widths.items())
        raise TraceError(f"the arrays have rows of different lengths: {each}")


def _labels(arrays: Arrays, y: NDArray[np.int64], outside: NDArray[np.bool_]) -> list[str]:
    """Returns the label of each load: its number in `y`, or the entry of `labels` at that index.

    The array `pages`, if present, has the indices instead of `y`, which does not distinguish
    unmonitored pages. Without it, each load that is `outside` is a page of its own.
    """
    given = _given_labels(arrays, y)
    if "pages" not in arrays:
        for number, place in enumerate(np.flatnonzero(outside).tolist()):
            given[place] = f"open {number}"
    return given


def _given_labels(arrays: Arrays, y: NDArray[np.int64]) -> list[str]:
    if "labels" not in arrays:
        return list(map(str, y.tolist()))
    labels = arrays["labels"]
    if labels.ndim != 1 or labels.dtype.kind != "U":
        problem = (
            f"expected a list of texts, but it has the shape {labels.shape} and holds "
            f"{labels.dtype}"
        )
        raise TraceError(problem, column="labels")
    places = _added(arrays, "pages", "iu", y.size) if "pages" in arrays else y
    least, most = places.min(), places.max()
    if not 0 <= least <= most < labels.size:
        problem = f"has {labels.size} labels, but the loads' label numbers are {least} to {most}"
        raise TraceError(problem, column="labels")
    with damage():
        names = labels.tolist()
        "".join(names).encode()  # Fails for half of a surrogate pair, which no format can store.
    return [names[place] for place in places.tolist()]


def _monitored(arrays: Arrays, y: NDArray[np.int64], meaning: Meaning) -> NDArray[np.bool_]:
    """Returns bool (n,): loads that neither the file nor the user marks as unmonitored."""
    monitored = np.full(y.size, meaning.monitored)
    if "monitored" in arrays:
        monitored &= _added(arrays, "monitored", "b", y.size)
    return monitored


def _outside(y: NDArray[np.int64], meaning: Meaning) -> NDArray[np.bool_]:
    """Returns bool (n,): loads whose `y` is the user's number of unmonitored pages."""
    outside: NDArray[np.bool_] = y == meaning.unmonitored
    if meaning.unmonitored is not None and not outside.any():
        problem = (
            f"no load has the class number {meaning.unmonitored} of unmonitored pages: the class "
            f"numbers are {y.min()} to {y.max()}"
        )
        raise TraceError(problem, column="y")
    return outside


def _added(arrays: Arrays, name: str, kinds: str, loads: int) -> NDArray[Any]:
    """Returns one of our additional arrays, checked to have a value for each load."""
    array = arrays[name]
    if array.shape != (loads,) or array.dtype.kind not in kinds:
        problem = (
            f"needs a whole number or a bool for each of the {loads} loads, but it has the shape "
            f"{array.shape} and holds {array.dtype}"
        )
        raise TraceError(problem, column=name)
    return array


def _numbers(traces: Traces) -> Arrays:
    """Returns `y` in WFlib's numbering, monitored pages first, and our additional arrays."""
    watched = np.unique(traces.label[traces.monitored])
    order = np.concatenate([watched, np.setdiff1d(traces.label, watched)])
    places = np.zeros(len(traces.names), np.int64)
    places[order] = np.arange(order.size)
    pages = places[traces.label]
    return {
        "y": np.where(traces.monitored, pages, watched.size),
        "labels": np.array(traces.names, np.str_)[order],
        "pages": pages,
        "monitored": traces.monitored,
    }
