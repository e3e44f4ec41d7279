"""Files written by other programs."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from anabranch import io
from anabranch.splitting import Split
from anabranch.traces import Traces
from anabranch.validate import TraceError, TraceWarning
from making import made, packets, signs


def test_metadata_beside_the_arrow_schema_are_read_too(traces: Traces, tmp_path: Path) -> None:
    """As polars writes them: its Arrow schema has none."""
    io.write(traces, tmp_path / "ours.parquet")
    table = pq.read_table(tmp_path / "ours.parquet")
    facts = table.schema.metadata
    large = table.schema.set(1, pa.field("label", pa.large_string())).remove_metadata()
    with pq.ParquetWriter(tmp_path / "polars.parquet", large) as writer:
        writer.write_table(table.cast(large))
        writer.add_key_value_metadata(facts)
    assert pq.read_schema(tmp_path / "polars.parquet").metadata is None
    assert io.detect(tmp_path / "polars.parquet") == "parquet"
    assert packets(io.read(tmp_path / "polars.parquet")) == packets(traces)


def test_every_reader_of_parquet_knows_the_encodings(traces: Traces, tmp_path: Path) -> None:
    """fastparquet supports neither BYTE_STREAM_SPLIT nor DELTA_LENGTH_BYTE_ARRAY."""
    io.write(Split("uniform", "1p", 2, "independent").split(traces), tmp_path / "a.parquet")
    group = pq.read_metadata(tmp_path / "a.parquet").row_group(0)
    found = {name for k in range(group.num_columns) for name in group.column(k).encodings}
    known = {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY", "DELTA_BINARY_PACKED"}
    assert found <= known


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_directions_as_floats_are_no_times(kind: type, tmp_path: Path) -> None:
    X: NDArray[np.float64] = np.zeros((4, 50), kind)
    X[:, :30] = np.where(np.arange(30) % 3, -1, 1)
    np.savez(tmp_path / "a.npz", X=X, y=np.array([0, 0, 1, 1]))
    with pytest.warns(TraceWarning, match=r"a\.npz: X has only the numbers -1, 0 and 1"):
        found = io.read(tmp_path / "a.npz")
    assert (found.facts.size, found.timeless) == ("direction", True)
    with pytest.warns(TraceWarning, match="for directions, use --from directions"):
        assert not io.read(tmp_path / "a.npz", "wflib").timeless
    X[0, 7] = -0.25
    np.savez(tmp_path / "b.npz", X=X, y=np.array([0, 0, 1, 1]))
    assert io.detect(tmp_path / "b.npz") == "wflib"


def test_lists_of_directions_count_no_bytes(tmp_path: Path) -> None:
    traces = signs(made(3))
    io.write(traces, tmp_path / "a.parquet", "lists")
    assert io.read(tmp_path / "a.parquet").facts.size == "direction"
    table = pq.read_table(tmp_path / "a.parquet")
    floats = table.column("sizes").cast(pa.large_list(pa.float64()))
    pq.write_table(table.set_column(4, "sizes", floats), tmp_path / "b.parquet")
    assert packets(io.read(tmp_path / "b.parquet")) == packets(traces)
    halves = pa.array([[0.5 for _ in row] for row in floats.to_pylist()])
    pq.write_table(table.set_column(4, "sizes", halves), tmp_path / "c.parquet")
    with pytest.raises(TraceError, match="column 'sizes': row 0 is not a list of whole numbers"):
        io.read(tmp_path / "c.parquet")


def test_cells_without_an_ending_are_read(traces: Traces, tmp_path: Path) -> None:
    io.write(traces, tmp_path / "cells", "cells")
    files = sorted((tmp_path / "cells").glob("*.cell"))
    for file in files:
        file.rename(file.with_suffix(""))
    assert io.detect(tmp_path / "cells") == "cells"
    assert packets(io.read(tmp_path / "cells")) == packets(signs(traces))
    files[0].write_text("0\t1\n")
    with pytest.raises(TraceError, match="are the same load"):
        io.read(tmp_path / "cells")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "12").write_text("0\t1\n")
    with pytest.raises(TraceError, match=r"A-B\.cell or A-B: load B of page A"):
        io.read(tmp_path / "empty")


def test_captures_in_gzip_are_read(traces: Traces, tmp_path: Path) -> None:
    one = traces[:1]
    io.write(one, tmp_path / "plain", "pcapng")
    (tmp_path / "packed").mkdir()
    for file in (tmp_path / "plain").iterdir():
        data = gzip.compress(file.read_bytes())
        (tmp_path / "packed" / f"{file.name}.gz").write_bytes(data)
    plain, packed = io.read(tmp_path / "plain"), io.read(tmp_path / "packed")
    assert packets(packed) == packets(plain)
    assert packed.facts.paths == plain.facts.paths
    cut = tmp_path / "cut.pcapng.gz"
    cut.write_bytes(data[:-9])
    with pytest.raises(TraceError, match=r"cut\.pcapng\.gz: the gzip data are damaged"):
        io.read(cut)


@pytest.mark.parametrize(
    ("begin", "program"),
    [
        (b"PK\x03\x04", "unzip"),
        (b"\xfd7zXZ\x00", "xz -d"),
        (b"\x28\xb5\x2f\xfd", "zstd -d"),
        (b"BZh9", "bzip2 -d"),
    ],
)
@pytest.mark.parametrize("name", ["a.pcap", "a.pcap.zst", "a.parquet.xz"])
def test_other_compressed_files_are_named(
    begin: bytes, program: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(begin + bytes(50))
    with pytest.raises(TraceError, match=rf"unpack it first \({program}\)"):
        io.read(tmp_path / name)
