"""Onion services of stock tors over our relays: as introduction points, rendezvous points and
HSDirs.

The services and clients are C tor's, in networks of our relays only, of both kinds, and as a
control of stock relays only. Pages are compared by hash, and none may be lost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.seeded import MIB
from harness.tools import wait_for
from harness.tornet import PATIENT, Node, TorNetwork
from harness.torours import OurRelay, network_of_ours, relays_of_ours
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(900)]

CONNECTIONS = 200
AT_ONCE = 8
PAGE = 60_000
BULK = 20 * MIB
FIRSTS, BULKS = 5, 5
# Minimum seconds between two NEWNYM signals, by which tor drops all circuits and descriptors.
NEWNYM_S = 10.5
RELAYS = 6
# Maximum seconds until a service is found. Circuits are built within a minute, and the descriptor
# is published before that.
PUBLISHED_S = 120.0


@dataclass
class World:
    """A network with an onion service."""

    kind: str
    network: TorNetwork
    ours: list[OurRelay]
    server: FileServer
    host: Node
    hostname: str
    clients: list[Node] = field(default_factory=list)

    def url(self, length: int) -> str:
        """Returns the service's URL of ``length`` bytes."""
        return f"http://{self.hostname}/bytes/{length}"

    def page(self, client: Node, length: int, into: Path, isolation: str) -> str:
        """Fetches a page over isolated circuits; returns its fault, or an empty text."""
        proxy = f"socks5h://{isolation}:x@127.0.0.1:{client.socks}"
        return fetch(self.url(length), proxy, into).fault(length)

    def is_found(self, client: Node) -> bool:
        """Returns whether a page of one byte arrives."""
        return not self.page(client, 1, self.network.folder / "first", "scout")

    def complaints(self) -> list[str]:
        """Returns the complaints of stock tors about others."""
        return self.network.complaints()


def service(network: TorNetwork, port: int) -> tuple[Node, str]:
    """Starts a stock tor with a service on port 80; returns it and the service's name."""
    folder = network.folder / "service"
    host = network.client(
        "host", PATIENT, f"HiddenServiceDir {folder}", f"HiddenServicePort 80 127.0.0.1:{port}"
    )
    return host, (folder / "hostname").read_text().strip()


@pytest.fixture(scope="module", params=["ours", "mixed", "stock"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Yields a network of each kind, in which the client has found the service once."""
    kind: str = request.param
    folder = tmp_path_factory.mktemp(kind)
    with ExitStack() as stack:
        server = stack.enter_context(FileServer())
        if kind == "ours":
            network, ours = network_of_ours(folder, stack, RELAYS)
        else:
            stock = RELAYS // 2 if kind == "mixed" else RELAYS
            network = stack.enter_context(TorNetwork(folder, relays=stock - 1, exits=1))
            ours = relays_of_ours(network, folder, stack, RELAYS - stock)
        network.start()
        host, hostname = service(network, server.port)
        made = World(kind, network, ours, server, host, hostname)
        made.clients = [network.client(f"client{number}", PATIENT) for number in range(2)]
        for client in made.clients:
            wait_for("the service to be found", partial(made.is_found, client), PUBLISHED_S)
        yield made


def test_no_connection_to_a_stock_service_is_lost(
    world: World, tmp_path: Path, results: Results
) -> None:
    """Each connection has its own rendezvous; pages arrive intact, and no stock tor logs a
    complaint.
    """

    def one(number: int) -> str:
        client = world.clients[number % len(world.clients)]
        return world.page(client, PAGE, tmp_path / str(number), f"user{number}")

    begun = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        faults = [fault for fault in pool.map(one, range(CONNECTIONS)) if fault]
    seconds = time.monotonic() - begun
    results.add(
        "onion services", network=world.kind, connections=CONNECTIONS, lost=len(faults),
        seconds=f"{seconds:.0f}",
    )  # fmt: skip
    assert not faults, faults[:3]
    assert world.complaints() == []


def test_first_connections_and_bulk(world: World, tmp_path: Path, results: Results) -> None:
    """Measures the time from an unknown descriptor to the first byte, and 20 MiB over each of
    several open circuits.

    Rates differ more between circuits than between networks, because with six relays some serve
    twice in six hops.
    """
    client = world.clients[0]
    firsts = []
    for number in range(FIRSTS):
        with client.control() as control:
            control.ask("SIGNAL NEWNYM")
        time.sleep(NEWNYM_S)
        begun = time.monotonic()
        assert not world.page(client, 1, tmp_path / "one", f"first{number}")
        firsts.append(time.monotonic() - begun)
    rates = []
    for number in range(BULKS):
        assert not world.page(client, 1, tmp_path / "one", f"bulk{number}")
        begun = time.monotonic()
        assert not world.page(client, BULK, tmp_path / "bulk", f"bulk{number}")
        rates.append(BULK / (time.monotonic() - begun) / 1e6)
    results.add(
        "onion services: first connection and bulk", network=world.kind,
        first_s=f"{statistics.median(firsts):.2f} ({min(firsts):.2f}-{max(firsts):.2f})",
        bulk_mb_s=f"{statistics.median(rates):.1f} ({min(rates):.1f}-{max(rates):.1f})",
    )  # fmt: skip
    assert world.complaints() == []
