"""`anabranch experiment overhead` in its short form with third-party programs."""

from __future__ import annotations

import runpy
import signal
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from conftest import Results
from harness.experiment import NOWHERE, Experiment, need
from harness.tools import INTEROP

pytestmark = pytest.mark.experiments

SYSTEMS = ("wireguard", "mosh", "quic-go", "quinn")
PEERS = (
    "wireguard-go", "wg", "mosh-server", "quic-client", "quinn-server", "s2n-server", "gtlsserver",
)  # fmt: skip
# A setting of one download.
ONE = ["--seconds", "2", "--networks", "equal", "--paths", "3", "--every", "never",
       "--repetitions", "1"]  # fmt: skip


@pytest.mark.timeout(600)
def test_a_short_run_is_killed_and_goes_on_to_its_end(tmp_path: Path, results: Results) -> None:
    """All four systems run on both networks; work finished before a SIGKILL is not repeated."""
    need(*PEERS)
    experiment = Experiment("overhead", tmp_path / "overhead", ["--short"])
    mark = str(tmp_path)
    begun = time.monotonic()
    killed = experiment.start(MARK=mark)
    try:
        experiment.wait_records(3)
        assert _left(mark), "a run is found by its mark"
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    done = experiment.records()
    # The kernel needs a moment to kill the processes of the PID namespace.
    deadline = time.monotonic() + 10
    while _left(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _left(mark) == set(), "nothing is left of a killed run"

    experiment.must(MARK=mark)
    results.three_minutes(experiment.name, time.monotonic() - begun)
    records = experiment.records()
    assert records[: len(done)] == done
    units = [record["unit"] for record in records]
    assert len(units) == len(set(units)) == len(SYSTEMS) * 2 * 2
    for record in records:
        _is_sound(record)
        goodput = record["bytes"] * 8e-6 / record["seconds"]
        results.add("experiment overhead --short, Mbit/s", unit=record["unit"], goodput=goodput)
    _table_is_the_same(experiment.folder, records)
    page = (experiment.folder / "overhead.html").read_text()
    assert "What splitting costs" in page
    assert _left(mark) == set()
    # The tunnels' control sockets are in the run's own folder.
    assert not list(Path("/run/wireguard").glob("wg[01].sock"))


def test_the_rest_of_the_peers_can_be_measured(tmp_path: Path) -> None:
    """aioquic, s2n-quic and ngtcp2 are measured in one setting each, added to the same journal."""
    need(*PEERS)
    experiment = Experiment("overhead", tmp_path / "overhead", ONE)
    experiment.must("--peers", "aioquic")
    # Another version of the library counts as another server, even if the script is the same.
    told = experiment.header()["programs"]["aioquic-server"]
    assert told.startswith(f"aioquic {version('aioquic')}, "), told
    added = ["aioquic"]
    for name in ("s2n-quic", "ngtcp2"):
        added.append(name)
        experiment.must("--peers", ",".join(added))
    records = experiment.records()
    assert [record["system"] for record in records] == added
    for record in records:
        _is_sound(record)
    page = (experiment.folder / "overhead.html").read_text()
    assert all(f"QUIC: {name}" in page for name in added)


def test_other_settings_and_missing_programs_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    """Refused are a folder of another run, and a machine without peers; nothing is changed."""
    need(*PEERS)
    experiment = Experiment("overhead", tmp_path / "overhead", ONE)
    experiment.must("--peers", "quinn")
    before = experiment.contents()
    other = experiment.run("--peers", "quinn", "--seed", "9")
    assert other.returncode == 2
    assert "(seed: 1 there, 9 here)" in other.stderr
    assert experiment.contents() == before

    bare = Experiment("overhead", tmp_path / "no")
    missing = bare.run("--peers", "wireguard,quinn", **NOWHERE)
    assert missing.returncode == 2
    for name in ("wireguard-go", "quic-client", "quinn-server", "tests/interop/setup"):
        assert name in missing.stderr
    assert not bare.folder.exists()


def test_a_download_that_was_not_split_is_in_no_median_of_quic() -> None:
    """In ``bench/quic.py`` one of three runs counts, then none."""
    bench = runpy.run_path(str(INTEROP.parents[1] / "bench/quic.py"))
    run, unsplit = bench["Run"], bench["Run"](100.0)
    split = run(60.0, (0.3, 0.3, 0.4), 80, 8.0)
    others = [run(95.0, (0.9, 0.05, 0.05), 80, 8.0), run(90.0, (0.5, 0.49, 0.01), 80, 8.0)]
    pairs = [(unsplit, each) for each in (split, *others)]
    row = ["1/3", "60.0 (60.0-60.0)", "0.60 (0.60-0.60)", "0.01-0.90", "100"]
    assert bench["row"]("naive", pairs) == ["naive", *row]
    assert bench["judge"](pairs, 0.8) == "MISSED"
    assert bench["judge"](pairs, 0.5) == "ok"
    assert bench["row"]("naive", pairs[1:])[1:4] == ["0/2", "-", "-"]
    assert bench["judge"](pairs[1:], 0.5) == "NOT SPLIT"


def _is_sound(record: dict[str, Any]) -> None:
    """Asserts that a run carried bytes within 20 s, over all paths if split and otherwise over
    one.
    """
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


def _left(mark: str) -> set[str]:
    """Returns the processes on this machine with ``mark`` in their environment."""
    alive = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                alive.add((process / "comm").read_text().strip())
        except OSError:  # it has ended
            continue
    return alive
