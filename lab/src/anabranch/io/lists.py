"""Parquet with a row for each load: `label`, `instance`, maybe `run`, and lists `times`, `sizes`.

Times are seconds from the load's first packet; sizes are positive from client to server.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch.io import draft
from anabranch.io.meaning import Meaning
from anabranch.io.parquet import metadata
from anabranch.traces import Builder, Facts, Traces, loads
from anabranch.validate import TraceError

ROWS = 1_024
"""Number of loads to read at a time."""

_NEEDED = ("label", "instance", "times", "sizes")

TOR_CELL = 514
"""Bytes of a Tor cell. If every size in a file is ±514, its unit is cells."""


def matches(path: Path) -> bool:
    """Returns whether the file is Parquet with a row of lists for each load."""
    try:
        with pq.ParquetFile(path) as file:
            ours = b"anabranch.schema" in metadata(file)
            return "times" in file.schema_arrow.names and not ours
    except pa.ArrowException as error:
        raise TraceError(f"not a readable Parquet file: {error}") from error


def read(path: Path, meaning: Meaning | None = None) -> Traces:
    """Reads a Parquet file of lists; a load's number is its row.

    Raises:
        TraceError: if a column is missing, unknown or of a wrong type, if packets are not valid, or
            if there are no rows.
    """
    meaning = meaning or Meaning()
    builder = Builder()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check_columns(file.schema_arrow)
            for batch in file.iter_batches(ROWS):
                _add(builder, batch, meaning)
    except pa.ArrowException as error:
        raise TraceError(f"not a readable Parquet file: {error}") from error
    if not len(builder):
        raise TraceError("contains no rows")
    traces = builder.build()
    return replace(traces, facts=Facts(size=_unit(traces.sizes)))


def _unit(sizes: NDArray[np.int32]) -> str:
    """Returns the unit of sizes: cells (all ±514), directions (all ±1), or else bytes."""
    for size, unit in ((TOR_CELL, "cell"), (1, "direction")):
        if sizes.size and bool((abs(sizes) == size).all()):
            return unit
    return "ip-packet"


def write(traces: Traces, path: Path) -> None:
    """Writes a Parquet file of lists; paths, counters, load numbers and monitored marks are lost.

    Times are float64 and sizes int32, wider than usual in this format, so that they are exact.
    """
    columns = {
        "label": pa.array(traces.labels.tolist(), pa.string()),
        "instance": pa.array(_instances(traces), pa.int32()),
        "run": pa.array(traces.run.astype(np.int64)),
        "times": pa.array([times for _, times, _ in loads(traces)], pa.large_list(pa.float64())),
        "sizes": pa.array([sizes for _, _, sizes in loads(traces)], pa.large_list(pa.int32())),
    }
    with draft.file(path) as target:
        pq.write_table(pa.table(columns), target, compression="zstd", write_page_checksum=True)


def _instances(traces: Traces) -> list[int]:
    """Returns the number of each load among the loads of its label and run."""
    seen: Counter[tuple[int, int]] = Counter()
    numbers = []
    for key in zip(traces.label.tolist(), traces.run.tolist(), strict=True):
        numbers.append(seen[key])
        seen[key] += 1
    return numbers


def _add(builder: Builder, batch: pa.RecordBatch, meaning: Meaning) -> None:
    for name in batch.schema.names:
        column = batch.column(name)
        if column.null_count or (name in ("times", "sizes") and column.flatten().null_count):
            raise TraceError("contains null values", column=name)
    names = batch.schema.names
    runs = batch.column("run").to_pylist() if "run" in names else [0] * batch.num_rows
    rows = zip(batch.column("label").to_pylist(), runs, *map(_lists, _columns(batch)), strict=True)
    for label, run, times, sizes in rows:
        if times.size != sizes.size:
            row = len(builder)
            raise TraceError(
                f"row {row} has {times.size} times but {sizes.size} sizes", column="sizes"
            )
        if not np.array_equal(sizes, np.rint(sizes)):
            raise TraceError(f"row {len(builder)} is not a list of whole numbers", column="sizes")
        builder.add(label, times, sizes, run=run, monitored=meaning.monitored)


def _columns(batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column("times"), batch.column("sizes")]


def _lists(column: pa.Array) -> list[Any]:
    """Returns an array for each row of a list column."""
    offsets = column.offsets.to_numpy()
    values = column.values.to_numpy(zero_copy_only=False)
    return [values[a:b] for a, b in pairwise(offsets)]


def _check_columns(schema: pa.Schema) -> None:
    for name in _NEEDED:
        if name not in schema.names:
            raise TraceError(f"is missing; the file has {', '.join(schema.names)}", column=name)
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise TraceError("occurs twice", column=name)
        if name not in (*_NEEDED, "run"):
            raise TraceError(
                f"is an unknown column; expected {', '.join(_NEEDED)} and run", column=name
            )
        kind = schema.field(name).type
        if not _suits(name, kind):
            raise TraceError(f"holds {kind}", column=name)


def _suits(name: str, kind: pa.DataType) -> bool:
    types = pa.types
    if name == "label":
        return bool(types.is_string(kind) or types.is_large_string(kind))
    if name in ("instance", "run"):
        return bool(types.is_integer(kind))
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return False
    inner = kind.value_type
    whole = name == "sizes" and types.is_integer(inner)
    return bool(whole or types.is_floating(inner))
