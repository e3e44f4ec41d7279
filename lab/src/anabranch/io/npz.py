"""What the npz formats share: `X`, a row per load, zero padded, and `y`, its label's number."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anabranch.io import draft
from anabranch.validate import TraceError

LENGTH = 10_000
"""Packets of a row, as WFlib pads and cuts."""


@dataclass(frozen=True, slots=True)
class Table:
    """What an npz file holds of `n` loads."""

    X: NDArray[Any]
    """(n, packets), numbers."""
    names: list[str]
    """The labels."""
    codes: NDArray[np.int64]
    """Int64 (n,): the label of each load, a place in `names`."""
    runs: NDArray[np.int64]
    """Int64 (n,): the group of each load, 0 where there is one."""


def read(path: Path) -> Table:
    """Reads `X` and `y`, or `X_NAME` and `y_NAME` of several groups, which become runs 0, 1, ...

    Names are the numbers of `y` unless an array `labels`, which we add, tells them.

    Raises:
        TraceError: if an array is missing or of the wrong shape.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name[:1] in "Xyl"}
            found = ", ".join(file.files)
    except (ValueError, EOFError, zipfile.BadZipFile, TypeError, AttributeError) as error:
        raise TraceError(f"not a readable npz file: {error}") from error
    groups = [name[1:] for name in arrays if name.startswith("X_")] or [""]
    for name in (kind + group for group in groups for kind in "Xy"):
        if name not in arrays:
            raise TraceError(f"is missing; the file has {found}", column=name)
    for group in groups:
        _check_shapes(arrays, group)
    X, y = (np.concatenate([arrays[kind + group] for group in groups]) for kind in "Xy")
    numbers, codes = np.unique(y, return_inverse=True)
    runs = np.repeat(np.arange(len(groups)), [arrays["y" + group].size for group in groups])
    names = _names(numbers, arrays.get("labels"))
    return Table(X, names, codes.reshape(-1).astype(np.int64), runs)


def write(path: Path, loads: Iterable[NDArray[Any]], y: NDArray[Any], names: Iterable[str]) -> None:
    """Writes `X` from one array per load, cut and padded to `LENGTH`, without holding it all."""
    each = list(loads)
    kind: DTypeLike = each[0].dtype if each else np.float64
    labels = np.array(list(names), dtype=np.str_)
    with draft.file(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (("y", y), ("labels", labels)):
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
    """Each row up to its last number that is not 0."""
    for row in X:
        filled = np.flatnonzero(row)
        yield row[: filled[-1] + 1] if filled.size else row[:0]


def refuse_gap(row: NDArray[Any], number: int, first: int) -> None:
    """Refuses a 0 from place `first` on: behind it nothing should come."""
    gaps = np.flatnonzero(row[first:] == 0)
    if gaps.size:
        raise TraceError(f"row {number} has a 0 at {gaps[0] + first}, before its end", column="X")


def _check_shapes(arrays: dict[str, NDArray[Any]], group: str) -> None:
    X, y = arrays["X" + group], arrays["y" + group]
    widths = {array.shape[1:] for name, array in arrays.items() if name[0] == "X"}
    if X.ndim != 2 or len(widths) > 1:
        raise TraceError(f"has the shape {X.shape}, not (loads, packets)", column="X" + group)
    if y.shape != (X.shape[0],):
        problem = f"has the shape {y.shape}, not ({X.shape[0]},) as X{group}"
        raise TraceError(problem, column="y" + group)
    if X.dtype.kind not in "fiu":
        raise TraceError(f"holds {X.dtype}, not numbers", column="X" + group)
    if y.dtype.kind not in "iu":
        raise TraceError(f"holds {y.dtype}, not whole numbers", column="y" + group)


def _names(numbers: NDArray[Any], labels: NDArray[Any] | None) -> list[str]:
    if labels is None:
        return [str(number) for number in numbers]
    if labels.ndim != 1 or labels.dtype.kind != "U":
        raise TraceError(f"has the shape {labels.shape} and holds {labels.dtype}", column="labels")
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < labels.size:
        raise TraceError(
            f"names {labels.size} labels, but y holds {numbers.max()}", column="labels"
        )
    return [str(labels[number]) for number in numbers]
