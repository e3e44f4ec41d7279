from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import io
from anabranch.traces import Builder, Traces
from anabranch.validate import TraceError
from making import made, packets, signs


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
    assert packets(traces) == [("7", [0.0, 0.5, 1.0], [1, -1, 1]), ("open 0", [0.25], [1])]
    assert traces.monitored.tolist() == [True, False]


@pytest.mark.parametrize("form", ["wflib", "directions"])
def test_labels_and_what_is_monitored_come_back(form: str, tmp_path: Path) -> None:
    traces = made(20, labels=5, unmonitored=3)
    path = tmp_path / "a.npz"
    io.write(traces, path, form)
    got = io.read(path)
    assert got.labels.tolist() == traces.labels.tolist()
    assert got.monitored.tolist() == traces.monitored.tolist()
    with np.load(path) as file:
        assert file["y"].tolist() == np.minimum(traces.label, 2).tolist()


def test_a_label_may_be_monitored_in_some_loads_only(tmp_path: Path) -> None:
    builder = Builder()
    for label, monitored in (("b", True), ("a", False), ("b", False), ("c", True)):
        builder.add(label, [0.5], [1], monitored=monitored)
    traces = builder.build()
    path = tmp_path / "a.npz"
    for loads, y in ((traces, [0, 2, 2, 1]), (traces[[3, 1]], [0, 1]), (traces[[1, 2]], [0, 0])):
        io.write(loads, path)
        got = io.read(path)
        assert got.labels.tolist() == loads.labels.tolist()
        assert got.monitored.tolist() == loads.monitored.tolist()
        with np.load(path) as file:
            assert file["y"].tolist() == y


@pytest.mark.parametrize("form", ["wflib", "directions"])
def test_the_number_of_unmonitored_pages_is_sought_in_y(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    io.write(made(20, labels=5, unmonitored=3), path, form)
    with np.load(path) as file:
        ours = dict(file)
    others = {"X": ours["X"], "y": ours["y"]}
    for arrays in (ours, others, others | {"labels": np.array(["a", "b", "c"])}):
        np.savez(path, **arrays)
        got = io.read(path, meaning=io.Meaning(unmonitored=2))
        assert got.monitored.tolist() == (ours["y"] != 2).tolist()
        got = io.read(path, meaning=io.Meaning(unmonitored=1))
        assert not got.monitored[ours["y"] == 1].any()
        for absent in (3, -1, 10**30):
            with pytest.raises(TraceError, match=f"'y': no load has .* {absent} .* are 0 to 2"):
                io.read(path, meaning=io.Meaning(unmonitored=absent))
        assert not io.read(path, meaning=io.Meaning(monitored=False)).monitored.any()


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
    np.savez(path, X_a=np.ones((3, 2)), y_a=[1, 1, 1], X_b=np.ones((3, 4)), y_b=[1, 1, 1])
    with pytest.raises(TraceError, match=r"rows of different lengths: X_a has 2, X_b has 4"):
        io.read(path)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"X": [1.0, 2.0], "y": [1, 2]}, "column 'X': has the shape"),
        ({"X": [[1.0], [2.0]], "y": [1]}, "column 'y': has the shape"),
        ({"X": [[1.0]]}, "column 'y': is missing; the file has X"),
        ({"X": [[1.0]], "y": ["a"]}, "column 'y': holds <U1"),
        ({"X": [["a"]], "y": [1]}, "column 'X': holds <U1"),
        ({"X": [[1.0, 0.0, 2.0]], "y": [1]}, "column 'X': row 0 has a 0 at index 1"),
        ({"X": [[2.0, -1.0]], "y": [1]}, "column 'time': packet 1 of load 0"),
        ({"X": [[1.0, np.inf]], "y": [1]}, "column 'X': row 0 holds numbers"),
        ({"X": [[1, 3]], "y": [1]}, "column 'X': holds numbers other"),
        ({"X": np.ones((0, 4)), "y": np.ones(0, int)}, "column 'X': contains no rows"),
        ({"X": [[1.0]], "y": np.array([1 << 63], np.uint64)}, "column 'y': holds uint64"),
        ({"X": [[1.0]], "y": [1], "labels": ["a"]}, "column 'labels': has 1 labels"),
        ({"X": [[1.0]], "y": [0], "labels": ["a"], "pages": [1]}, "column 'labels': has 1 labels"),
        ({"X": [[1.0]], "y": [0], "labels": ["a"], "pages": [0, 0]}, "column 'pages': needs"),
        ({"X": [[1.0]], "y": [0], "labels": ["a"], "pages": [0.0]}, "column 'pages': .* float64"),
        ({"X": [[1.0]], "y": [0], "monitored": [True, True]}, "column 'monitored': needs"),
        ({"X": [[1.0]], "y": [0], "monitored": [1]}, "column 'monitored': .* holds int64"),
        ({"X": [[1.0]], "y": [0], "labels": ["\ud800"]}, "not a readable npz file: .* surrogates"),
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


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return np.lib.format.magic(1, 0) + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("X", "problem"),
    [
        (b"no array", "column 'X': has the shape"),
        (header("(1, 2"), "not a readable npz"),
        (header("(1000000000000, 10000)"), "not a readable npz"),
        (header("(-1, 1)"), "not a readable npz"),
    ],
)
def test_an_entry_that_is_no_array_is_refused(X: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", X)
        with archive.open("y.npy", "w") as entry:
            np.lib.format.write_array(entry, np.array([1]))
    with pytest.raises(TraceError, match=rf"a\.npz: {problem}"):
        io.read(path)


def test_labels_of_impossible_characters_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, X=[[1]], y=[0], labels=np.array([0x110000], np.uint32).view("U1"))
    with pytest.raises(TraceError, match="not a readable npz"):
        io.read(path)
