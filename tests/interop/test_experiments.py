"""`anabranch experiment overhead` in its short form, with strangers' software: killed, gone on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from conftest import Results
from harness.net import namespaces_allowed
from harness.tools import MissingPeer, anabranch, tool

pytestmark = pytest.mark.experiments

SYSTEMS = ("wireguard", "mosh", "quic-go", "quinn")


@pytest.mark.timeout(600)
def test_a_short_run_is_killed_and_goes_on_to_its_end(tmp_path: Path, results: Results) -> None:
    """All four systems on both networks; what was done before a SIGKILL is not done again."""
    _need()
    folder = tmp_path / "overhead"
    mark = str(tmp_path)
    killed = _start(folder, mark)
    try:
        _wait_lines(folder / "units.jsonl", 3)
        assert _left(mark), "a run is found by its mark"
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    done = _records(folder)
    # The kernel needs a moment to end what lived in the PID namespace.
    deadline = time.monotonic() + 10
    while _left(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _left(mark) == set(), "nothing is left of a killed run"

    _must(folder, MARK=mark)
    records = _records(folder)
    assert records[: len(done)] == done
    units = [record["unit"] for record in records]
    assert len(units) == len(set(units)) == len(SYSTEMS) * 2 * 2
    for record in records:
        _is_sound(record)
        goodput = record["bytes"] * 8e-6 / record["seconds"]
        results.add("experiment overhead --short, Mbit/s", unit=record["unit"], goodput=goodput)
    _table_is_the_same(folder, records)
    page = (folder / "overhead.html").read_text()
    assert "What splitting costs" in page
    assert _left(mark) == set()
    # The tunnels' control sockets are in a folder of the run's own.
    assert not list(Path("/run/wireguard").glob("wg[01].sock"))


def test_the_rest_of_the_peers_can_be_measured(tmp_path: Path) -> None:
    """ngtcp2 and aioquic, a setting each; a journal grows by further settings."""
    _need()
    folder = tmp_path / "overhead"
    form = ["--seconds", "2", "--networks", "equal", "--paths", "3", "--every", "never"]
    _must(folder, *form, "--repetitions", "1", "--peers", "ngtcp2", short=False)
    _must(folder, *form, "--repetitions", "1", "--peers", "ngtcp2,aioquic", short=False)
    records = _records(folder)
    assert [record["system"] for record in records] == ["ngtcp2", "aioquic"]
    for record in records:
        _is_sound(record)


def test_other_settings_and_missing_programs_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    """A folder of another run; a machine without peers."""
    _need()
    folder = tmp_path / "overhead"
    form = ["--seconds", "2", "--networks", "equal", "--paths", "3", "--every", "never"]
    _must(folder, *form, "--repetitions", "1", "--peers", "quinn", short=False)
    before = _contents(folder)
    other = _run(folder, *form, "--peers", "quinn", "--seed", "9", short=False)
    assert other.returncode == 2
    assert "(seed: 1 there, 9 here)" in other.stderr
    assert _contents(folder) == before

    nowhere = {"PATH": "/nowhere", "HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere"}
    missing = _run(tmp_path / "no", "--peers", "wireguard,quinn", short=False, **nowhere)
    assert missing.returncode == 2
    for name in ("wireguard-go", "quic-client", "quinn-server", "tests/interop/setup"):
        assert name in missing.stderr
    assert not (tmp_path / "no").exists()


def _is_sound(record: dict[str, Any]) -> None:
    """It carried something, by all paths if it was to be split, in a time that was its own."""
    assert record["bytes"] > 0, record
    assert record["error"] == "", record
    assert record["seconds"] < 20
    split = record["every"] != 0
    used = [path for path, size in enumerate(record["down"]) if size > 20_000]
    assert len(used) == (record["paths"] if split else 1), record


def _table_is_the_same(folder: Path, records: list[dict[str, Any]]) -> None:
    table = pq.read_table(folder / "overhead.parquet")
    assert table.schema.metadata[b"anabranch.experiment"] == b"overhead"
    rows = table.to_pylist()
    assert [row["bytes"] for row in rows] == [record["bytes"] for record in records]
    for row, record in zip(rows, records, strict=True):
        assert (row["system"], row["network"]) == (record["system"], record["net"])
        assert row["goodput"] == pytest.approx(record["bytes"] * 8e-6 / record["seconds"])
        assert [row[f"p{n}_down"] for n in range(3)] == record["down"]


def _need() -> None:
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    for name in ("wireguard-go", "wg", "mosh-server", "quic-client", "quinn-server", "gtlsserver"):
        tool(name)


def _command(folder: Path, *words: str, short: bool) -> list[str]:
    return [
        anabranch(),
        "experiment",
        "overhead",
        str(folder),
        *(["--short"] if short else []),
        *words,
    ]


def _start(folder: Path, mark: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "MARK": mark}
    command = _command(folder, short=True)
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


def _run(
    folder: Path, *words: str, short: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(folder, *words, short=short),
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip


def _must(folder: Path, *words: str, short: bool = True, **environment: str) -> None:
    done = _run(folder, *words, short=short, **environment)
    assert done.returncode == 0, done.stderr


def _records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "units.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def _wait_lines(file: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while not file.exists() or file.read_text().count("\n") <= count:
        assert time.monotonic() < deadline, "no measurement is done"
        time.sleep(0.1)


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def _left(mark: str) -> set[str]:
    """The processes on this machine that have ``mark`` in their environment."""
    alive = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                alive.add((process / "comm").read_text().strip())
        except OSError:  # it has ended
            continue
    return alive
