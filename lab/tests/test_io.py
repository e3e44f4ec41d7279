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
from making import made, packets, signs


def listed(paths: NDArray[np.int16] | None) -> list[int] | None:
    return None if paths is None else paths.tolist()


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


def test_traces_of_an_earlier_program_are_read() -> None:
    folder = Path(__file__).parents[2] / "tests" / "formats" / "0e0b824b"
    split = io.read(folder / "split.parquet")
    assert split.facts == Facts("ip-packet", ("wlan", "lte"), "round-robin", 7)
    assert (split.sizes.size, split.sizes[0], split.sizes[-1]) == (8, -1228, 148)
    assert [split.names[label] for label in split.label] == ["example.org", ""]
    cells = io.read(folder / "client.parquet")
    assert (cells.facts.size, len(cells.facts.paths), cells.sizes.size) == ("cell", 8, 17_209)


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


def test_a_file_without_loads_is_never_written(traces: Traces, tmp_path: Path) -> None:
    for form in io.FORMATS:
        with pytest.raises(TraceError, match=f"{form}: there are no loads to write"):
            io.write(traces[:0], tmp_path / form, form)
    with pytest.raises(TraceError, match="no loads"), Writer(tmp_path / "a", Facts()) as writer:
        writer.add(traces[:0])
    assert list(tmp_path.iterdir()) == []
    with Writer(tmp_path / "a", Facts()) as writer:
        writer.add(traces[:0])
        writer.add(traces)
    assert len(io.read(tmp_path / "a", "parquet")) == len(traces)


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
        ({"time": [0.0, None]}, "column 'time': contains null values"),
        ({"time": [0.0], "size": [0]}, "column 'size': packet 0 .* is 0"),
        ({"time": [0.0], "path": [-2]}, "column 'path': packet 0 .* below -1"),
        ({"time": [0.0, 1.0], "label": ["a", "b"]}, "column 'label': differs within load 0"),
        ({"time": [0.0, 1.0], "monitored": [True, False]}, "column 'monitored': differs"),
        ({"time": []}, "contains no rows"),
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
    with pytest.raises(TraceError, match="the schema 2 is unknown"):
        io.read(path)
    for key, value in (("seed", "x"), ("paths", "7"), ("paths", "[" * 100_000)):
        write_rows(path, {"time": [0.0]}, **{f"anabranch.{key}": value})
        with pytest.raises(TraceError, match=rf"'anabranch\.{key}' are damaged"):
            io.read(path)


def test_other_columns_and_two_of_a_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_rows(path, {"time": [0.0]})
    plain = pq.read_table(path)
    pq.write_table(plain.append_column("times", pa.array(["x"])), path)
    assert io.detect(path) == "parquet"
    with pytest.raises(TraceError, match="column 'times': is an unknown column; expected load"):
        io.read(path)
    pq.write_table(plain.append_column("load", plain["load"]), path)
    with pytest.raises(TraceError, match="column 'load': occurs twice"):
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
    for form in ("parquet", "cells"):
        with pytest.raises(TraceError, match=r"load 0 in run 0 has no packets: .* cannot contain"):
            io.write(empty, path, form)
    with pytest.raises(TraceError, match="captures cannot contain empty loads"):
        io.write(empty[:1], path, "pcapng")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.parquet"]
    assert path.read_text() == "old"


def test_a_load_without_packets_is_kept_where_there_is_a_row_for_it(tmp_path: Path) -> None:
    traces = Builder().add("a", [0.5], [1]).add("a", [], []).build()
    for form in ("lists", "wflib", "directions"):
        io.write(traces, tmp_path / form, form)
        assert io.read(tmp_path / form, form).lengths.tolist() == [1, 0]


def test_what_a_clients_guards_saw_is_read_by_set_and_leg() -> None:
    """A trace of `anabranch client --legs 2 --trace`: 8 MB by the set 4, two idle sets."""
    got = io.read(Path(__file__).parent / "data" / "client-trace.parquet")
    assert (got.facts.size, got.facts.paths[:2]) == ("cell", ("leg 0", "leg 1"))
    assert got.load.tolist() == [4, 5, 6]
    assert got.paths is not None
    assert set(np.abs(got.sizes).tolist()) == {514}
    # From the client's own `numbers` and metrics at its end.
    for leg, received, sent in ((0, 4_647_588, 154_200), (1, 3_898_176, 126_958)):
        seen = got[:1].on_paths([leg]).sizes
        assert (-seen[seen < 0].sum(), seen[seen > 0].sum()) == (received, sent)
    assert got.shares(2).sum(axis=1) == pytest.approx([1.0, 1.0, 1.0])


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
        ("extra", pa.array([1, 2]), "column 'extra': is an unknown column"),
        ("times", pa.array([0.0, 1.0]), "column 'times': holds double"),
        ("times", pa.array([[0.0], [0.0]]), "column 'sizes': row 0 has 1 times but 2 sizes"),
        ("times", pa.array([[1.0, 0.0], [0.0]]), "column 'time': packet 1 of load 0"),
        ("sizes", pa.array([[1, 1 << 40], [1]]), "column 'size': holds values"),
        ("label", pa.array(["a", None]), "column 'label': contains null values"),
        ("run", pa.array([0, 1 << 40]), "column 'run': holds values that are not whole numbers"),
        ("run", pa.array([0, 1 << 63], pa.uint64()), "column 'run': holds values"),
    ]:
        pq.write_table(pa.table(columns | {name: column}), path)
        with pytest.raises(TraceError, match=problem):
            io.read(path, "lists")


def test_lists_of_no_load_or_with_two_columns_of_a_name_are_refused(
    traces: Traces, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    io.write(traces, path, "lists")
    table = pq.read_table(path)
    pq.write_table(table[:0], path)
    with pytest.raises(TraceError, match=r"a\.parquet: contains no rows"):
        io.read(path)
    pq.write_table(table.append_column("sizes", table["sizes"]), path)
    with pytest.raises(TraceError, match="column 'sizes': occurs twice"):
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
        "0-1": "\n0.25 -1 more\n",
        "12": "0 512\n",
        "x-1": "junk",
    }.items():
        (tmp_path / f"{name}.cell").write_text(text)
    traces = io.read(tmp_path)
    assert traces.labels.tolist() == ["0", "0", "open 12"]
    assert traces.monitored.tolist() == [True, True, False]
    assert packets(traces) == [
        ("0", [0.0, 0.5], [1, -1]),
        ("0", [0.25], [-1]),
        ("open 12", [0.0], [512]),
    ]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0.0\t1\n0.5\n", "line 2 is not a time and a direction"),
        ("0.0\n0.5\n", "line 1 is not a time and a direction"),
        ("0.0\t1\n\n0.5\tx\n", "line 3 is not a time and a direction"),
        ("0.0\t1\nnan\t1\n", "line 2 has a time that is negative or not a finite number"),
        ("-1.0\t1\n", "line 1 has a time"),
        ("0.0\tnan\n", "line 1 has nan instead of a direction"),
        ("0.0\t0\n", "line 1 has 0 instead of a direction"),
        ("0.0\t1.5\n", "line 1 has 1.5 instead of a direction"),
        ("0.0\t1e300\n", "instead of a direction"),
        ("1.0\t1\n0.5\t1\n", "line 2 has an earlier time than the previous line"),
        ("", "contains no packets"),
        (b"\xff\xfe", "can't decode"),
    ],
)
def test_a_wrong_line_of_a_cell_file_is_named(
    text: str | bytes, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "0-0.cell").write_text("0.0\t1\n")
    (tmp_path / "0-1.cell").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TraceError, match=rf"0-1\.cell: .*{problem}") as caught:
        io.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_labels_that_a_line_cannot_hold_are_not_written_to_one(tmp_path: Path) -> None:
    for name in ("a\nb", "a\r", "\u2028"):
        traces = Builder().add(name, [0.0], [1]).build()
        with pytest.raises(TraceError, match=r"column 'label': .* a line break"):
            io.write(traces, tmp_path / "cells", "cells")
    io.write(Builder().add("a\tb", [0.0], [1]).build(), tmp_path / "cells", "cells")
    assert io.read(tmp_path / "cells").names == ("a\tb",)


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


def block(kind: int, body: bytes) -> bytes:
    """Returns a block of a capture, big-endian."""
    length = struct.pack(">I", len(body) + 12)
    return struct.pack(">I", kind) + length + body + length


def capture(*packets: bytes, options: bytes = b"") -> bytes:
    section = block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))
    interface = block(1, struct.pack(">HHI", 101, 0, 0) + options)
    return section + interface + b"".join(block(6, packet) for packet in packets)


def packet(time: int, length: int, flags: bytes = struct.pack(">HHIHH", 2, 4, 1, 0, 0)) -> bytes:
    return struct.pack(">IIIII", 0, time >> 32, time & 0xFFFFFFFF, 0, length) + flags


def test_a_capture_of_big_endian_microseconds_is_read(tmp_path: Path) -> None:
    data = capture(packet(1_500_000, 99)) + block(99, b"") + block(6, packet(1_750_000, 50))
    (tmp_path / "a.pcapng").write_bytes(data)
    traces = io.read(tmp_path)
    assert traces.times.tolist() == [0.0, 0.25]
    assert traces.sizes.tolist() == [-99, -50]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a pcapng file"),
        (b"junk", "not a pcapng file"),
        (capture()[:-5], "the block at byte 28 is damaged or incomplete"),
        (block(0x0A0D0D0A, b""), "the block at byte 0 is damaged"),
        (capture()[:28] + block(1, b""), "the block at byte 28 is damaged"),
        (capture(options=struct.pack(">HH", 9, 0)), "the block at byte 28 is damaged"),
        (capture(b"short---"), "the block at byte 48 is damaged"),
        (capture(packet(0, 99, b"")), "the packet at byte 48 has no direction"),
        (capture(packet(0, 99, b"\0\2\0\2\0\1\0\0")), "the block at byte 48 is damaged"),
        (capture(packet(0, 0)), "the packet at byte 48 has 0 bytes"),
        (capture(packet(0, 1 << 31)), "the packet at byte 48 has 2147483648 bytes"),
        (capture(packet((1 << 64) - 1, 99)), "the packet at byte 48 has a time after"),
    ],
)
def test_damaged_captures_are_refused(data: bytes, problem: str, tmp_path: Path) -> None:
    io.write(made(1), tmp_path / "caps", "pcapng")
    (tmp_path / "caps" / "1.pcapng").write_bytes(data)
    with pytest.raises(TraceError, match=rf"1\.pcapng: {problem}"):
        io.read(tmp_path / "caps")


def test_captures_are_named_by_paths_that_can_be_files(tmp_path: Path) -> None:
    split = Split("uniform", "1p", 2).split(made(1))
    for name in ("../a", "", ".a", "a\0", "b"):
        named = replace(split, facts=replace(split.facts, paths=("b", name)))
        with pytest.raises(TraceError, match="column 'path': path 1 has the name"):
            io.write(named, tmp_path / "caps", "pcapng")
    assert list(tmp_path.iterdir()) == []


def test_captures_hold_one_load_of_ip_packets(traces: Traces, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="one load, not 12"):
        io.write(traces, tmp_path / "a", "pcapng")
    with pytest.raises(TraceError, match="column 'size'"):
        io.write(signs(made(1)), tmp_path / "a", "pcapng")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_traces_are_told(tmp_path: Path) -> None:
    for name, problem in [
        ("a.parquet", "no such file"),
        ("a.txt", "the format cannot be recognised"),
        (".", "has no .pcapng, .pcap or"),
    ]:
        if name == "a.txt":
            (tmp_path / name).write_text("")
        with pytest.raises(TraceError, match=problem):
            io.read(tmp_path / name)
    with pytest.raises(TraceError, match="its folder does not exist"):
        io.write(made(1), tmp_path / "none" / "a.parquet")


def test_a_monitored_label_with_one_load_is_refused(traces: Traces) -> None:
    validate.labels(traces)
    with pytest.raises(
        TraceError, match="column 'label': 'page 0' has only one load, and so have 1 other"
    ):
        validate.labels(made(3))
    validate.labels(replace(made(3), monitored=np.zeros(3, np.bool_)))


def test_arrays_that_do_not_fit_are_refused(traces: Traces) -> None:
    for change, problem in [
        ({"load": traces.load[1:]}, "column 'load': has the shape"),
        ({"times": traces.times.astype(np.float32)}, "column 'times': holds float32"),
        ({"offsets": traces.offsets[::-1].copy()}, "column 'offsets'"),
        ({"load": traces.load * 0}, "column 'load': 0 is in run 0 twice"),
        ({"names": ("page 0",)}, "column 'label': has codes"),
    ]:
        with pytest.raises(TraceError, match=problem):
            replace(traces, **change)  # type: ignore[arg-type]


def test_metadata_are_those_of_the_splitter(traces: Traces, tmp_path: Path) -> None:
    split = Split("hywf", None, 2, "independent", seed=2**64 - 1)
    io.write(split.split(traces), tmp_path / "a.parquet")
    facts = pq.read_schema(tmp_path / "a.parquet").metadata
    assert json.loads(facts[b"anabranch.paths"]) == ["0", "1"]
    assert facts[b"anabranch.schedule"] == b"hywf --every ~20p --paths 2 --mode independent"
    assert int(facts[b"anabranch.seed"]) == 2**64 - 1


def test_selecting_loads_keeps_their_packets(traces: Traces) -> None:
    for index in ([4, 1], traces.monitored, slice(3, 6)):
        places = np.arange(len(traces))[index]
        chosen = traces[index]
        assert packets(chosen) == sorted(packets(traces[k : k + 1])[0] for k in places)
    assert len(Builder().build()) == 0
