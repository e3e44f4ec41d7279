"""What the npz formats share: `X`, a row per load, zero padded, and `y`, its label's number."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anabranch.io import draft
from anabranch.validate import TraceError

LENGTH = 10_000
"""Packets of a row, as WFlib pads and cuts."""

ROWS = 256
"""Loads written at a time."""


def read(path: Path) -> tuple[NDArray[Any], list[str], NDArray[np.int64]]:
    """`X` (loads, packets), the names of labels and each load's place in them.

    Names are the numbers of `y` unless an array `labels`, which we add, tells them.

    Raises:
        TraceError: if an array is missing or of the wrong shape.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("X", "y", "labels") if name in file}
            found = ", ".join(file.files)
    except (ValueError, EOFError, zipfile.BadZipFile, TypeError, AttributeError) as error:
        raise TraceError(f"not a readable npz file: {error}") from error
    for name in ("X", "y"):
        if name not in arrays:
            raise TraceError(f"is missing; the file has {found}", column=name)
    X, y = arrays["X"], arrays["y"]
    _check_shapes(X, y)
    numbers, codes = np.unique(y, return_inverse=True)
    return X, _names(numbers, arrays.get("labels")), codes.reshape(-1).astype(np.int64)


def write(path: Path, rows: Iterable[NDArray[Any]], y: NDArray[Any], names: Iterable[str]) -> None:
    """Writes `X` from one array per load, cut and padded to `LENGTH`, without holding it all."""
    rows = list(rows)
    kind: DTypeLike = rows[0].dtype if rows else np.float64
    labels = np.array(list(names), dtype=np.str_)
    with draft.file(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (("y", y), ("labels", labels)):
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
        with archive.open("X.npy", "w", force_zip64=True) as entry:
            header = {"descr": np.dtype(kind).str, "fortran_order": False}
            shape = {"shape": (len(rows), LENGTH)}
            np.lib.format.write_array_header_2_0(entry, header | shape)
            for row in rows:
                padded = np.zeros(LENGTH, kind)
                padded[: row.size] = row[:LENGTH]
                entry.write(padded.tobytes())


def lengths(X: NDArray[Any]) -> NDArray[np.int64]:
    """Packets of each row: up to its last number that is not 0."""
    filled = X != 0
    lengths: NDArray[np.int64] = np.where(
        filled.any(axis=1), X.shape[1] - np.argmax(filled[:, ::-1], axis=1), 0
    )
    return lengths


def refuse_gap(row: NDArray[Any], number: int, first: int) -> None:
    """Refuses a 0 from place `first` on: behind it nothing should come."""
    gaps = np.flatnonzero(row[first:] == 0)
    if gaps.size:
        raise TraceError(f"row {number} has a 0 at {gaps[0] + first}, before its end", column="X")


def _check_shapes(X: NDArray[Any], y: NDArray[Any]) -> None:
    if X.ndim != 2:
        raise TraceError(f"has the shape {X.shape}, not (loads, packets)", column="X")
    if y.shape != (X.shape[0],):
        raise TraceError(f"has the shape {y.shape}, not ({X.shape[0]},) as X", column="y")
    if X.dtype.kind not in "fiu":
        raise TraceError(f"holds {X.dtype}, not numbers", column="X")
    if y.dtype.kind not in "iu":
        raise TraceError(f"holds {y.dtype}, not whole numbers", column="y")


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
