"""A client with two interfaces that uses a bridge: stock tor in a namespace, all packets split.

This is the topology of HyWF (PoPETs 2020) and of multi-homed clients of a bridge: ``anabranch
merge --tun`` runs on the bridge's side, so that the bridge and the client's tor are unmodified.
Lines are slow, so that the machine is not the limit.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import farend
from harness.capture import Tcpdump
from harness.fair import difference
from harness.farend import FarEnd
from harness.interface import OURS, TUN
from harness.net import SERVER, Host, Link, Network
from harness.seeded import MIB, seeded_bytes
from harness.splitter import Splitter
from harness.tools import Background, tool
from harness.tornet import Node, TorNetwork, free_ports
from harness.webfiles import FileServer

pytestmark = [pytest.mark.stream_paths, pytest.mark.timeout(900)]

LINES = [Link("p0", rate="8mbit", delay="20ms"), Link("p1", rate="8mbit", delay="30ms")]
FAR = f"far{os.getpid() % 1_000_000}"
# Addresses of the ends of the cable between the far end's machine and the bridge's.
BRIDGE, BESIDE = "198.18.77.1", "198.18.77.2"
SOCKS = 9050
LENGTH, SMALL, SMALL_FETCHES = 3 * MIB, 1_000, 10
# Minimum share of one of two paths with random shares, in downloads of some hundred runs.
LEAST_SHARE = 0.1
#: Schedules that are compared: name, schedule, length of runs, interfaces.
ARMS = {
    "one interface": ("uniform", "~10p", 1),
    "two, HyWF's schedule": ("hywf", "~20p", 2),
    "two, ours": ("uniform", "~10p", 2),
}
CLIENT = """\
TestingTorNetwork 1
DataDirectory {folder}
SocksPort 127.0.0.1:{socks}
ClientOnly 1
ClientRejectInternalAddresses 0
ShutdownWaitLength 0
LearnCircuitBuildTimeout 0
UseBridges 1
Bridge {bridge}:{port} {fingerprint}
Log notice file {folder}/log
"""


@dataclass
class World:
    """A stock tor behind a splitter whose only route out is the far end."""

    network: Network
    splitter: Splitter
    inside: Host

    def fetch(self, server: FileServer, length: int, into: Path) -> tuple[float, float]:
        """Downloads seeded bytes through tor; returns the seconds to the first and to the last
        byte.
        """
        command = ["curl", "-sSf", "--noproxy", "", "--proxy", f"socks5h://127.0.0.1:{SOCKS}"]
        command += ["-m", "120", "-o", str(into), "-w", "%{time_starttransfer} %{time_total}"]
        told = self.inside.must([*command, server.url(length)], timeout=130)
        assert into.read_bytes() == seeded_bytes(length)
        first, total = (float(word) for word in told.split())
        return first, total


@pytest.fixture(scope="module")
def bridge(stock_tor: TorNetwork) -> Node:
    """Returns a stock bridge, which also listens at the cable's end when the cable exists."""
    (port,) = free_ports(1)
    # The address exists only while the test's cable is connected.
    _must(["ip", "address", "add", f"{BRIDGE}/32", "dev", "lo"])
    try:
        node = stock_tor.bridge("home", f"ORPort {BRIDGE}:{port} NoAdvertise")
    finally:
        _must(["ip", "address", "del", f"{BRIDGE}/32", "dev", "lo"])
    return node


def _must(words: Sequence[str]) -> None:
    subprocess.run([tool(words[0]), *words[1:]], check=True, capture_output=True)


@contextmanager
def _cable(server: Host) -> Iterator[None]:
    """Connects the far end's machine with the bridge's, and forwards packets as in the guide."""
    name = f"br{os.getpid() % 1_000_000}"
    assert server.netns, "a host of the network"
    _must(["ip", "link", "add", name, "type", "veth", "peer", "name", "br0"])
    try:
        _must(["ip", "link", "set", "br0", "netns", server.netns])
        _must(["ip", "address", "add", f"{BRIDGE}/30", "dev", name])
        _must(["ip", "link", "set", name, "up"])
        server.must(["ip", "address", "add", f"{BESIDE}/30", "dev", "br0"])
        server.must(["ip", "link", "set", "br0", "up"])
        server.must(["sysctl", "-qw", "net.ipv4.ip_forward=1"])
        server.must(["nft", "add", "table", "ip", "far"])
        nat = "{ type nat hook postrouting priority srcnat; }"
        server.must(["nft", "add", "chain", "ip", "far", "out", nat])
        rule = f"ip saddr 100.64.0.0/10 oifname != {FAR} masquerade"
        server.must(["nft", "add", "rule", "ip", "far", "out", *rule.split()])
        yield
    finally:
        _must(["ip", "link", "del", name])


@contextmanager
def _tor(host: Host, folder: Path, network: TorNetwork, bridge: Node) -> Iterator[Background]:
    """Runs a stock tor on ``host`` that uses only the bridge."""
    folder.mkdir(mode=0o700)
    port = next(line for line in bridge.options if line.startswith("ORPort")).split()[1]
    text = CLIENT.format(
        folder=folder, socks=SOCKS, bridge=BRIDGE, port=port.rpartition(":")[2],
        fingerprint=bridge.fingerprint,
    )  # fmt: skip
    (folder / "torrc").write_text(text + "\n".join(network.authorities) + "\n")
    (folder / "empty").touch()
    words = ["tor", "-f", str(folder / "torrc"), "--defaults-torrc", str(folder / "empty")]
    with host.start([*words, "--quiet"]) as tor:
        log = folder / "log"

        def is_ready() -> bool:
            return log.exists() and "Bootstrapped 100%" in log.read_text()

        tor.wait_until("Bootstrapped 100%", is_ready, 120)
        yield tor


@contextmanager
def _world(
    network: Network, folder: Path, tor: TorNetwork, bridge: Node, arm: str
) -> Iterator[World]:
    schedule, every, interfaces = ARMS[arm]
    folder.mkdir()
    far_key, home_key = farend.make_keys(folder)
    with ExitStack() as stack:
        far = FarEnd(
            network.server, None, far_key, every=every, schedule=schedule, options=["--tun", FAR]
        )
        stack.enter_context(far)
        stack.enter_context(_cable(network.server))
        splitter = Splitter(
            network.client, f"{SERVER}:{farend.PORT}", [f"p{i}=if:p{i}" for i in range(interfaces)],
            every=every, schedule=schedule, listen=None,
            options=["--tun", TUN, "--netns", OURS, "--route", "--key", str(home_key)],
        )  # fmt: skip
        stack.enter_context(splitter)
        splitter.wait_event("far_end", state="up")
        inside = Host("inside", f"/run/netns/{OURS}")
        stack.enter_context(_tor(inside, folder / "tor", tor, bridge))
        yield World(network, splitter, inside)


def test_a_stock_tor_reaches_its_bridge_by_both_interfaces(
    make_network: MakeNetwork,
    stock_tor: TorNetwork,
    bridge: Node,
    tmp_path: Path,
    results: Results,
) -> None:
    """Downloads over two interfaces and over one are intact; both carry, and show only packets to
    the far end.
    """
    network = make_network(LINES)
    with FileServer() as server:
        for arm, (_, _, interfaces) in ARMS.items():
            folder = tmp_path / arm.replace(" ", "-").replace(",", "").replace("'", "")
            with ExitStack() as stack:
                others = f"ip and not udp port {farend.PORT}"
                seen = [
                    stack.enter_context(
                        Tcpdump(network.client, link.name, tmp_path / "other.pcap", others)
                    )
                    for link in LINES
                ]
                world = stack.enter_context(_world(network, folder, stock_tor, bridge, arm))
                world.fetch(server, SMALL, folder / "got")
                before = network.stats()
                first, total = world.fetch(server, LENGTH, folder / "got")
                carried = difference(network.stats(), before)
                downs = [carried[f"p{i}"].down_bytes for i in range(interfaces)]
                assert min(downs) / sum(downs) > LEAST_SHARE, carried
                fetches = [
                    world.fetch(server, SMALL, folder / "got")[0] for _ in range(SMALL_FETCHES)
                ]
                for capture in seen:
                    capture.stop()
                    assert capture.captured == 0, "something left beside the far end"
            results.add(
                "Stock tor before its bridge, lines of 8 Mbit/s", arm=arm,
                Mbits=LENGTH * 8e-6 / (total - first),
                first_byte_ms=statistics.median(fetches) * 1e3,
            )  # fmt: skip
