"""Our unordered links among stock tors: mixed circuits over lines that lose segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import Results
from harness.losing import LENGTHS, LIMIT, PATIENCE, Losing
from harness.tornet import TorNetwork
from harness.torours import OurClient, OurRelay
from harness.webfiles import fetch_all

pytestmark = [pytest.mark.links, pytest.mark.timeout(LIMIT)]

# Our relays, with their option ``--link``: two prefer unordered links, one has ordered links.
KINDS = {"utls0": "utls", "utls1": "utls", "tls0": "tls"}
# Paths by hops, first hop first: names of our relays, or "stock".
PATHS = {
    "unordered, stock": ("utls0", "utls1", "stock"),
    "stock between": ("utls0", "stock", "utls1"),
    "ordered between": ("utls0", "tls0", "utls1"),
    "unordered throughout": ("utls0", "utls1", "utls2"),
}


@dataclass
class World:
    """A network with relays of all kinds."""

    network: TorNetwork
    ours: dict[str, OurRelay]

    def path(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the fingerprints of these hops."""
        last = len(names) - 1
        stock = [self.network.of("exit" if hop == last else "relay")[0] for hop in range(last + 1)]
        return tuple(
            stock[hop].fingerprint if name == "stock" else self.ours[name].fingerprint
            for hop, name in enumerate(names)
        )

    def early(self) -> dict[str, int]:
        """Returns the number of records that each of our relays opened out of order."""
        return {name: relay.number("early_records") for name, relay in self.ours.items()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields a network: three authorities, two relays and an exit of C tor; four of our relays."""
    folder = tmp_path_factory.mktemp("tor")
    with TorNetwork(folder, relays=2, exits=1) as network:
        ours = {}
        for name, kind in {**KINDS, "utls2": "utls"}.items():
            more = ["--exit", "accept *:*"] if name in ("utls1", "utls2") else []
            more += ["--threads", "2" if name == "utls0" else "1"]
            ours[name] = OurRelay(network, folder / name, name, "--link", kind, *more)
        network.others = {name: relay.fingerprint for name, relay in ours.items()}
        network.other_exits = ["utls1", "utls2"]
        try:
            network.start()
            network.wait_for_all()
            yield World(network, ours)
        finally:
            for relay in ours.values():
                relay.close()


def check(world: World) -> None:
    """Asserts that no node logs a complaint about another node."""
    assert world.network.complaints() == []
    for relay in world.ours.values():
        assert relay.violations() == [], relay.name


def test_relays_tell_which_tap_is_at_work(world: World) -> None:
    """The relays report their tap: as root, the socket filter; without the option, none."""
    for name, relay in world.ours.items():
        taps = {event["tap"] for event in relay.events("numbers")}
        notes = [str(event["what"]) for event in relay.events("note")]
        said = [note for note in notes if "utls links read TCP" in note]
        if KINDS.get(name) == "tls":
            assert taps == {None}
            assert said == []
        else:
            assert taps == {"socket filter"}
            assert len(said) == 1
            assert relay.scrape()['anabranch_relay_tap{kind="socket filter"}'] == 1


@pytest.mark.parametrize("path", PATHS)
def test_files_of_any_length_arrive_by_mixed_circuits_over_lines_that_lose(
    world: World, path: str, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 20 MiB arrive intact at 5 % loss; some records are opened out of order."""
    names = PATHS[path]
    hops = world.path(names)
    ports = [relay.orport for relay in world.ours.values()]
    before = world.early()
    pins = ["--entry", hops[0], "--middle", hops[1], "--exit", hops[2], "--link", "utls"]
    with (
        OurClient(world.network, tmp_path / "client", "--legs", "1", *pins) as client,
        Losing(ports) as losing,
    ):
        client.wait_ready()
        add = partial(results.add, "unordered links, 5 % loss", path=path)
        fetch_all(client.proxy, tmp_path, add, LENGTHS, PATIENCE)
        assert losing.lost() > 200
        early = int(str(client.events("numbers")[-1]["early_records"]))
    grown = {name: count - before[name] for name, count in world.early().items()}
    results.add("records before their turn", path=path, client=early, **grown)
    assert early > 50, "the guard's records at the client"
    # On the downlink, unordered bytes arrive from the next hop if it supports unordered links.
    for name, behind in pairwise(names):
        if name.startswith("utls") and behind.startswith("utls"):
            assert grown[name] > 50, grown
    check(world)


def test_a_stock_client_gets_usual_links(world: World, tmp_path: Path, results: Results) -> None:
    """The stock client uses our relays, which have unordered links among themselves."""
    hops = world.path(("utls0", "utls1", "utls2"))
    client = world.network.client("stockclient", "ConfluxEnabled 0", path=hops)
    ports = [relay.orport for relay in world.ours.values()]
    with Losing(ports):
        add = partial(results.add, "stock client, unordered relays, 5 % loss")
        fetch_all(client.proxy, tmp_path, add, LENGTHS, PATIENCE)
    client.close()
    check(world)
