"""Our relays in a network of stock authorities, which voted for them, in every place of a path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Results
from harness.seeded import MIB
from harness.tornet import TorNetwork
from harness.torours import OurClient, OurRelay
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(400)]

LENGTHS = (1, 514, 100_000, 5 * MIB, 200 * MIB)
# In so small a network stock tors ask each other, too, to extend a circuit to where it comes from.
BACK = "a circuit that may not be extended that way"
# Who stands where: "ours" or "stock", first hop first.
PLACES = {
    "guard": ("ours", "stock", "stock"),
    "middle": ("stock", "ours", "stock"),
    "exit": ("stock", "stock", "ours"),
    "all": ("ours", "ours", "ours"),
}


@dataclass
class World:
    """A network with relays of both kinds."""

    network: TorNetwork
    ours: list[OurRelay]

    def path(self, place: str) -> tuple[tuple[str, str], ...]:
        """Names and fingerprints of a path, first hop first."""
        stock = [*self.network.of("relay")[:2], self.network.of("exit")[0]]
        ours = [(relay.name, relay.fingerprint) for relay in self.ours]
        theirs = [(node.name, node.fingerprint) for node in stock]
        kinds = {"ours": ours, "stock": theirs}
        return tuple(kinds[kind][hop] for hop, kind in enumerate(PLACES[place]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three authorities, two relays and an exit of C tor's; two relays and an exit of ours."""
    folder = tmp_path_factory.mktemp("tor")
    with TorNetwork(folder, relays=2, exits=1) as network:
        options: list[list[str]] = [[], [], ["--exit", "accept *:*"]]
        ours = [
            OurRelay(network, folder / f"ours{number}", f"ours{number}", *more)
            for number, more in enumerate(options)
        ]
        network.others = [relay.name for relay in ours]
        network.other_exits = ["ours2"]
        try:
            network.start()
            network.wait_for_all()
            yield World(network, ours)
        finally:
            for relay in ours:
                relay.close()


def check(world: World) -> None:
    """Nobody complains of anybody."""
    assert world.network.complaints() == []
    for relay in world.ours:
        told = {event["what"] for event in relay.events("violation")}
        assert told <= {BACK}, relay.name


def test_stock_authorities_vote_for_our_relays(world: World) -> None:
    """With the flags that a client looks for."""
    with world.network.of("auth")[0].control() as control:
        flags = dict(control.routers().values())
    for relay in world.ours:
        assert {"Running", "Valid", "Fast", "Guard", "V2Dir"} <= flags[relay.name], flags
    assert "Exit" in flags["ours2"]
    check(world)


@pytest.mark.parametrize("place", PLACES)
def test_a_stock_client_goes_by_our_relays(
    world: World, place: str, tmp_path: Path, results: Results
) -> None:
    """1 B to 200 MiB arrive with the right hash by a path that is pinned, and no tor complains."""
    path = world.path(place)
    entry, middle, exit_ = (fingerprint for _, fingerprint in path)
    pins = [f"EntryNodes {entry}", f"MiddleNodes {middle}", f"ExitNodes {exit_}"]
    client = world.network.client(f"client{place}", "ConfluxEnabled 0", *pins)
    proxy = f"socks5h://127.0.0.1:{client.socks}"
    with FileServer() as server:
        for length in LENGTHS:
            got = fetch(server.url(length), proxy, tmp_path / "got")
            assert not got.fault(length), f"{length} bytes: {got.fault(length)}"
            results.add(
                "stock client, our relays",
                place=place,
                bytes=length,
                seconds=f"{got.seconds:.2f}",
                first_byte_ms=f"{got.first_byte_s * 1000:.0f}",
            )
    with client.control() as control:
        used = {c.hops for c in control.circuits() if c.purpose == "GENERAL" and len(c.hops) == 3}
    client.close()
    assert used == {(entry, middle, exit_)}
    check(world)


@pytest.mark.parametrize("place", PLACES)
def test_our_client_goes_by_both_kinds(
    world: World, place: str, tmp_path: Path, results: Results
) -> None:
    """The same with our own client: mixed paths in every position."""
    path = world.path(place)
    pins: list[str] = []
    for option, (_, fingerprint) in zip(("--entry", "--middle", "--exit"), path, strict=True):
        pins += [option, fingerprint]
    with OurClient(world.network, tmp_path / "c", *pins) as client, FileServer() as server:
        client.wait_ready()
        for length in LENGTHS:
            got = fetch(server.url(length), client.proxy, tmp_path / "got")
            assert not got.fault(length), f"{length} bytes: {got.fault(length)}"
            results.add(
                "our client, both kinds of relays",
                place=place,
                bytes=length,
                seconds=f"{got.seconds:.2f}",
                first_byte_ms=f"{got.first_byte_s * 1000:.0f}",
            )
        assert set(client.paths()) == {tuple(name for name, _ in path)}
        assert client.events("violation") == []
    check(world)
