"""``anabranch experiment circuits`` in a short form: our network and a stock one, under load."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import Results
from harness.experiment import Experiment, need

pytestmark = pytest.mark.experiments

WORDS = ["--designs", "tor,mtor,anabranch,stock", "--legs", "2"]
LOAD = ["--rounds", "1", "--repetitions", "6", "--clients", "6", "--pauses", "2,4"]
#: Minimum round-trip time over lines: no first byte arrives earlier.
LINES_S = 0.02


@pytest.mark.timeout(900)
def test_designs_are_measured_in_networks_of_ours_and_of_stock_tors(
    tmp_path: Path, results: Results
) -> None:
    """All pages and downloads arrive intact, in each place, although the run is killed and resumed
    once.
    """
    need("tor")
    experiment = Experiment("circuits", tmp_path / "circuits", [*WORDS, *LOAD])
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
    kinds = [("tor", 1), ("mtor", 2), ("anabranch", 2), ("stock", 1)]
    wanted = {f"{name}/{legs}/{at}/0" for name, legs in kinds for at in ("loopback", "lines")}
    assert {record["unit"] for record in records} == wanted
    for record in records:
        assert record["failed"] == record["load_failed"] == 0, record
        assert len(record["repetitions"]) == 6, record
        # The kernel counts a relay's CPU time in units of 10 ms.
        assert sum(record["cpu"]) > 0, record
        for one in record["repetitions"]:
            assert 0 < one["first_byte"] <= one["web"], record
            # Over lines, no byte arrives before the round-trip time.
            assert record["place"] == "loopback" or one["first_byte"] > LINES_S, record
        results.add(
            "experiment circuits", unit=record["unit"],
            web_ms=1000 * min(one["web"] for one in record["repetitions"]),
        )  # fmt: skip
    rows = pq.read_table(experiment.folder / "circuits.parquet").to_pylist()
    assert len(rows) == 6 * len(wanted)
    page = (experiment.folder / "circuits.html").read_text()
    assert "Several circuits for one stream" in page
    assert "C tor" in page


@pytest.mark.timeout(600)
def test_loading_clients_use_the_circuits_of_the_client_that_measures(
    tmp_path: Path, results: Results
) -> None:
    """The loading clients use only the relays of the measuring client's circuits; with no load
    they fetch nothing.
    """
    words = ["--designs", "tor,mtor", "--legs", "2", "--places", "line", "--load", "employed"]
    load = ["--levels", "0,58", "--rounds", "1", "--repetitions", "4", "--clients", "6"]
    experiment = Experiment("circuits", tmp_path / "circuits", [*words, *load])
    experiment.must()
    records = {record["unit"]: record for record in experiment.records()}
    assert set(records) == {f"{name}/line/{level}/0" for name in ("tor/1", "mtor/2")
                            for level in (0, 58)}  # fmt: skip
    own = 4 * ((320 << 10) + (1 << 20))
    for unit, record in records.items():
        assert (record["load"], record["failed"], record["load_failed"]) == ("employed", 0, 0), unit
        legs = record["legs"]
        for position in (0, 3):
            busy, idle = (record["cpu"][position : position + legs],
                          record["cpu"][position + legs : position + 3])  # fmt: skip
            # The kernel counts CPU time in units of 10 ms. Relays without a circuit do
            # housekeeping.
            assert min(busy) >= max(idle), (unit, record["cpu"])
            assert sum(idle) < 0.5 * sum(busy), (unit, record["cpu"])
        assert (record["bytes"] == own) == (record["level"] == 0), (unit, record["bytes"])
        results.add("experiment circuits", unit=unit, cpu=record["cpu"][0])
    rows = pq.read_table(experiment.folder / "circuits.parquet").to_pylist()
    assert {row["circuits"] for row in rows} == {"employed"}
    assert {row["level"] for row in rows} == {0.0, 58.0}
    page = (experiment.folder / "circuits.html").read_text()
    assert "line at 58 %" in page
    assert "line, idle" in page
