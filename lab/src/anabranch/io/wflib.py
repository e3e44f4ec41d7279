"""WFlib's npz: `X` is direction times timestamp [s], + from client to server; `y` the label.

A packet at time 0 has the value 0, which has no direction. When reading, zeros at the start
of a row count as packets of the client, which sends first. When writing, time 0 becomes `SOON`, so
that no direction is lost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch import validate
from anabranch.io import npz
from anabranch.io.meaning import Meaning
from anabranch.traces import Builder, Facts, Traces, loads
from anabranch.validate import TraceError

SOON = 1e-9
"""Time in seconds that replaces 0 when writing; shorter than any clock's resolution."""


def read(path: Path, meaning: Meaning | None = None) -> Traces:
    """Reads WFlib's npz; `meaning.unmonitored` is the class of unmonitored pages in `y`.

    Raises:
        TraceError: if arrays are missing or of the wrong shape, or times go backwards.
    """
    table = npz.read(path, meaning or Meaning())
    if table.X.any() and np.isin(table.X, (-1, 0, 1)).all():
        problem = "every packet has the time 1 s or 0: for directions, use --from directions"
        validate.doubt(problem, path)
    builder = Builder(Facts(size="direction"))
    for number, row in enumerate(npz.rows(table.X)):
        packets = row.astype(np.float64)
        spoken = int(np.argmax(packets != 0)) if packets.size else 0
        npz.refuse_gap(packets, number, spoken)
        times = abs(packets)
        if not np.isfinite(times).all():
            raise TraceError(f"row {number} holds numbers that are not finite", column="X")
        times[times == SOON] = 0.0
        builder.add(
            table.labels[number],
            times,
            np.where(packets < 0, -1, 1),
            run=int(table.runs[number]),
            monitored=bool(table.monitored[number]),
        )
    return builder.build()


def write(traces: Traces, path: Path) -> None:
    """Writes WFlib's npz; sizes become directions, rows are cut at 10,000 packets.

    Raises:
        TraceError: if the traces have no times.
    """
    if traces.timeless:
        raise TraceError("these traces have no times: write them as directions", column="time")
    rows = [np.sign(sizes) * np.maximum(times, SOON) for _, times, sizes in loads(traces)]
    npz.write(path, rows, traces)
