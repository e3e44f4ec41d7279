"""`anabranch experiment circumvention` in its short form: a censor, and third-party servers."""

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

PEERS = ("wireguard-go", "wg", "quic-client", "quicgo-server", "quinn-server", "gtlsserver",
         "openssl", "nft")  # fmt: skip
WAYS = {"quic-go": 4, "quinn": 4, "ngtcp2": 4, "tls": 3}
REPETITIONS = 3


@pytest.mark.timeout(600)
def test_a_blocked_server_is_reached_with_its_handshake_by_the_vpn(
    tmp_path: Path, results: Results
) -> None:
    """Direct fetches fail; fetches whose handshake uses the VPN succeed, over the direct path. The
    run is killed and resumed once.
    """
    need(*PEERS)
    experiment = Experiment("circumvention", tmp_path / "circumvention", ["--short"])
    begun = time.monotonic()
    killed = experiment.start()
    experiment.wait_records(2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    done = experiment.records()
    experiment.must()
    results.three_minutes(experiment.name, time.monotonic() - begun)
    records = experiment.records()
    assert records[: len(done)] == done
    units = [record["unit"] for record in records]
    assert len(units) == len(set(units)) == REPETITIONS * sum(WAYS.values())
    for record in records:
        _is_sound(record)
        results.add(
            "experiment circumvention --short", unit=record["unit"],
            first_byte_ms=1000 * record["first_byte"], direct=_direct(record),
        )  # fmt: skip
    rows = pq.read_table(experiment.folder / "circumvention.parquet").to_pylist()
    assert [row["first_byte"] for row in rows] == [record["first_byte"] for record in records]
    assert [row["direct_down"] for row in rows] == [record["direct"][1] for record in records]
    assert "Evading a censor" in (experiment.folder / "circumvention.html").read_text()


def _is_sound(record: dict[str, Any]) -> None:
    """Asserts that a fetch's outcome fits its transport, and that it took at least its round
    trips.
    """
    quic = record["server"] != "tls"
    cut = record["access"] == "direct"
    assert record["through"] != cut, record
    assert (record["censored"] > 0) == cut, record
    if cut:
        assert record["bytes"] == 0, record
        return
    if quic:
        assert record["bytes"] == 10_000_000, record
    # A handshake and a request take two round trips: of 30 ms directly, of 100 ms over the VPN.
    least = 0.06 if record["access"] == "open" else 0.2
    assert least <= record["first_byte"] < least + 2, record
    match record["access"]:
        # Packets of a tunnel that has just started are not part of the fetch.
        case "open":
            assert sum(record["vpn"]) < 1000, record
        case "vpn":
            assert sum(record["direct"]) < 1000, record
        case "handshake":
            assert _direct(record) >= 0.95, record
            assert sum(record["vpn"]) > 5000, "the handshake went by the VPN"


def _direct(record: dict[str, Any]) -> float:
    direct, vpn = float(sum(record["direct"])), float(sum(record["vpn"]))
    return direct / max(direct + vpn, 1)
