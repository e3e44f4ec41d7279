from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from anabranch import io
from anabranch.cli import app
from anabranch.splitting import Split
from making import made


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command line as users do."""
    call = [sys.executable, "-c", "from anabranch.cli import main; main()", *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    io.write(made(), tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


def test_convert_writes_every_format(trace: Path, tmp_path: Path) -> None:
    for form in ("parquet", "lists", "wflib", "directions", "cells"):
        done = lab("convert", trace, tmp_path / form, "--to", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(io.read(tmp_path / form, form)) == 12


def test_inspect_tells_what_there_is(trace: Path) -> None:
    facts = json.loads(lab("inspect", trace, "--json").stdout)
    assert (facts["loads"], facts["labels"], facts["runs"]) == (12, 3, [0, 1])
    assert "loads per label" in lab("inspect", trace).stdout


def test_split_does_by_default_what_the_splitter_does(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    done = lab("split", trace, out)
    assert (done.returncode, done.stderr) == (0, "")
    assert io.read(out).facts.schedule == str(Split("weighted:4", "100ms", mode="follow"))


def test_split_writes_what_the_library_splits(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    done = lab("split", trace, out, "--schedule", "batched", "--paths", 5, "--seed", 3,
               "--mode", "independent", "--resplits", 2)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    split = Split("batched", None, 5, "independent", seed=3)
    for replica in range(2):
        got = io.read(tmp_path / f"out.{replica}.parquet")
        expected = split.split(io.read(trace), replica).paths
        assert got.paths is not None
        assert expected is not None
        assert np.array_equal(got.paths, expected)
    facts = json.loads(lab("inspect", tmp_path / "out.0.parquet", "--json").stdout)
    assert facts["schedule"] == str(split)
    assert facts["seed"] == 3


def test_bad_input_is_one_line_and_code_2_and_leaves_nothing(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(trace.read_bytes()[:500])
    np.savez(tmp_path / "bad.npz", X=[1.0, 2.0], y=[1, 2])
    np.savez(tmp_path / "late.npz", X=[[0.5, -1.1e10]], y=[1])
    np.save(tmp_path / "array.npy", [1.0, 2.0])
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    lonely = tmp_path / "lonely.parquet"
    io.write(made(2), lonely)
    out = tmp_path / "out.parquet"
    os.mkfifo(tmp_path / "fifo.parquet")
    before = sorted(tmp_path.iterdir())
    for arguments, problem in [
        (["convert", tmp_path / "none.parquet", out], "none.parquet: no such file"),
        (["convert", tmp_path / "bad.parquet", out], "bad.parquet: not a readable Parquet"),
        (["convert", tmp_path / "bad.npz", out], "bad.npz: column 'X'"),
        (["convert", lonely, out], "lonely.parquet: column 'label': 'page 0' has only one load"),
        (["convert", trace, tmp_path / "out.xyz"], "the format cannot be recognised"),
        (["inspect", tmp_path / "bad.npz"], "bad.npz: column 'X'"),
        (["split", trace, out, "--every", "50p", "--paths", 0], "paths: 0 is not from 1 to"),
        (["split", trace, out, "--every", "50p", "--schedule", "weights:0,0,0"], "sum to 0"),
        (["split", trace, out, "--every", "50p", "--paths", -3], "paths: -3 is not from 1 to"),
        (
            ["split", trace, out, "--every", "50p", "--schedule", "weighted:0"],
            "schedule: '0' is not a valid argument of this schedule",
        ),
        (["split", trace, out, "--every", "50p", "--delay", "x"], "'x' is not a delay"),
        (["evaluate", trace, "--r", "nan"], "r: nan is not a number of 0 or more"),
        (["split", trace, tmp_path / "no" / "out.parquet", "--every", "1p"], "does not exist"),
        (["split", trace, tmp_path / "out.npz", "--every", "1p"], "must end in .parquet"),
        (["split", trace, tmp_path / "fifo.parquet", "--every", "1p"], "is not a regular file"),
        (["split", trace, "/proc/out.parquet", "--every", "1p"], "/proc/out.parquet: "),
        (["split", trace, tmp_path, "--every", "1p"], "must end in .parquet"),
        (["split", trace, out, "--every", "1p", "--paths", "x"], "--paths"),
        (
            ["split", trace, out, "--every", "1p", "--mode", "both"],
            "mode: 'both' is not a rule for",
        ),
        (["split", trace], "Missing argument"),
        (["inspect", trace, "--from", "csv"], "--from"),
        (["inspect", trace, "--nonsense"], "--nonsense"),
        (["convert", trace, out, "--label", "x"], "in.parquet: label: files of the format parquet"),
        (["convert", trace, out, "--unmonitored-y", 3], "unmonitored: files of the format parquet"),
        (["convert", trace, trace], "in.parquet: OUT is also IN"),
        (["split", trace, trace, "--every", "1p"], "in.parquet: OUT is also IN"),
        (["defend", trace, trace, "--defence", "front"], "in.parquet: OUT is also IN"),
        (
            ["inspect", tmp_path / "array.npz"],
            "array.npz: not a readable npz file: it is a single array",
        ),
        (["inspect", tmp_path / "late.npz"], "late.npz: column 'time': packet 1 of load 0 in run "),
    ]:
        done = lab(*arguments)
        assert done.returncode == 2, arguments
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1
        assert sorted(tmp_path.iterdir()) == before
    assert lab("convert", lonely, out, "--allow-single").returncode == 0
    assert len(io.read(trace)) == 12


def test_a_link_is_followed_and_stays(trace: Path, tmp_path: Path) -> None:
    link, out = tmp_path / "link.parquet", tmp_path / "out.parquet"
    link.symlink_to(out)
    assert lab("split", trace, link, "--every", "1p").returncode == 0
    assert link.is_symlink()
    assert len(io.read(out)) == 12


def test_a_link_to_an_empty_folder_is_followed(trace: Path, tmp_path: Path) -> None:
    link, out = tmp_path / "link", tmp_path / "out"
    out.mkdir()
    link.symlink_to(out)
    assert lab("convert", trace, link, "--to", "cells").returncode == 0
    assert link.is_symlink()
    assert any(out.iterdir())


def test_more_splits_than_files_may_be_open(trace: Path, tmp_path: Path) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); "
    program = f"{few}from anabranch.cli import main; main()"
    options = ["split", str(trace), str(tmp_path / "o.parquet"), "--every", "1p"]
    call = [sys.executable, "-c", program, *options, "--resplits", "100"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("o.*.parquet"))) == 100


def test_output_that_is_closed_is_no_traceback(trace: Path) -> None:
    program = "from anabranch.cli import main; main()"
    call = ["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-c", program, "inspect", str(trace)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2)


def test_output_that_nobody_takes_is_one_line(trace: Path) -> None:
    call = [sys.executable, "-c", "from anabranch.cli import main; main()", "inspect", str(trace)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "anabranch-lab: standard output: No space left on device\n"


def test_help_cuts_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        done = lab(command, "--help")
        assert (done.returncode, "…" in done.stdout) == (0, False), done.stdout


def test_help_and_version() -> None:
    assert lab("--version").stdout.startswith("anabranch-lab ")
    for done in (lab(), lab("--help")):
        assert (done.returncode, done.stderr) == (0, "")
        assert "evaluate" in done.stdout


def test_no_file_is_overwritten_unasked(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    for command in (
        ["convert", trace, out],
        ["split", trace, out],
        ["defend", trace, out, "--defence", "front"],
    ):
        out.write_bytes(b"mine")
        done = lab(*command)
        assert done.returncode == 2
        assert done.stderr.endswith("it exists: choose another name, or add --replace\n")
        assert out.read_bytes() == b"mine"
        assert lab(*command, "--replace").returncode == 0
        assert len(io.read(out)) == 12
    for replica in range(2):
        out.with_suffix(f".{replica}.parquet").write_bytes(b"mine")
        done = lab("split", trace, out, "--resplits", 2)
        assert done.returncode == 2
        assert f"out.{replica}.parquet: it exists" in done.stderr or replica
        out.with_suffix(f".{replica}.parquet").unlink()


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ([], "follow"),
        (["--schedule", "batched"], "independent"),
        (["--mode", "together"], "together"),
    ],
)
def test_a_split_is_one_of_a_program_unless_asked(
    words: list[str], mode: str, trace: Path, tmp_path: Path
) -> None:
    done = lab("split", trace, tmp_path / "out.parquet", *words)
    assert done.returncode == 0, done.stderr
    schedule = io.read(tmp_path / "out.parquet").facts.schedule
    assert schedule is not None
    assert f"--mode {mode}" in schedule
    warned = "warning: mode together: no program" in done.stderr
    assert warned == (mode == "together")
