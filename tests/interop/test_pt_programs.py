"""Our transport under common programs: Arti, a browser, and a long download."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Results
from harness.arti import Arti
from harness.seeded import MIB, seeded_bytes
from harness.tools import anabranch, wait_for
from harness.tornet import Node, TorNetwork, free_ports
from harness.torours import OurRelay, network_of_ours
from harness.webfiles import FileServer, SiteServer, fetch
from harness.website import load_by_proxy

pytestmark = [pytest.mark.pt, pytest.mark.timeout(900)]

PROFILES = ("http-opaque", "http-text", "nosteg-short")
LONG = 50 * MIB
OBJECTS, HEIGHT = 50, 32
RELAYS = 4
UP_S = 180.0


@dataclass
class World:
    """A network of ours with a bridge, which has our transport inside, for each profile."""

    network: TorNetwork
    relays: list[OurRelay]
    bridges: dict[str, OurRelay]

    def line(self, profile: str) -> str:
        """Returns the bridge line of this profile."""
        lines = (self.bridges[profile].data / "bridgelines.txt").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("anabranch ")]
        return line

    def stock(self, name: str, profile: str) -> Node:
        """Returns a stock client that uses only the bridge of this profile."""
        plugin = f"ClientTransportPlugin anabranch exec {anabranch()} pt client"
        told = ["UseBridges 1", f"Bridge {self.line(profile)}", "ConfluxEnabled 0", plugin]
        return self.network.client(name, *told)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields the running network, with a site behind the bridges' HTTP servers."""
    folder = tmp_path_factory.mktemp("tor")
    site = folder / "site"
    site.mkdir()
    (site / "index.html").write_bytes(seeded_bytes(300_000))
    with ExitStack() as stack:
        network, relays = network_of_ours(folder, stack, RELAYS)
        network.start()
        front = stack.enter_context(SiteServer(site))
        bridges = {}
        for profile in PROFILES:
            (port,) = free_ports(1)
            told = f"anabranch 127.0.0.1:{port} profile={profile} site=127.0.0.1:{front.port}"
            bridge = OurRelay(
                network, folder / profile, f"to{profile.replace('-', '')}", "--bridge", "--pt", told
            )
            bridges[profile] = stack.enter_context(bridge)
            lines = bridge.data / "bridgelines.txt"
            told_all = lambda file=lines: file.exists() and "anabranch" in file.read_text()  # noqa: E731
            bridge.process.wait_until("its lines", told_all, 30.0)
        yield World(network, relays, bridges)


@pytest.mark.parametrize("profile", PROFILES)
def test_fifty_mebibytes_arrive_by_hash(
    world: World, tmp_path: Path, results: Results, profile: str
) -> None:
    """A stock client downloads 50 MiB intact in one stream."""
    node = world.stock(f"long{PROFILES.index(profile)}", profile)
    with FileServer() as server:
        got = fetch(server.url(LONG), node.proxy, tmp_path / "got", 600.0)
        assert not got.fault(LONG), got.fault(LONG)
    results.add("50 MiB through our transport", profile=profile, seconds=f"{got.seconds:.1f}")
    node.close()


def test_chromium_loads_a_page_of_fifty_objects(
    world: World, tmp_path: Path, results: Results
) -> None:
    """Through a stock client and http-opaque, every picture arrives intact."""
    node = world.stock("browser", "http-opaque")
    proxy = node.proxy.rpartition("/")[2]
    # Our exits use this machine's resolver, which cannot resolve names of the private network.
    took = load_by_proxy(tmp_path / "site", proxy, OBJECTS, HEIGHT, host="127.0.0.1")
    results.add("Chromium through our transport", objects=OBJECTS, seconds=f"{took:.1f}")
    node.close()


@pytest.mark.parametrize("profile", PROFILES)
def test_arti_enters_by_it(world: World, tmp_path: Path, results: Results, profile: str) -> None:
    """Arti starts our transport, uses only the bridge, and files arrive intact."""
    (authority,) = world.network.authorities
    program = [anabranch(), "pt", "client"]
    bridge = (world.line(profile), program)
    with (
        Arti(tmp_path / "arti", authority, world.relays, bridge=bridge) as arti,
        FileServer() as server,
    ):
        begun = time.monotonic()

        def carries() -> bool:
            return not fetch(server.url(1), arti.proxy, tmp_path / "first").fault(1)

        wait_for("a circuit of Arti's", carries, UP_S)
        up = time.monotonic() - begun
        for length in (514, 100_000, 5 * MIB):
            got = fetch(server.url(length), arti.proxy, tmp_path / "got", 300.0)
            assert not got.fault(length), f"{length} bytes: {got.fault(length)}"
        entered = world.bridges[profile].carried()
        results.add("Arti by our transport", profile=profile, up_s=f"{up:.1f}",
                    last_s=f"{got.seconds:.1f}")  # fmt: skip
        assert entered > 5 * MIB, "it went by the bridge"


def test_nobody_complains(world: World) -> None:
    """No stock tor, relay or bridge of ours logs a complaint about another node."""
    assert [line for line in world.network.complaints() if "[notice]" not in line] == []
    ours = [*world.relays, *world.bridges.values()]
    assert [event for relay in ours for event in relay.events("violation")] == []
