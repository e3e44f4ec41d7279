"""``anabranch experiment unordered`` in a short form: three relays, and a link alone."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import Results
from harness.experiment import Experiment, need

pytestmark = pytest.mark.experiments

ARMS = ("stock", "tls", "utls", "cells")
# : Links that are measured against ours.
OTHERS = ("quic", "tls-per-circuit", "mptcp")
LINES = ["--losses", "5", "--directions", "from-exit", "--deviations", "0", "--congestions", "bbr"]
SIZE = ["--rounds", "1", "--downloads", "8", "--seconds", "20", "--cut", "120"]
LINE = "5-from-exit/0/bbr/0"
# : From a SOCKS request to the last byte: by three lines of 50 ms, there and back, twice.
LEAST_S = 0.6


@pytest.mark.timeout(900)
def test_downloads_end_and_records_are_opened_before_their_turn(
    tmp_path: Path, results: Results
) -> None:
    """All downloads arrive intact over every kind of link. The run is killed and resumed once."""
    need("tor")
    words = ["--arms", ",".join(ARMS), *LINES, *SIZE]
    experiment = Experiment("unordered", tmp_path / "unordered", words)
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
    units = {record["arm"]: record for record in records}
    wanted = {f"{arm}/{LINE}" for arm in ARMS}
    assert {record["unit"] for record in records} == wanted
    for arm in ARMS[:3]:
        record = units[arm]
        times = [one["whole"] for one in record["downloads"]]
        assert len(times) == 8, record
        assert record["error"] == "", record
        assert min(times) > LEAST_S, record
        assert sum(record["cpu"]) > 0, record
        results.add("experiment unordered", unit=record["unit"], last_s=max(times))
    assert units["utls"]["early_records"] > 0
    cells = units["cells"]["cells"]
    assert cells["came"] == cells["wanted"] == 4_000
    assert cells["unordered"]["mean"] <= cells["by_circuit"]["mean"] < cells["in_order"]["mean"]
    results.add("experiment unordered: cells", in_order_ms=cells["in_order"]["mean"],
                by_circuit_ms=cells["by_circuit"]["mean"])  # fmt: skip
    rows = pq.read_table(experiment.folder / "unordered.parquet").to_pylist()
    assert len(rows) == 3 * 8
    assert pq.read_table(experiment.folder / "unordered-cells.parquet").num_rows == 1
    page = (experiment.folder / "unordered.html").read_text()
    assert "Completed downloads over time" in page
    assert "C tor" in page


@pytest.mark.timeout(900)
def test_links_that_are_measured_against_ours_carry_the_downloads(
    tmp_path: Path, results: Results
) -> None:
    """QUIC links, a link for each circuit, and MPTCP: a unit fails if circuits use another kind of
    link.
    """
    need()
    words = ["--arms", ",".join(OTHERS), *LINES, *SIZE]
    experiment = Experiment("unordered", tmp_path / "unordered", words)
    begun = time.monotonic()
    experiment.must()
    results.three_minutes(experiment.name, time.monotonic() - begun)
    units = {record["arm"]: record for record in experiment.records()}
    assert set(units) == set(OTHERS)
    for record in units.values():
        times = [one["whole"] for one in record["downloads"]]
        assert len(times) == 8, record
        assert record["error"] == "", record
        assert min(times) > LEAST_S, record
        results.add("experiment unordered", unit=record["unit"], last_s=max(times))
    page = (experiment.folder / "unordered.html").read_text()
    for arm in ("ours, QUIC", "ours, one link per circuit", "ours, MPTCP, two lines"):
        assert arm in page
    assert "twice the rate" in page, "what two lines cannot be compared with is told"
