from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bursty import bursty

from anabranch import io
from anabranch.defences import Pipeline, overhead, parse
from anabranch.splitting import Split


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command line as users do."""
    call = [sys.executable, "-c", "from anabranch.cli import main; main()", *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    io.write(bursty(bursts=10), tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


def test_defend_writes_what_the_library_pads_and_tells_the_cost(trace: Path) -> None:
    out = trace.with_name("out.parquet")
    texts = ["front:client=200,server=300", "wtf-pad"]
    done = lab("defend", trace, out, "--defence", texts[0], "--defence", texts[1],
               "--seed", 3, "--json")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    loads = io.read(trace)
    expected = Pipeline([parse(text) for text in texts]).apply(loads, 3)
    got = io.read(out)
    assert np.array_equal(got.times, expected.times)
    assert np.array_equal(got.sizes, expected.sizes)
    report = json.loads(done.stdout)
    assert report["bandwidth"] == pytest.approx(overhead(loads, expected).bandwidth)
    assert report["seed"] == 3
    text = lab("defend", trace, trace.with_name("other.parquet"), "--defence", "front").stdout
    assert "padding per real byte, down" in text


def test_defend_pads_each_path_of_a_split_file(trace: Path) -> None:
    split = trace.with_name("split.parquet")
    out = trace.with_name("out.parquet")
    loads = Split("weighted", "50p", 3).split(io.read(trace))
    io.write(loads, split)
    assert lab("defend", split, out, "--defence", "wtf-pad").returncode == 0
    expected = parse("wtf-pad").apply(loads, 0)
    got = io.read(out).paths
    assert got is not None
    assert expected.paths is not None
    assert np.array_equal(got, expected.paths)


def test_bad_input_is_one_line_and_code_2_and_leaves_nothing(trace: Path) -> None:
    out = trace.with_name("out.parquet")
    io.write(bursty(), trace.with_name("timeless.npz"), "directions")
    for arguments, problem in [
        ([trace, "--defence", "nothing"], "the defence 'nothing' is unknown"),
        ([trace, "--defence", "front:client=-1"], "client=-1"),
        ([trace, "--defence", "maybenot:client=x"], "machine 'x'"),
        ([trace, "--defence", "front", "--seed", -1], "2^64"),
        ([trace.with_name("timeless.npz"), "--defence", "front"], "timeless.npz: column 'time'"),
        ([trace.with_name("none.parquet"), "--defence", "front"], "none.parquet: no such file"),
    ]:
        done = lab("defend", arguments[0], out, *arguments[1:])
        assert done.returncode == 2, arguments
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1
        assert not out.exists()
