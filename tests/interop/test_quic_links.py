"""Our QUIC links alongside TLS links, among stock tors: with lossy lines, and with UDP blocked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import Results
from harness.losing import LENGTHS, LIMIT, LONGEST, PATIENCE, Losing, Reordering
from harness.seeded import MIB
from harness.tools import wait_for
from harness.tornet import TorNetwork
from harness.torours import OurClient, OurRelay
from harness.webfiles import fetch_all

pytestmark = [pytest.mark.links, pytest.mark.timeout(LIMIT)]

# Our relays, with their option ``--link``.
KINDS = {"quic0": "quic", "quic1": "quic", "quic2": "quic,utls", "utls0": "utls", "tls0": "tls"}
EXITS = ("quic1", "quic2")
# Number of circuits, more than a client builds in advance.
SPARE = 6


@dataclass(frozen=True)
class Way:
    """A path by hops, first hop first (our relays by name, others "stock"), and the kind of the
    client's links.
    """

    names: tuple[str, ...]
    link: str = "quic"

    def shared(self) -> list[set[str]]:
        """The kinds of each hop's link that both ends support, the client's link first."""
        kinds = [self.link, *(KINDS.get(name, "tls") for name in self.names)]
        return [set(near.split(",")) & set(far.split(",")) for near, far in pairwise(kinds)]

    def quic(self) -> list[bool]:
        """Whether each hop's link is a QUIC link."""
        return ["quic" in kinds for kinds in self.shared()]

    def unordered(self) -> list[bool]:
        """Whether each hop's link is unordered: ends that support both kinds prefer QUIC."""
        return ["utls" in kinds and "quic" not in kinds for kinds in self.shared()]


PATHS = {
    "QUIC throughout": Way(("quic0", "quic1", "quic2")),
    "QUIC, stock": Way(("quic0", "quic1", "stock")),
    "stock between": Way(("quic0", "stock", "quic1")),
    "unordered, then ordered": Way(("utls0", "tls0", "quic2"), "utls"),
    "unordered, then QUIC": Way(("utls0", "quic2", "quic1"), "utls"),
    "QUIC, unordered, ordered": Way(("quic2", "utls0", "quic1"), "quic,utls"),
}
# Paths of circuits that move: between relays with one thread each, and with two.
MOVING = {"one thread": ("quic0", "quic2", "stock"), "two threads": ("quic0", "quic1", "stock")}
MOVED = max(60 * MIB, LONGEST)
"""Bytes of a download that is still running when UDP is blocked."""

# Messages of a stock exit about a circuit that stalled until it moved to TLS, and about its next
# cell ("1 vs 15001"). An end waits 15 s before it treats UDP as blocked.
STALLED = ("Sudden increase in circuit RTT", "Sudden decrease in circuit RTT")


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

    def ports(self) -> list[int]:
        """The TCP and UDP ports on which our relays accept links."""
        return [relay.orport for relay in self.ours.values()]

    def series(self, name: str, which: str) -> int:
        """Returns a metric of a relay's QUIC links; 0 if it has none."""
        return int(self.ours[name].scrape().get(f"anabranch_relay_quic_{which}", 0))

    def early(self) -> dict[str, int]:
        """Returns the number of records that each of our relays opened out of order."""
        return {name: relay.number("early_records") for name, relay in self.ours.items()}

    def has_quic(self, name: str) -> bool:
        """Returns whether a relay has any QUIC link."""
        return self.series(name, "links") > 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields a network: three authorities, two relays and an exit of C tor; five of our own
    relays.
    """
    folder = tmp_path_factory.mktemp("tor")
    with TorNetwork(folder, relays=2, exits=1) as network:
        ours = {}
        for name, kind in KINDS.items():
            more = ["--exit", "accept *:*"] if name in EXITS else []
            more += ["--threads", "2" if name == "quic1" else "1"]
            ours[name] = OurRelay(network, folder / name, name, "--link", kind, *more)
        network.others = {name: relay.fingerprint for name, relay in ours.items()}
        network.other_exits = list(EXITS)
        try:
            network.start()
            network.wait_for_all()
            yield World(network, ours)
        finally:
            for relay in ours.values():
                relay.close()


def pinned(world: World, names: tuple[str, ...], link: str = "quic") -> list[str]:
    """Returns a client's options that pin this path."""
    hops = world.path(names)
    pins = ["--entry", hops[0], "--middle", hops[1], "--exit", hops[2]]
    return ["--legs", "1", *pins, "--link", link]


def quic(client: OurClient, what: str) -> int:
    """Returns the number of a client's QUIC links, or of circuits on them; 0 if QUIC is off."""
    numbers = client.events("numbers")
    return int(str(numbers[-1][f"quic_{what}"] or 0)) if numbers else 0


def early(client: OurClient) -> int:
    """Returns the number of records that a client opened out of order."""
    numbers = client.events("numbers")
    return int(str(numbers[-1]["early_records"])) if numbers else 0


def anew(client: OurClient, name: str) -> str:
    """Returns the client's proxy URL with a new SOCKS user, who shares no circuit with others."""
    return client.proxy.replace("//", f"//{name}:{name}@")


def later(client: OurClient, folder: Path) -> str:
    """Returns the client's proxy URL for a user whose circuit is built after this call.

    Circuits built in advance may be older than a QUIC link, so they are used up first.
    """
    for number in range(SPARE):
        fetch_all(anew(client, f"later{number}"), folder, _untold, (1,))
    return anew(client, "later")


def _untold(*_: object, **__: object) -> None:
    pass


def check(world: World) -> None:
    """Asserts that no node logs a complaint about another node."""
    complaints = world.network.complaints()
    assert [line for line in complaints if not any(what in line for what in STALLED)] == []
    for relay in world.ours.values():
        assert relay.violations() == [], relay.name


@pytest.mark.parametrize("path", PATHS)
def test_files_of_any_length_arrive_by_mixed_circuits_over_lines_that_lose_and_reorder(
    world: World, path: str, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 20 MiB arrive intact, at 5 % loss and with 2 % of packets late. Neighbours
    that both support QUIC use QUIC links; otherwise, if both support them, unordered links.
    """
    way = PATHS[path]
    names, has_quic, is_unordered = way.names, way.quic(), way.unordered()
    before = world.early()
    with OurClient(world.network, tmp_path / "client", *pinned(world, names, way.link)) as client:
        client.wait_ready()
        # QUIC links are opened alongside the TLS links of the first circuit.
        if has_quic[0]:
            wait_for("a QUIC link to the guard", lambda: quic(client, "links") == 1, 60)
        for hop, near in enumerate(names[:-1]):
            if has_quic[hop + 1]:
                wait_for(f"a QUIC link of {near}", partial(world.has_quic, near), 60)
        ports, both = world.ports(), ("tcp", "udp")
        with (
            Losing(ports, protocols=both) as losing,
            Reordering(ports, protocols=both) as reordering,
        ):
            add = partial(results.add, "QUIC links, 5 % loss, 2 % late", path=path)
            fetch_all(later(client, tmp_path), tmp_path, add, LENGTHS, PATIENCE)
            assert losing.lost() > 200
            assert reordering.held > 80
        circuits = {name: world.series(name, "circuits") for name in world.ours}
        results.add(
            "circuits on QUIC links", path=path, client=quic(client, "circuits"), **circuits
        )
        assert (quic(client, "circuits") > 0) == has_quic[0]
        for (near, far), by_quic in zip(pairwise(names), has_quic[1:], strict=True):
            if by_quic:
                assert circuits[near] > 0, circuits
                assert circuits[far] > 0, circuits
        grown = {name: count - before[name] for name, count in world.early().items()}
        results.add("records before their turn", path=path, client=early(client), **grown)
        # On the downlink, the end of an unordered link nearer to the client receives the bytes.
        opened = [early(client), *(grown.get(name, 0) for name in names)]
        for count, expected in zip(opened, is_unordered, strict=False):
            assert count > 50 or not expected, opened
    check(world)


def test_a_link_is_unordered_while_udp_is_blocked_and_has_quic_beside_it_later(
    world: World, tmp_path: Path, results: Results
) -> None:
    """A client and its guard support both kinds, and finally have a QUIC link alongside an
    unordered one.
    """
    way = PATHS["QUIC, unordered, ordered"]
    ports, add = world.ports(), partial(results.add, "unordered, and QUIC later")
    with OurClient(
        world.network, tmp_path / "client", *pinned(world, way.names, way.link)
    ) as client:
        with Losing(ports, one_in=1, protocols=("udp",)) as blocked, Losing(ports):
            client.wait_ready()
            fetch_all(anew(client, "blocked"), tmp_path, add, LENGTHS[:4], PATIENCE)
            assert blocked.lost() > 0
            assert quic(client, "links") == 0
            # The client reports its counters every second.
            wait_for("records before their turn", lambda: early(client) > 50, 5)
        # The next attempt is a minute after the first was given up.
        wait_for("a QUIC link to the guard", lambda: quic(client, "links") == 1, 150)
        fetch_all(later(client, tmp_path), tmp_path, add, LENGTHS[:4], PATIENCE)
        assert quic(client, "circuits") > 0
    check(world)


def test_a_download_goes_on_by_tls_where_udp_is_blocked(
    world: World, tmp_path: Path, results: Results
) -> None:
    """Only a counter shows the failure; when UDP passes again, QUIC is used."""
    names = PATHS["QUIC throughout"].names
    ports, add = world.ports(), partial(results.add, "QUIC links, UDP blocked")
    with OurClient(world.network, tmp_path / "client", *pinned(world, names)) as client:
        with Losing(ports, one_in=1, protocols=("udp",)) as blocked:
            client.wait_ready()
            fetch_all(anew(client, "blocked"), tmp_path, add, LENGTHS, PATIENCE)
            assert blocked.lost() > 0
            assert quic(client, "links") == 0
        # The next attempt is a minute after the first was given up.
        wait_for("a QUIC link to the guard", lambda: quic(client, "links") == 1, 150)
        fetch_all(later(client, tmp_path), tmp_path, add, LENGTHS[:4], PATIENCE)
        assert quic(client, "circuits") > 0
    check(world)


def test_a_stock_client_goes_by_quic_links_between_relays(
    world: World, tmp_path: Path, results: Results
) -> None:
    """The stock client and its guard have a normal TLS link; our relays use QUIC links."""
    hops = world.path(PATHS["QUIC throughout"].names)
    wait_for("a QUIC link", lambda: world.has_quic("quic0"), 60)
    client = world.network.client("stockclient", "ConfluxEnabled 0", path=hops)
    with Losing(world.ports(), protocols=("tcp", "udp")):
        add = partial(results.add, "stock client, QUIC between relays, 5 % loss")
        fetch_all(client.proxy, tmp_path, add, LENGTHS, PATIENCE)
        assert world.series("quic1", "circuits") > 0
    client.close()
    check(world)


@pytest.mark.parametrize("threads", MOVING)
def test_a_download_goes_on_by_tls_where_udp_is_blocked_under_it(
    world: World, threads: str, tmp_path: Path, results: Results
) -> None:
    """60 MiB arrive intact: a part over QUIC, and after a pause the rest over TLS.

    This test is the last, because QUIC links return only a minute later.
    """
    names = MOVING[threads]
    with OurClient(world.network, tmp_path / "client", *pinned(world, names)) as client:
        client.wait_ready()
        wait_for("a QUIC link to the guard", lambda: quic(client, "links") == 1, 150)
        wait_for("a QUIC link of the guard", lambda: world.series(names[1], "links") > 0, 150)
        moved = {name: world.series(name, "moved_circuits_total") for name in names[:2]}
        proxy = later(client, tmp_path)

        def received() -> int:
            numbers = client.events("numbers")
            return int(str(numbers[-1]["received"])) if numbers else 0

        # With losses, the download takes some time.
        with Losing(world.ports(), protocols=("tcp", "udp")), ThreadPoolExecutor(1) as pool:
            before = received()
            add = partial(results.add, "QUIC links, UDP blocked under a download", relays=threads)
            done = pool.submit(fetch_all, proxy, tmp_path, add, (MOVED,), 3 * PATIENCE)
            wait_for("some of it", lambda: received() > before + 2 * MIB, 60)
            on_quic = quic(client, "circuits")
            with Losing(world.ports(), one_in=1, protocols=("udp",)) as blocked:
                assert not done.done()
                done.result()
                assert blocked.lost() > 0
        assert on_quic > 0
        for name, before_it in moved.items():
            assert world.series(name, "moved_circuits_total") > before_it, name
    check(world)
