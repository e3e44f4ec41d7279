"""``anabranch experiment validation`` in a short form: a small network, measured and simulated."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import Results
from harness.experiment import Experiment, need

pytestmark = pytest.mark.experiments

SIZE = ["--relays", "3", "--clients", "2", "--bulk", "1", "--pause", "1"]
TIME = ["--rounds", "1", "--runs", "1", "--warm-up", "5", "--seconds", "15"]


@pytest.mark.timeout(900)
def test_a_network_is_measured_and_simulated(tmp_path: Path, results: Results) -> None:
    """All downloads arrive in networks of ours, of C tor, and in the simulator, although the run is
    killed and resumed once.
    """
    need("tor")
    words = ["--designs", "tor,stock", *SIZE, *TIME]
    experiment = Experiment("validation", tmp_path / "validation", words)
    begun = time.monotonic()
    killed = experiment.start()
    experiment.wait_records(1)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    done = experiment.records()
    experiment.must()
    results.three_minutes(experiment.name, time.monotonic() - begun)
    records = experiment.records()
    assert records[: len(done)] == done
    names = ["tor × 1, emulated, round 0", "stock × 1, emulated, round 0",
             "tor × 1, simulated, seed 1"]  # fmt: skip
    assert [record["unit"] for record in records] == names
    for record in records:
        assert record["failed"] == 0, record
        assert len(record["relays"]) == 3, record
        assert {one["bulk"] for one in record["transfers"]} == {False, True}, record
        assert all(0 < one["first"] <= one["last"] for one in record["transfers"]), record
        # The kernel counts CPU time in units of 10 ms.
        assert (sum(one["cpu"] for one in record["relays"]) > 0) != record["simulated"], record
        results.add("experiment validation", unit=record["unit"], busy=record["busy"])
    rows = pq.read_table(experiment.folder / "validation.parquet").to_pylist()
    assert len(rows) == sum(len(record["transfers"]) for record in records)
    rows = pq.read_table(experiment.folder / "validation-relays.parquet").to_pylist()
    assert [row["position"] for row in rows] == ["guard", "middle", "exit"] * 3
    page = (experiment.folder / "validation.html").read_text()
    assert "A wide network, measured and simulated" in page
