"""The output of ``--metrics``, read by Prometheus's Python parser and compared with ``--json``."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import MakeNetwork
from harness.net import SERVER, links
from harness.seeded import MIB
from harness.splitter import Splitter, interfaces
from harness.tools import MissingPeer
from harness.wireguard import PORT, Tunnel

pytestmark = pytest.mark.operate

LENGTH = 25 * MIB
ADDRESS = "127.0.0.1:9464"
# Key in a path's statistics, mapped to the sample and its further labels.
SAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    "up_packets": ("anabranch_path_packets_total", {"direction": "up"}),
    "down_packets": ("anabranch_path_packets_total", {"direction": "down"}),
    "up_bytes": ("anabranch_path_bytes_total", {"direction": "up"}),
    "down_bytes": ("anabranch_path_bytes_total", {"direction": "down"}),
    "switches": ("anabranch_path_switches_total", {}),
    "copies": ("anabranch_path_copies_total", {}),
    "refused": ("anabranch_path_refused_total", {}),
    "silent_sessions": ("anabranch_path_silent_sessions", {}),
}


def test_a_strict_parser_reads_what_the_events_tell(
    make_network: MakeNetwork, web_root: Path
) -> None:
    """After a download over three paths, every number of the metrics equals that of the events."""
    parser = _parser()
    network = make_network(links(3))
    with Splitter(
        network.client, f"{SERVER}:{PORT}", interfaces(3), options=["--metrics", ADDRESS]
    ) as splitter:
        with Tunnel(network.server, network.client, splitter.listen) as tunnel:
            tunnel.ping()
            with tunnel.server.web(web_root / "site"):
                assert not tunnel.download(LENGTH).fault(LENGTH)
        stats = _in_the_quiet(splitter)
        accept = "Accept: application/openmetrics-text"
        page = network.client.must(["curl", "-sSf", "-H", accept, f"http://{ADDRESS}/metrics"])
        samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(page)
            for sample in family.samples
        }
    for path in stats["paths"]:
        for member, (name, labels) in SAMPLES.items():
            key = frozenset({"path": path["name"], **labels}.items())
            assert samples[name, key] == path[member], (name, labels)
        assert path["up_packets"] > 100
        for reason, count in path["drops"].items():
            key = frozenset({"path": path["name"], "reason": reason}.items())
            assert samples["anabranch_path_drops_total", key] == count
        rtt = samples["anabranch_path_rtt_seconds", frozenset({("path", path["name"])})]
        assert rtt * 1000 == pytest.approx(path["rtt_ms"])
    assert samples["anabranch_sessions", frozenset()] == stats["sessions"]
    assert samples["anabranch_sessions_opened_total", frozenset()] == len(splitter.of("opened"))
    assert 0 < samples["process_cpu_seconds_total", frozenset()] < 60
    assert samples["process_open_fds", frozenset()] > 3
    assert samples["process_resident_memory_bytes", frozenset()] > MIB
    assert "10.77." not in page
    assert SERVER not in page


def _parser() -> Any:
    try:
        return importlib.import_module("prometheus_client.openmetrics.parser")
    except ImportError as error:
        wanted = "prometheus_client; tests/interop/setup --area operate installs it"
        raise MissingPeer(wanted) from error


def _in_the_quiet(splitter: Splitter) -> dict[str, Any]:
    """Returns statistics that did not change for a while."""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        time.sleep(1.2)
        latest = splitter.of("stats")[-2:]
        if len(latest) == 2 and latest[0]["paths"] == latest[1]["paths"]:
            return latest[1]
    raise TimeoutError("datagrams go on without a tunnel")
