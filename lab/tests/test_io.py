from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from anabranch import io, validate
from anabranch.io.parquet import Writer
from anabranch.splitting import Split
from anabranch.traces import Builder, Facts, Traces
from anabranch.validate import TraceError
from making import made


def packets(traces: Traces) -> list[tuple[str, list[float], list[int]]]:
    """Label, times and sizes of each load, in an order that no format changes."""
    labels = traces.labels.tolist()
    places = [traces.packets(k) for k in range(len(traces))]
    loads = [
        (label, traces.times[place].tolist(), traces.sizes[place].tolist())
        for label, place in zip(labels, places, strict=True)
    ]
    return sorted(loads)


def listed(paths: NDArray[np.int16] | None) -> list[int] | None:
    return None if paths is None else paths.tolist()


def signs(traces: Traces) -> Traces:
    return replace(traces, sizes=np.sign(traces.sizes), facts=Facts(size="direction"))


def test_parquet_gives_everything_back(traces: Traces, tmp_path: Path) -> None:
    split = Split("weighted", "5p", 3, seed=9).split(traces)
    for given in (traces, split):
        io.write(given, tmp_path / "a.parquet")
        assert io.detect(tmp_path / "a.parquet") == "parquet"
        got = io.read(tmp_path / "a.parquet")
        assert got.facts == given.facts
        assert got.names == given.names
        for name in ("load", "run", "label", "monitored", "offsets", "times", "sizes"):
            assert np.array_equal(getattr(got, name), getattr(given, name)), name
        assert listed(got.paths) == listed(given.paths)


def test_parquet_is_written_piece_by_piece_and_torn_by_no_row_group(tmp_path: Path) -> None:
    traces = made(2_000, labels=40)
    with Writer(tmp_path / "a.parquet", traces.facts) as writer:
        writer.add(traces[:700])
        writer.add(traces[700:])
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert file.num_row_groups > 3
    assert packets(io.read(tmp_path / "a.parquet")) == packets(traces)
    runs = [file.read_row_group(k, ["load"])["load"].unique() for k in range(file.num_row_groups)]
    assert sum(map(len, runs)) == len(traces)


def test_interleaved_loads_are_told_apart(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {
        "load": [5, 3, 5, 3],
        "label": ["b", "a", "b", "a"],
        "time": [0.0, 0.5, 1.0, 2.0],
    }
    write_rows(tmp_path / "a.parquet", rows | {"size": [1, 2, 3, 4], "path": [0, 1, 1, 0]})
    traces = io.read(tmp_path / "a.parquet")
    assert traces.load.tolist() == [3, 5]
    assert traces.sizes.tolist() == [2, 4, 1, 3]
    assert traces.paths is not None
    assert traces.paths.tolist() == [1, 0, 0, 1]


def test_labels_may_be_text_in_any_of_arrows_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_rows(path, {"time": [0.0, 1.0], "label": ["a", "a"]})
    plain = pq.read_table(path)
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.chunked_array([plain["label"].combine_chunks().cast(kind)])
        pq.write_table(
            plain.set_column(plain.schema.get_field_index("label"), "label", column), path
        )
        assert pq.read_schema(path).field("label").type == kind
        assert io.read(path).labels.tolist() == ["a"]


def test_the_whole_is_not_added_to_its_paths(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {
        "load": [1, 1, 2],
        "time": [0.0, 0.0, 0.0],
        "size": [7, 7, 8],
        "path": [-1, 1, -1],
    }
    write_rows(tmp_path / "a.parquet", rows)
    traces = io.read(tmp_path / "a.parquet")
    assert traces.sizes.tolist() == [7, 8]
    assert traces.paths is not None
    assert traces.paths.tolist() == [1, -1]


def write_rows(path: Path, rows: dict[str, list[Any]], **metadata: str) -> None:
    count = len(rows["time"])
    full: dict[str, list[Any]] = {
        "load": [0] * count, "label": [""] * count, "monitored": [False] * count,
        "run": [0] * count, "path": [-1] * count, "size": [1] * count,
    }  # fmt: skip
    kinds = {
        "load": pa.int64(), "label": pa.string(), "monitored": pa.bool_(), "run": pa.int32(),
        "path": pa.int16(), "time": pa.float64(), "size": pa.int32(),
    }  # fmt: skip
    full |= rows
    columns = {name: pa.array(full[name], kind) for name, kind in kinds.items()}
    table = pa.table(columns).replace_schema_metadata({"anabranch.schema": "1"} | metadata)
    pq.write_table(table, path)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ({"time": [1.0, 0.5]}, "column 'time': packet 1 of load 0 in run 0 is earlier"),
        ({"time": [-1.0]}, "column 'time': packet 0 .* negative"),
        ({"time": [float("nan")]}, "column 'time': packet 0 .* finite"),
        ({"time": [0.0, None]}, "column 'time': holds nulls"),
        ({"time": [0.0], "size": [0]}, "column 'size': packet 0 .* is 0"),
        ({"time": [0.0], "path": [-2]}, "column 'path': packet 0 .* below -1"),
        ({"time": [0.0, 1.0], "label": ["a", "b"]}, "column 'label': changes within load 0"),
        ({"time": [0.0, 1.0], "monitored": [True, False]}, "column 'monitored': changes"),
        ({"time": []}, "holds no rows"),
    ],
)
def test_a_trace_that_breaks_a_rule_is_refused(
    rows: dict[str, list[Any]], problem: str, tmp_path: Path
) -> None:
    write_rows(tmp_path / "a.parquet", rows)
    with pytest.raises(TraceError, match=rf"a\.parquet: {problem}"):
        io.read(tmp_path / "a.parquet")


def test_a_file_that_is_no_trace_says_why(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"load": [1], "size": [2]}), path)
    with pytest.raises(TraceError, match=r"no 'anabranch\.schema'"):
        io.read(path)
    pq.write_table(pa.table({"load": [1]}).replace_schema_metadata({"anabranch.schema": "1"}), path)
    with pytest.raises(TraceError, match="label, monitored, run, path, time, size are missing"):
        io.read(path)
    write_rows(path, {"time": [0.0]}, **{"anabranch.schema": "2"})
    with pytest.raises(TraceError, match="schema 2 is not known"):
        io.read(path)
    write_rows(path, {"time": [0.0]}, **{"anabranch.seed": "x"})
    with pytest.raises(TraceError, match=r"'anabranch\.seed' are damaged"):
        io.read(path)


def test_corrupt_parquet_names_the_file(traces: Traces, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    io.write(traces, path)
    good = path.read_bytes()
    for bad in (good[: len(good) // 2], b"PAR1", b"", good[:200] + bytes(400) + good[600:]):
        path.write_bytes(bad)
        with pytest.raises(TraceError, match=r"a\.parquet"):
            io.read(path)


def test_a_changed_byte_is_noticed_in_every_column(traces: Traces, tmp_path: Path) -> None:
    for form in ("parquet", "lists"):
        path = tmp_path / f"{form}.parquet"
        io.write(traces, path, form)
        good = path.read_bytes()
        with pq.ParquetFile(path) as file:
            pages = file.metadata.row_group(0)
            chunks = [pages.column(k) for k in range(pages.num_columns)]
        for chunk in chunks:
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            last = first + chunk.total_compressed_size - 1
            path.write_bytes(good[:last] + bytes([good[last] ^ 1]) + good[last + 1 :])
            with pytest.raises(TraceError, match=f"{form}\\.parquet"):
                io.read(path)


def test_a_failed_write_leaves_the_old_file_and_no_draft(traces: Traces, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_text("old")
    empty = Split("weights:1,0", "1p", 2).split(traces).on_paths([1])
    with pytest.raises(TraceError, match="load 0 in run 0 has no packets"):
        io.write(empty, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]
    assert path.read_text() == "old"


def test_lists_give_packets_back(traces: Traces, tmp_path: Path) -> None:
    io.write(traces, tmp_path / "a.parquet", "lists")
    assert io.detect(tmp_path / "a.parquet") == "lists"
    got = io.read(tmp_path / "a.parquet")
    assert packets(got) == packets(traces)
    assert got.run.tolist() == traces.run.tolist()
    assert got.monitored.all()
    assert not io.read(tmp_path / "a.parquet", meaning=io.Meaning(monitored=False)).monitored.any()


def test_lists_as_others_have_them(tmp_path: Path) -> None:
    columns = {
        "label": pa.array(["a", "b"], pa.large_string()),
        "instance": pa.array([0, 0], pa.int32()),
        "times": pa.array([[0.0, 0.5], [0.25]], pa.list_(pa.float32())),
        "sizes": pa.array([[514, -514], [514]], pa.list_(pa.int16())),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    traces = io.read(path)
    assert packets(traces) == [("a", [0.0, 0.5], [514, -514]), ("b", [0.25], [514])]
    assert traces.facts.size == "cell"
    for name, column, problem in [
        ("extra", pa.array([1, 2]), "column 'extra': is not known"),
        ("times", pa.array([0.0, 1.0]), "column 'times': holds double"),
        ("times", pa.array([[0.0], [0.0]]), "column 'sizes': row 0 has 1 times but 2 sizes"),
        ("times", pa.array([[1.0, 0.0], [0.0]]), "column 'time': packet 1 of load 0"),
        ("sizes", pa.array([[1, 1 << 40], [1]]), "column 'size': holds values"),
        ("label", pa.array(["a", None]), "column 'label': holds nulls"),
    ]:
        pq.write_table(pa.table(columns | {name: column}), path)
        with pytest.raises(TraceError, match=problem):
            io.read(path, "lists")


def test_wflib_gives_directions_and_times_back(traces: Traces, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    io.write(traces, path)
    assert io.detect(path) == "wflib"
    got = io.read(path)
    assert packets(got) == packets(signs(traces))
    with np.load(path) as file:
        assert file["X"].shape == (len(traces), 10_000)
        assert file["X"][0, 0] == np.sign(traces.sizes[0]) * 1e-9
        assert file["y"].tolist() == traces.label.tolist()


def test_wflib_as_others_have_it(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, X=[[0.0, -0.5, 1.0, 0.0], [0.25, 0.0, 0.0, 0.0]], y=[7, 95])
    traces = io.read(path, meaning=io.Meaning(unmonitored=95))
    assert packets(traces) == [("7", [0.0, 0.5, 1.0], [1, -1, 1]), ("95", [0.25], [1])]
    assert traces.monitored.tolist() == [True, False]


def test_directions_have_no_times(traces: Traces, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    io.write(traces, path, "directions")
    assert io.detect(path) == "directions"
    got = io.read(path)
    assert got.timeless
    assert [load[2] for load in packets(got)] == [
        load[2] for load in packets(replace(signs(traces), times=0 * traces.times))
    ]
    with pytest.raises(TraceError, match="no times"):
        io.write(got, tmp_path / "b.npz", "wflib")


def test_groups_of_an_npz_become_runs(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    groups: dict[str, Any] = {"X_a": [[1, -1]], "y_a": [4], "X_b": [[-1, 0], [1, 1]], "y_b": [4, 5]}
    np.savez(path, **groups)
    traces = io.read(path)
    assert traces.run.tolist() == [0, 1, 1]
    assert [load[::2] for load in packets(traces)] == [("4", [-1]), ("4", [1, -1]), ("5", [1, 1])]
    np.savez(path, X_a=[[1]], y_a=[1], X_b=[[1, 1]], y_b=[1])
    with pytest.raises(TraceError, match="column 'X_a': has the shape"):
        io.read(path)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"X": [1.0, 2.0], "y": [1, 2]}, "column 'X': has the shape"),
        ({"X": [[1.0], [2.0]], "y": [1]}, "column 'y': has the shape"),
        ({"X": [[1.0]]}, "column 'y': is missing; the file has X"),
        ({"X": [[1.0]], "y": ["a"]}, "column 'y': holds <U1"),
        ({"X": [["a"]], "y": [1]}, "column 'X': holds <U1"),
        ({"X": [[1.0, 0.0, 2.0]], "y": [1]}, "column 'X': row 0 has a 0 at 1"),
        ({"X": [[2.0, -1.0]], "y": [1]}, "column 'time': packet 1 of load 0"),
        ({"X": [[1.0, np.inf]], "y": [1]}, "column 'X': row 0 holds numbers"),
        ({"X": [[1, 3]], "y": [1]}, "column 'X': holds numbers other"),
        ({"X": [[1.0]], "y": [1], "labels": ["a"]}, "column 'labels': names 1 labels"),
    ],
)
def test_npz_of_the_wrong_shape_is_refused(
    arrays: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(TraceError, match=rf"a\.npz: {problem}"):
        io.read(tmp_path / "a.npz")


def test_npz_that_is_none_or_needs_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, X=np.array([[1], [1, 2]], dtype=object), y=[1, 2])
    with pytest.raises(TraceError, match="not a readable npz"):
        io.read(path)
    good = path.read_bytes()
    for bad in (b"", b"junk", good[: len(good) // 2]):
        path.write_bytes(bad)
        with pytest.raises(TraceError, match="not a readable npz"):
            io.read(path)


def test_cells_give_directions_and_times_back(traces: Traces, tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    io.write(traces, folder, "cells")
    assert io.detect(folder) == "cells"
    got = io.read(folder)
    assert packets(got) == packets(signs(traces))
    assert got.facts.size == "direction"
    assert sorted(got.labels[got.monitored]) == sorted(traces.labels[traces.monitored])
    with pytest.raises(TraceError, match="not an empty folder"):
        io.write(traces, folder, "cells")


def test_cells_as_others_have_them(tmp_path: Path) -> None:
    for name, text in {
        "0-0": "0.0\t1\n0.5\t-1\n",
        "0-1": "",
        "12": "0 512\n",
        "x-1": "junk",
    }.items():
        (tmp_path / f"{name}.cell").write_text(text)
    traces = io.read(tmp_path)
    assert traces.labels.tolist() == ["0", "0", "open 12"]
    assert traces.monitored.tolist() == [True, True, False]
    assert traces.lengths.tolist() == [2, 0, 1]
    (tmp_path / "0-1.cell").write_text("0.0\t1\n0.5\n")
    with pytest.raises(TraceError, match=r"0-1\.cell: line 2 is not 'time direction'"):
        io.read(tmp_path)
    (tmp_path / "0-1.cell").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match=r"0-1\.cell"):
        io.read(tmp_path)


def test_captures_give_packets_and_paths_back(tmp_path: Path) -> None:
    split = Split("uniform", "1p", 2).split(made(1))
    split = replace(split, facts=replace(split.facts, paths=("lte", "wlan")))
    io.write(split, tmp_path / "caps", "pcapng")
    assert io.detect(tmp_path / "caps") == "pcapng"
    got = io.read(tmp_path / "caps", meaning=io.Meaning("page 0"))
    assert got.facts.paths == ("lte", "wlan")
    assert listed(got.paths) == listed(split.paths)
    assert np.array_equal(got.sizes, split.sizes)
    assert np.abs(got.times - split.times).max() < 1e-9
    one = io.read(tmp_path / "caps" / "lte.pcapng")
    assert one.times.size == (listed(split.paths) or []).count(0)


def test_a_capture_of_big_endian_microseconds_is_read(tmp_path: Path) -> None:
    def block(kind: int, body: bytes) -> bytes:
        length = struct.pack(">I", len(body) + 12)
        return struct.pack(">I", kind) + length + body + length

    packet = struct.pack(">IIIII", 0, 0, 1_500_000, 0, 99)
    flags = struct.pack(">HHIHH", 2, 4, 1, 0, 0)
    data = block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += block(1, struct.pack(">HHI", 101, 0, 0)) + block(99, b"")
    data += block(6, packet + flags) + block(
        6, struct.pack(">IIIII", 0, 0, 1_750_000, 0, 50) + flags
    )
    (tmp_path / "a.pcapng").write_bytes(data)
    traces = io.read(tmp_path)
    assert traces.times.tolist() == [0.0, 0.25]
    assert traces.sizes.tolist() == [-99, -50]


def test_damaged_captures_are_refused(tmp_path: Path) -> None:
    io.write(made(1), tmp_path / "caps", "pcapng")
    path = tmp_path / "caps" / "0.pcapng"
    good = path.read_bytes()
    for bad in (
        good[:-5],
        b"junk",
        b"",
        good[:28] + good[28:].replace(b"\x02\0\4\0\2", b"\x02\0\4\0\0"),
    ):
        path.write_bytes(bad)
        with pytest.raises(TraceError, match=r"0\.pcapng"):
            io.read(tmp_path / "caps")


def test_captures_hold_one_load_of_ip_packets(traces: Traces, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="one load, not 12"):
        io.write(traces, tmp_path / "a", "pcapng")
    with pytest.raises(TraceError, match="column 'size'"):
        io.write(signs(made(1)), tmp_path / "a", "pcapng")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_traces_are_told(tmp_path: Path) -> None:
    for name, problem in [
        ("a.parquet", "no such file"),
        ("a.txt", "which format"),
        (".", "holds neither"),
    ]:
        if name == "a.txt":
            (tmp_path / name).write_text("")
        with pytest.raises(TraceError, match=problem):
            io.read(tmp_path / name)
    with pytest.raises(TraceError, match="should stand in does not exist"):
        io.write(made(1), tmp_path / "none" / "a.parquet")


def test_a_monitored_label_with_one_load_is_refused(traces: Traces) -> None:
    validate.labels(traces)
    with pytest.raises(TraceError, match="column 'label': 'page 0' has one instance, and 1 others"):
        validate.labels(made(3))
    validate.labels(replace(made(3), monitored=np.zeros(3, np.bool_)))


def test_arrays_that_do_not_fit_are_refused(traces: Traces) -> None:
    for change, problem in [
        ({"load": traces.load[1:]}, "column 'load': has the shape"),
        ({"times": traces.times.astype(np.float32)}, "column 'times': holds float32"),
        ({"offsets": traces.offsets[::-1].copy()}, "column 'offsets'"),
        ({"load": traces.load * 0}, "column 'load': 0 stands twice in run 0"),
        ({"names": ("page 0",)}, "column 'label': holds codes"),
    ]:
        with pytest.raises(TraceError, match=problem):
            replace(traces, **change)  # type: ignore[arg-type]


def test_metadata_are_those_of_the_splitter(traces: Traces, tmp_path: Path) -> None:
    io.write(Split("hywf", None, 2, seed=2**64 - 1).split(traces), tmp_path / "a.parquet")
    facts = pq.read_schema(tmp_path / "a.parquet").metadata
    assert json.loads(facts[b"anabranch.paths"]) == ["0", "1"]
    assert facts[b"anabranch.schedule"] == b"hywf --every ~20p --paths 2 --mode together"
    assert int(facts[b"anabranch.seed"]) == 2**64 - 1


def test_selecting_loads_keeps_their_packets(traces: Traces) -> None:
    for index in ([4, 1], traces.monitored, slice(3, 6)):
        places = np.arange(len(traces))[index]
        chosen = traces[index]
        assert packets(chosen) == sorted(packets(traces[k : k + 1])[0] for k in places)
    assert len(Builder().build()) == 0
