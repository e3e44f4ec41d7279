"""Arti with only our relays: as a client, as a client of onion services, and as their host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.arti import Arti
from harness.seeded import MIB
from harness.tools import wait_for
from harness.tornet import PATIENT, Node, TorNetwork
from harness.torours import OurRelay, network_of_ours
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(900)]

RELAYS = 6
PUBLISHED_S = 180.0
FETCHES = 20
PAGE = 60_000
# Bytes of a download: more than any window, but not minutes for an Arti built without
# optimisation.
BULK = MIB


@dataclass
class World:
    """A network of our relays, with a stock client and Arti, which each also host an onion
    service.
    """

    network: TorNetwork
    relays: list[OurRelay]
    server: FileServer
    stock: Node
    stock_name: str
    arti: Arti
    arti_name: str

    def is_found(self, proxy: str, name: str, into: Path) -> bool:
        """Returns whether a page of the service arrives."""
        return not fetch(f"http://{name}/bytes/1", proxy, into).fault(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields the running network; services may not have been published yet."""
    folder = tmp_path_factory.mktemp("arti")
    with ExitStack() as stack:
        network, relays = network_of_ours(folder, stack, RELAYS)
        network.start()
        server = stack.enter_context(FileServer())
        service = folder / "service"
        stock = network.client(
            "stock", PATIENT, f"HiddenServiceDir {service}",
            f"HiddenServicePort 80 127.0.0.1:{server.port}",
        )  # fmt: skip
        (line,) = network.authorities
        arti = stack.enter_context(Arti(folder / "its", line, relays, ("onion", server.port)))
        wait_for("a circuit of Arti's", lambda: _carries(arti, server, folder), PUBLISHED_S)
        name = (service / "hostname").read_text().strip()
        yield World(network, relays, server, stock, name, arti, arti.onion_address("onion"))


def _carries(arti: Arti, server: FileServer, folder: Path) -> bool:
    return not fetch(server.url(1), arti.proxy, folder / "first").fault(1)


def test_it_fetches_from_behind_an_exit(world: World, tmp_path: Path) -> None:
    """A download through an exit arrives intact."""
    assert not fetch(world.server.url(5 * MIB), world.arti.proxy, tmp_path / "got").fault(5 * MIB)


@pytest.mark.parametrize(
    ("client", "host"), [("arti", "arti"), ("stock", "arti"), ("arti", "stock")]
)
def test_services_are_reached(
    world: World, tmp_path: Path, results: Results, client: str, host: str
) -> None:
    """Pages and a longer download arrive intact, and none is lost."""
    proxy = {"arti": world.arti.proxy, "stock": world.stock.proxy}[client]
    name = {"arti": world.arti_name, "stock": world.stock_name}[host]
    begun = time.monotonic()
    found = partial(world.is_found, proxy, name, tmp_path / "first")
    wait_for("the service", found, PUBLISHED_S)
    seconds = time.monotonic() - begun
    url = f"http://{name}/bytes"
    pages = [fetch(f"{url}/{PAGE}", proxy, tmp_path / "page") for _ in range(FETCHES)]
    assert [fault for page in pages if (fault := page.fault(PAGE))] == []
    got = fetch(f"{url}/{BULK}", proxy, tmp_path / "bulk")
    assert not got.fault(BULK)
    results.add(
        "Arti and onion services", client=client, host=host, found_s=f"{seconds:.1f}",
        pages=FETCHES, bulk_s=f"{got.seconds:.1f}",
    )  # fmt: skip


def test_nobody_complains(world: World) -> None:
    """No stock tor logs a complaint, and no relay of ours about Arti."""
    assert world.network.complaints() == []
    assert [event for relay in world.relays for event in relay.events("violation")] == []
