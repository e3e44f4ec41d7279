"""The lab's own Parquet schema: a row for each packet on each path (docs/formats.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch import __version__, validate
from anabranch.io import draft
from anabranch.io.meaning import Meaning
from anabranch.jagged import offsets_of
from anabranch.traces import OPTIONAL, WHOLE, Facts, Traces
from anabranch.validate import TraceError

_FILE = json.loads(resources.files("anabranch.io").joinpath("columns.json").read_text("utf-8"))
"""The schema, which tests of the Rust crate `capture` compare with that crate's schema."""

SCHEMA: str = _FILE["version"]
"""The version of the schema to read and write."""

ROWS = 131_072
"""Approximate number of rows in a row group, as in the splitter's own files.

All rows of a load are in the same group.
"""

_KNOWN = {each["name"]: pa.type_for_alias(each["arrow"]) for each in _FILE["columns"]}
"""The type of each column."""

_TYPES = {
    each["name"]: _KNOWN[each["name"]] for each in _FILE["columns"] if not each.get("optional")
}
"""The columns that every trace has."""

_ENCODINGS = dict.fromkeys(("load", "run", "path", "counter"), "DELTA_BINARY_PACKED")
"""Encodings of the columns that are neither plain nor dictionary-encoded.

All other columns are one or the other, since some readers support only these two encodings.
"""

Any1: TypeAlias = NDArray[Any]


def read(path: Path, meaning: Meaning | None = None) -> Traces:
    """Reads a trace, a batch of rows at a time; loads may be interleaved.

    Rows of path -1 describe the whole load. If a load also has rows of other paths, the rows of
    path -1 are ignored. `meaning` is ignored, because the file contains all facts.

    Raises:
        TraceError: if the file breaks a rule of the schema.
    """
    del meaning
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            facts = _facts(metadata(file))
            _check_columns(file.schema_arrow)
            parts = _Parts()
            columns = [name for name in _KNOWN if name in file.schema_arrow.names]
            for batch in file.iter_batches(ROWS, columns=columns):
                parts.add(batch)
    except pa.ArrowException as error:
        raise TraceError(f"not a readable Parquet file: {error}") from error
    return parts.build(facts)


def write(traces: Traces, path: Path) -> None:
    """Writes a trace, whole loads of about `ROWS` rows at a time.

    Raises:
        TraceError: if there is no load, or if a load has no packets: it would have no row.
    """
    with Writer(path, traces.facts, optional=traces.optional_columns) as writer:
        writer.add(traces)


class Writer:
    """A writer of traces that arrive in pieces; the file appears at the end if there was no error.

    Args:
        path: path of the file.
        facts: metadata of all pieces.
        optional: names of the optional columns that all pieces have.
    """

    def __init__(self, path: Path, facts: Facts, *, optional: Collection[str] = ()) -> None:
        self._path = path
        self._open = ExitStack()
        self._loads = 0
        self._types = {
            name: kind for name, kind in _KNOWN.items() if name in _TYPES or name in optional
        }
        self._schema = pa.schema(
            [pa.field(name, kind, nullable=False) for name, kind in self._types.items()],
            metadata=_metadata(facts),
        )

    def __enter__(self) -> Writer:
        """Creates a temporary file in the same folder (the draft)."""
        with ExitStack() as opening:
            target = opening.enter_context(draft.file(self._path))
            file = pq.ParquetWriter(
                target,
                self._schema,
                compression="zstd",
                write_page_checksum=True,
                use_dictionary=["label", "size"],
                column_encoding={
                    name: _ENCODINGS[name] for name in _ENCODINGS if name in self._types
                },
            )
            self._file = opening.enter_context(file)
            opening.push(self._refuse_nothing)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Renames the draft, or removes it after an error."""
        self._open.__exit__(*error)

    def add(self, traces: Traces) -> None:
        """Writes all packets of `traces`."""
        validate.filled(traces, "Parquet")
        self._loads += len(traces)
        for first, last in _groups(traces.offsets):
            self._file.write_table(self._table(traces, first, last))

    def close(self) -> None:
        """Completes the content of the draft, which `__exit__` then renames."""
        self._file.close()

    def _refuse_nothing(self, error: type[BaseException] | None, *_: Any) -> None:
        """Raises an error for a file without rows; the draft is then removed."""
        if error is None and not self._loads:
            raise TraceError("there are no loads to write")

    def _table(self, traces: Traces, first: int, last: int) -> pa.Table:
        packets = slice(int(traces.offsets[first]), int(traces.offsets[last]))
        counts = traces.lengths[first:last]
        names = pa.array(traces.names, pa.string())
        label = pa.DictionaryArray.from_arrays(traces.label[first:last].repeat(counts), names)
        rows = packets.stop - packets.start
        columns = {
            "load": traces.load[first:last].repeat(counts),
            "label": label.cast(pa.string()),
            "monitored": traces.monitored[first:last].repeat(counts),
            "run": traces.run[first:last].repeat(counts),
            "path": np.full(rows, WHOLE, np.int16)
            if traces.paths is None
            else traces.paths[packets],
            "time": traces.times[packets],
            "size": traces.sizes[packets],
        }
        columns |= {
            name: getattr(traces, OPTIONAL[name])[packets] for name in traces.optional_columns
        }
        arrays = [pa.array(columns[name], kind) for name, kind in self._types.items()]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _groups(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yields ranges of loads that together have about `ROWS` packets."""
    first = 0
    while first < offsets.size - 1:
        last = int(np.searchsorted(offsets, offsets[first] + ROWS))
        last = min(max(last, first + 1), offsets.size - 1)
        yield first, last
        first = last


@dataclass(slots=True)
class _Parts:
    """Rows of a file, collected batch by batch in the order of reading.

    Attributes:
        times, sizes, paths: columns, one array for each batch.
        optional: optional columns, likewise.
        stretches: int64 (segments, 5) for each batch. A segment consists of consecutive rows of
            one load: its first row, then load, run, code of the label, and whether it is monitored.
        codes: code of each label, in the order of first occurrence.
        rows: number of rows so far.
    """

    times: list[Any1] = field(default_factory=list)
    sizes: list[Any1] = field(default_factory=list)
    paths: list[Any1] = field(default_factory=list)
    optional: dict[str, list[Any1]] = field(default_factory=lambda: {name: [] for name in OPTIONAL})
    stretches: list[Any1] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    rows: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        for name in names:
            if batch.column(name).null_count:
                raise TraceError("contains null values", column=name)
        plain = (name for name in names if name != "label")
        numbers = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in plain}
        label = self._label_codes(batch.column("label"))
        keys = np.stack([numbers["load"], numbers["run"], label, numbers["monitored"]], axis=1)
        keys = keys.astype(np.int64)
        first = np.flatnonzero(np.r_[True, (np.diff(keys, axis=0) != 0).any(axis=1)])[: len(keys)]
        starts = (first + self.rows)[:, None]
        self.stretches.append(np.hstack([starts, keys[first]]))
        self.times.append(numbers["time"])
        self.sizes.append(numbers["size"])
        self.paths.append(numbers["path"])
        for name in OPTIONAL.keys() & numbers.keys():
            self.optional[name].append(numbers[name])
        self.rows += len(keys)

    def _label_codes(self, column: pa.Array) -> Any1:
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        known = [self.codes.setdefault(name, len(self.codes)) for name in names]
        codes: Any1 = np.array(known, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
        return codes

    def build(self, facts: Facts) -> Traces:
        if self.rows == 0:
            raise TraceError("contains no rows")
        stretches = np.concatenate(self.stretches)
        loads, member = np.unique(stretches[:, 1:3], axis=0, return_inverse=True)
        member = member.reshape(-1)
        first = _first_of_each(member, len(loads))
        _check_constant(stretches, member, first)
        lengths = np.diff(np.r_[stretches[:, 0], self.rows])
        owners = np.repeat(member, lengths)
        paths = np.concatenate(self.paths)
        kept = _one_description(owners, paths, len(loads))
        order = kept[np.argsort(owners[kept], kind="stable")]
        paths = paths[order]
        names = tuple(sorted(self.codes))
        place = {name: number for number, name in enumerate(names)}
        places = np.array([place[name] for name in self.codes], np.int32)
        return Traces(
            load=loads[:, 0].copy(),
            run=loads[:, 1].astype(np.int32),
            label=places[stretches[first, 3]],
            names=names,
            monitored=stretches[first, 4].astype(np.bool_),
            offsets=offsets_of(np.bincount(owners[kept], minlength=len(loads))),
            times=np.concatenate(self.times)[order],
            sizes=np.concatenate(self.sizes)[order],
            paths=None if (paths == WHOLE).all() else paths,
            facts=facts,
            **{
                OPTIONAL[name]: np.concatenate(parts)[order]
                for name, parts in self.optional.items()
                if parts
            },
        )


def _first_of_each(member: Any1, loads: int) -> Any1:
    """Returns int64 (loads,): the index of the first segment of each load.

    `member` has the number of the load, from 0, for each segment.
    """
    first = np.zeros(loads, np.int64)
    first[member[::-1]] = np.arange(member.size)[::-1]
    return first


def _check_constant(stretches: Any1, member: Any1, first: Any1) -> None:
    for column, place in (("label", 3), ("monitored", 4)):
        changed = stretches[:, place] != stretches[first[member], place]
        if changed.any():
            row, load, run = stretches[np.argmax(changed), :3]
            problem = f"differs within load {load} of run {run}: row {row} has another value"
            raise TraceError(problem, column=column)


def _one_description(owners: Any1, paths: Any1, loads: int) -> Any1:
    """Returns indices of the rows to use: a load's rows of paths, or, without any, all its rows."""
    split = np.zeros(loads, np.bool_)
    split[owners[paths != WHOLE]] = True
    kept: Any1 = np.flatnonzero((paths != WHOLE) | ~split[owners])
    return kept


def _check_columns(schema: pa.Schema) -> None:
    missing = [name for name in _TYPES if name not in schema.names]
    if missing:
        has = ", ".join(schema.names)
        raise TraceError(f"the columns {', '.join(missing)} are missing; the file has {has}")
    for name in schema.names:
        if name not in _KNOWN:
            raise TraceError(f"is an unknown column; expected {', '.join(_KNOWN)}", column=name)
    for name, kind in _KNOWN.items():
        if schema.names.count(name) > 1:
            raise TraceError("occurs twice", column=name)
        if name not in schema.names:
            continue
        found = schema.field(name).type
        if found != kind and not (name == "label" and _is_text(found)):
            raise TraceError(f"holds {found}, not {kind}", column=name)


def _is_text(kind: pa.DataType) -> bool:
    """Returns whether a type is one of Arrow's several types of text."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return inner in (pa.string(), pa.large_string(), pa.string_view())


def metadata(file: pq.ParquetFile) -> dict[bytes, bytes]:
    """Returns a file's metadata: keys and values in its Parquet footer and its Arrow schema."""
    file_metadata: dict[bytes, bytes] = file.metadata.metadata or {}
    return file_metadata | (file.schema_arrow.metadata or {})


def _facts(found: dict[bytes, bytes]) -> Facts:
    texts = {key.decode(): value.decode() for key, value in found.items() if b"ARROW" not in key}
    version = texts.get("anabranch.schema")
    if version is None:
        raise TraceError("not an Anabranch trace: the metadata have no 'anabranch.schema'")
    if version != SCHEMA:
        raise TraceError(f"the schema {version} is unknown: this program reads schema {SCHEMA}")
    return Facts(
        size=texts.get("anabranch.size", "ip-packet"),
        paths=_parsed("anabranch.paths", texts, lambda text: tuple(map(str, json.loads(text))))
        or (),
        schedule=texts.get("anabranch.schedule"),
        seed=_parsed("anabranch.seed", texts, int),
    )


def _parsed(key: str, texts: dict[str, str], parse: Callable[[str], Any]) -> Any:
    try:
        return parse(texts[key]) if key in texts else None
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"the metadata '{key}' are damaged: {texts[key][:80]}") from error


def _metadata(facts: Facts) -> dict[str, str]:
    known = {
        "anabranch.schema": SCHEMA,
        "anabranch.size": facts.size,
        "anabranch.program": f"anabranch-lab {__version__}",
    }
    if facts.paths:
        known["anabranch.paths"] = json.dumps(facts.paths)
    if facts.schedule is not None:
        known["anabranch.schedule"] = facts.schedule
    if facts.seed is not None:
        known["anabranch.seed"] = str(facts.seed)
    return known
