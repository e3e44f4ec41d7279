"""Reload of the configuration (SIGHUP) during a transfer: one path is added, another removed."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness.capture import Tcpdump
from harness.fair import difference
from harness.net import SERVER, links
from harness.seeded import MIB
from harness.splitter import Splitter
from harness.tools import wait_for
from harness.wireguard import PORT, Tunnel

pytestmark = pytest.mark.operate

LENGTH = 25 * MIB
# Number of packets on a path after which the transfer counts as established.
UNDER_WAY = 1000


def _settings(*paths: str) -> str:
    return "".join(f'[[path]]\nname = "{path}"\ninterface = "{path}"\n' for path in paths)


def test_a_download_goes_on_while_a_path_is_added_and_another_removed(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path
) -> None:
    """The hash is right, the new path carries, the old path stops, and the kept path keeps its
    port.
    """
    network = make_network(links(3, rate="50mbit"))
    file = tmp_path / "split.toml"
    file.write_text(_settings("p0", "p1"))
    with (
        Splitter(network.client, f"{SERVER}:{PORT}", [], options=[str(file)]) as splitter,
        Tunnel(network.server, network.client, splitter.listen) as tunnel,
        Tcpdump(network.client, "p1", tmp_path / "p1.pcap") as kept,
        tunnel.server.web(web_root / "site"),
        ThreadPoolExecutor() as pool,
    ):
        tunnel.ping()
        download = pool.submit(tunnel.download, LENGTH)
        begun = network.stats()["p0"].down_packets + UNDER_WAY
        wait_for("the first path to carry", lambda: network.stats()["p0"].down_packets > begun)
        file.write_text(_settings("p1", "p2"))
        splitter.send(signal.SIGHUP)
        about = splitter.wait_event("reloaded")
        assert [path["name"] for path in about["paths"]] == ["p1", "p2"]
        # Allowed are packets in flight to the old address, and the answer to the packet that moved
        # the server.
        wait_for("the new path to carry", lambda: network.stats()["p2"].down_packets > UNDER_WAY)
        before = network.stats()
        assert not download.result().fault(LENGTH)
        carried = difference(network.stats(), before)
        packets = kept.stop()
        summary = splitter.stop()
    assert (carried["p0"].up_packets, carried["p0"].down_packets) == (0, 0)
    for name in ("p1", "p2"):
        assert min(carried[name].up_packets, carried[name].down_packets) > UNDER_WAY / 4
    sent = {packet.source for packet in packets if packet.is_to_port(PORT)}
    assert len(sent) == 1, "the server sees one address and port of the path that stays"
    assert summary["removed"]["down_packets"] > UNDER_WAY
    assert not splitter.of("path"), "no path went down"
    assert summary["sessions"] == 1
