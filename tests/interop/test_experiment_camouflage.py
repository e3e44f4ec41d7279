"""``anabranch experiment camouflage`` in a short form: downloads over some transports, streams
over more.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from conftest import Results
from harness.experiment import Experiment, need

pytestmark = pytest.mark.experiments

PEERS = ("tor", "obfs4proxy", "webtunnel-client", "webtunnel-server", "nginx")
ALL = ["--rates", "50", "--seconds", "3", "--rtts", "100"]
DOWNLOADS = [*ALL, "--arms", "direct,webtunnel,http-opaque", "--rounds", "1",
             "--bare-rounds", "1", "--stream-rounds", "0"]  # fmt: skip
STREAMS = [*ALL, "--arms", "tor,obfs4,nosteg", "--rounds", "0", "--bare-rounds", "0",
           "--stream-rounds", "1"]  # fmt: skip
# : Of a second, at 5.6 Mbit/s, and what lies before a program's answer: two round trips of 85 ms.
MOST_KB, LEAST_S = 700, 0.17


@pytest.mark.timeout(900)
def test_all_arrives_by_every_way_and_what_crosses_the_line_is_counted(
    tmp_path: Path, results: Results
) -> None:
    """All downloads and streams arrive intact; the line carries at least their bytes. The run is
    killed and resumed once.
    """
    need(*PEERS)
    folder = tmp_path / "camouflage"
    downloads = Experiment("camouflage", folder, DOWNLOADS)
    begun = time.monotonic()
    killed = downloads.start()
    downloads.wait_records(1)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    done = downloads.records()
    downloads.must()
    streams = Experiment("camouflage", folder, STREAMS)
    streams.must()
    results.three_minutes("camouflage", time.monotonic() - begun)
    records = streams.records()
    assert records[: len(done)] == done
    ways = ("direct", "webtunnel", "http-opaque")
    wanted = {f"downloads/{way}/0" for way in ways} | {"bare/http-opaque/0"}
    wanted |= {f"streams/{way}/100/0" for way in ("tor", "obfs4", "nosteg")}
    assert {record["unit"] for record in records} == wanted
    for record in records:
        assert record["error"] == "", record
        _is_sound(record, results)
    rows = pq.read_table(folder / "camouflage.parquet").to_pylist()
    assert len(rows) == 3 * 13 + 4
    assert sum(row["bare"] for row in rows) == 4
    assert pq.read_table(folder / "camouflage-streams.parquet").num_rows == 3 * 3
    page = (folder / "camouflage.html").read_text()
    assert "goodput, kB/s" in page
    assert "StegoTorus" in page
    assert "cannot be judged: too few rounds" in page, "one round meets no bar"


def _is_sound(record: dict[str, Any], results: Results) -> None:
    """Asserts that the line carried more bytes than arrived, and less than twice that."""
    for download in record["downloads"]:
        assert download["whole"] > LEAST_S, record
        assert download["bytes"] / download["whole"] < 1000 * MOST_KB, record
        assert 1.02 < download["down"] / download["bytes"] < 2, record
        assert download["up"] < download["bytes"] / 2, record
    for stream in record["streams"]:
        assert stream["whole"] >= 3, record
        assert len(stream["down"]) == 3, record
        assert sum(stream["down"]) > sum(stream["came"]) > 0, record
    long = [one for one in record["downloads"] if one["bytes"] == 1_000_000]
    if record["what"] == "bare":
        assert all(one["down"] < 1.2 * one["bytes"] for one in long), record
    for one in long[:1]:
        results.add("experiment camouflage", unit=record["unit"],
                    kb_s=one["bytes"] / 1000 / one["whole"], down=one["down"])  # fmt: skip
