"""The simulated designs become rows of docs/results/designs.parquet."""

from __future__ import annotations

import json
import runpy
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "lab/results/designs.py"))


def test_each_design_is_a_scenario_of_its_own() -> None:
    arms = SCRIPT["arms"]()
    scenarios = {arm.name: tomllib.loads(arm.scenario()) for arm in arms}
    assert len(scenarios) == len(arms) == 16
    assert scenarios["tor-1"]["clients"].keys() == {"web", "pause", "bulk", "legs"}
    assert scenarios["mtor-3"]["congestion-control"] == "fixed"
    assert scenarios["mudp-or-turns-2"]["clients"]["udp-or-congestion"] == "cubic"


def test_a_sweep_becomes_medians_of_its_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    times = [(0.1, 0.5), (0.3, 0.9), (0.2, float("nan"))]
    downloads = [
        {"network": 2, "seed": 1, "load": load, "complete": last == last}
        | {"time_to_first_byte": first, "time_to_last_byte": last}
        for load in ("web", "bulk")
        for first, last in times
    ]
    pq.write_table(pa.Table.from_pylist(downloads), tmp_path / "runs/mtor-2-n2-s1.parquet")
    lines = [{"program": "x"}, {"unit": "mtor-2-n2-s1", "hash": "abc"}]
    (tmp_path / "units.jsonl").write_text("\n".join(map(json.dumps, lines)))
    web, bulk = SCRIPT["rows"](tmp_path)
    assert (web["design"], web["legs"], web["network"], web["hash"]) == ("mtor", 2, 2, "abc")
    assert (web["downloads"], web["failed"]) == (3, 1)
    assert (web["first_byte"], web["last_byte"]) == (pytest.approx(0.2), pytest.approx(0.7))
    assert bulk["load"] == "bulk"


def test_the_committed_rows_are_those_of_the_script() -> None:
    rows = pq.read_table(ROOT / "docs/results/designs.parquet").to_pylist()
    found = {(row["design"], row["legs"], row["network"], row["load"]) for row in rows}
    networks = range(1, SCRIPT["NETWORKS"] + 1)
    assert found == {
        (arm.design, arm.legs, network, load)
        for arm in SCRIPT["arms"]()
        for network in networks
        for load in ("web", "bulk")
    }
    assert all(row["downloads"] - row["failed"] >= 5 for row in rows)
