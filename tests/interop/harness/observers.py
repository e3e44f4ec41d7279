"""What an observer sees on each path, by ``anabranch report`` from the splitter's trace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.net import Host
from harness.report import table
from harness.tools import anabranch


def seen_by_observers(trace: Path) -> list[dict[str, Any]]:
    """Returns the ``paths`` of a trace's summary; empty without a trace.

    Each path has its number, and packets, bytes, share and gaps up and down.
    """
    if not trace.exists():
        return []
    told = Host("here").must([anabranch(), "report", "--json", str(trace)])
    paths: list[dict[str, Any]] = json.loads(told)["summary"]["paths"]
    return paths


def joined(traces: Mapping[str, Path], target: Path) -> None:
    """Joins traces of splitters that ran one after the other over the same paths into ``target``.
    The traces' names become labels; sessions are renumbered.
    """
    tables = [_labelled(pq.read_table(trace), name) for name, trace in traces.items()]
    starts = [_start(table) for table in tables]
    parts, sessions = [], 0
    for trace, start in zip(tables, starts, strict=True):
        later = (start - min(starts)) / 1e9
        parts.append(_moved(trace, later, sessions))
        sessions += (pc.max(trace["load"]).as_py() or 0) + 1
    earliest = tables[starts.index(min(starts))]
    whole = pa.concat_tables(parts).replace_schema_metadata(earliest.schema.metadata)
    pq.write_table(whole, target, compression="zstd")


def _start(table: pa.Table) -> int:
    """Returns the start of a trace in nanoseconds since 1970."""
    text = table.schema.metadata[b"anabranch.start"].decode()
    nanoseconds: int = pa.scalar(text).cast(pa.timestamp("ns", "UTC")).value
    return nanoseconds


def _moved(table: pa.Table, seconds: float, sessions: int) -> pa.Table:
    """Returns the rows with ``seconds`` added to their times and ``sessions`` to their session
    numbers.
    """
    later = _with(table, "time", pc.add(table["time"], seconds))
    return _with(later, "load", pc.add(table["load"], sessions))


def _labelled(table: pa.Table, label: str) -> pa.Table:
    return _with(table, "label", pa.array([label] * table.num_rows, pa.string()))


def _with(table: pa.Table, column: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = table.schema.get_field_index(column)
    return table.set_column(at, pa.field(column, values.type, nullable=False), values)


def observers_table(seen: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> str:
    """Returns a table with a row for each session and path; ``names`` are the paths' names by
    number.
    """
    head = ["session", "path", "up packets", "up bytes", "up %", "down packets", "down bytes"]
    head += ["down %", "longest gap s"]
    return table(head, (_row(name, path, names) for name, paths in seen.items() for path in paths))


def _row(name: str, path: Mapping[str, Any], names: Sequence[str]) -> list[object]:
    up, down = path["up"], path["down"]
    gap = max(up["longest_gap_ms"], down["longest_gap_ms"]) / 1000
    row: list[object] = [name, names[path["path"]]]
    row += [up["packets"], up["bytes"], 100.0 * up["share"]]
    return [*row, down["packets"], down["bytes"], 100.0 * down["share"], gap]
