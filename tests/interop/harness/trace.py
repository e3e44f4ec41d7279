"""Traces in the format of ``docs/formats.md``, written independently of their reader."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Row = tuple[int, float, int]  # path, seconds, signed size

KINDS = {
    "load": pa.int64(), "label": pa.string(), "monitored": pa.bool_(), "run": pa.int32(),
    "path": pa.int16(), "time": pa.float64(), "size": pa.int32(),
}  # fmt: skip


def write(file: Path, rows: Sequence[Row], paths: Sequence[str], **facts: str) -> None:
    """Writes a trace of one session without a label; ``facts`` are its further metadata."""
    known = {
        "anabranch.schema": "1", "anabranch.paths": json.dumps(paths),
        "anabranch.size": "ip-packet", **{f"anabranch.{key}": text for key, text in facts.items()},
    }  # fmt: skip
    fields = [pa.field(name, kind, nullable=False) for name, kind in KINDS.items()]
    columns = [
        list(column) for column in zip(*((4, "", False, 0, *row) for row in rows), strict=True)
    ]
    table = pa.table(columns, schema=pa.schema(fields, metadata=known))
    pq.write_table(table, file, compression="zstd")
