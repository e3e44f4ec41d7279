"""Our UDP-OR and mUDP-OR in a network of stock authorities, together with stock clients."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.seeded import MIB
from harness.tornet import TorNetwork
from harness.torours import OurClient, OurRelay
from harness.webfiles import fetch_all

pytestmark = [pytest.mark.tor, pytest.mark.timeout(900)]

LENGTHS = (1, 514, 100_000, 5 * MIB)
# : Relays of ours for two circuits with one exit, whose legs may reach either of its threads.
NAMES = ("lossy0", "lossy1", "lossy2", "lossy3", "lossyexit")


@dataclass
class World:
    """A network with relays of both kinds."""

    network: TorNetwork
    ours: list[OurRelay]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields a network: three authorities, two relays and an exit of C tor; five of our relays
    with --udp-or.
    """
    folder = tmp_path_factory.mktemp("tor")
    with ExitStack() as all_of_it:
        network = all_of_it.enter_context(TorNetwork(folder, relays=2, exits=1))
        exits = {"lossyexit": ["--exit", "accept *:*", "--threads", "2"]}
        ours = [
            all_of_it.enter_context(
                OurRelay(network, folder / name, name, "--udp-or", *exits.get(name, []))
            )
            for name in NAMES
        ]
        network.others = {relay.name: relay.fingerprint for relay in ours}
        network.other_exits = ["lossyexit"]
        network.start()
        network.wait_for_all()
        yield World(network, ours)


@pytest.mark.parametrize("design", ["udp-or", "mudp-or"])
def test_stock_clients_are_undisturbed_beside_lossy_circuits(
    world: World, design: str, tmp_path: Path, results: Results
) -> None:
    """Both kinds of clients download at the same time, over exits of both kinds. No stock relay
    logs a complaint about ours, and our relays log none.
    """
    of_ours = ",".join(relay.fingerprint for relay in world.ours)
    stock = world.network.client(f"stock{design.replace('-', '')}")
    options = ["--design", design, "--entry", of_ours]
    with OurClient(world.network, tmp_path / "client", *options) as client:
        client.wait_ready()
        adds = [partial(results.add, of, design=design) for of in ("stock client", "our client")]
        folders = [tmp_path / "stock", tmp_path / "ours"]
        for folder in folders:
            folder.mkdir()
        with ThreadPoolExecutor() as pool:
            proxies = (stock.proxy, client.proxy)
            done = [
                pool.submit(fetch_all, proxy, folder, add, LENGTHS)
                for proxy, folder, add in zip(proxies, folders, adds, strict=True)
            ]
            for each in done:
                each.result()
        sent = 'anabranch_relay_lossy_cells_total{direction="sent"}'
        assert world.ours[-1].scrape().get(sent, 0) > 0, "our exit sends lossy cells"
        assert client.events("violation") == []
    stock.close()
    assert world.network.complaints() == []
    for relay in world.ours:
        assert relay.violations() == [], relay.name
