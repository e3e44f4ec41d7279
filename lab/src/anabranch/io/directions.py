"""npz of directions only: `X` is +1 from client to server, -1 back, 0 padding; `y` the label.

Such traces have no times: all are 0, `Traces.timeless` is true, and `Facts.size` is `direction`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from anabranch import validate
from anabranch.io import npz
from anabranch.io.meaning import Meaning
from anabranch.traces import Builder, Facts, Traces, loads
from anabranch.validate import TraceError

_LOOKED_AT = 1 << 20
"""Number of values that are checked to distinguish directions stored as floats from times."""


def matches(path: Path) -> bool:
    """Returns whether the file's `X` contains directions, rather than times.

    Directions are integers, or floats of which the first million are all -1, 0 or 1. For floats, a
    warning names the format `wflib`, which would read them as times.
    """
    try:
        with (
            npz.damage(),
            zipfile.ZipFile(path) as archive,
            archive.open(_first_x(archive)) as entry,
        ):
            version = np.lib.format.read_magic(entry)
            reader = np.lib.format.read_array_header_1_0
            if version >= (2, 0):
                reader = np.lib.format.read_array_header_2_0
            kind = reader(entry)[2]
            if kind.kind != "f":
                return bool(kind.kind in "iu")
            begin = entry.read(_LOOKED_AT * kind.itemsize)
            values = np.frombuffer(begin[: len(begin) // kind.itemsize * kind.itemsize], kind)
    except TraceError:
        return False  # The reader of the other format reports the error.
    if not values.any() or not np.isin(values, (-1, 0, 1)).all():
        return False
    validate.doubt(
        "X has only the numbers -1, 0 and 1, but as floats: they are read as directions. To "
        "read them as times of 1 s, use --from wflib",
        path,
    )
    return True


def _first_x(archive: zipfile.ZipFile) -> str:
    return next(name for name in archive.namelist() if name == "X.npy" or name.startswith("X_"))


def read(path: Path, meaning: Meaning | None = None) -> Traces:
    """Reads an npz of directions; `meaning.unmonitored` is the class of unmonitored pages in `y`.

    Raises:
        TraceError: if arrays are missing or of the wrong shape, or contain other numbers.
    """
    table = npz.read(path, meaning or Meaning())
    if not np.isin(table.X, (-1, 0, 1)).all():
        raise TraceError("holds numbers other than -1, 0 and 1", column="X")
    builder = Builder(Facts(size="direction"))
    for number, row in enumerate(npz.rows(table.X)):
        npz.refuse_gap(row, number, 0)
        builder.add(
            table.labels[number],
            np.zeros(row.size),
            row.astype(np.int8),
            run=int(table.runs[number]),
            monitored=bool(table.monitored[number]),
        )
    return builder.build()


def write(traces: Traces, path: Path) -> None:
    """Writes an npz of directions. Times and sizes are lost; loads are cut at 10,000 packets."""
    rows = [np.sign(sizes).astype(np.int8) for _, _, sizes in loads(traces)]
    npz.write(path, rows, traces)
