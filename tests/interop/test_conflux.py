"""Conflux sets of several circuits (proposal 329), between C tor and our programs."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.seeded import MIB
from harness.tools import tool, wait_for
from harness.tornet import PATIENT, Node, TorNetwork
from harness.torours import OurClient, OurRelay
from harness.webfiles import FileServer, fetch, fetch_all, post

pytestmark = [pytest.mark.tor, pytest.mark.conflux, pytest.mark.timeout(900)]

# : Stock relays besides the exits: a guard and a middle for each of three legs.
RELAYS = 6
#: Number of sets that are tried until one has the maximum number of legs.
USERS = 4
#: Seconds until our relays have reported their counters, which they do once a second.
TOLD_S = 1.5
# : A stock exit writes a report for each cell of a set that has more legs than this.
PARAMS = "cfx_num_legs_set=3"
#: Minimum share of a leg in the data of two equal legs.
SHARE = 0.2
#: Seconds until a set notices that a leg is silent: one, plus a margin for busy machines.
STALL_S = 4.0


@dataclass
class World:
    """A network with an exit of each kind (C tor's and ours), and relays of both kinds."""

    network: TorNetwork
    exit: OurRelay
    ours: list[OurRelay]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields a network: three authorities, six relays and an exit of C tor, two relays and an exit
    of ours.
    """
    folder = tmp_path_factory.mktemp("tor")
    with ExitStack() as all_of_it:
        network = all_of_it.enter_context(TorNetwork(folder, relays=RELAYS, exits=1, params=PARAMS))
        rules = ["--exit", "accept *:*", "--threads", "2"]
        start = partial(OurRelay, network)
        ours = [
            all_of_it.enter_context(start(folder / name, name, *options))
            for name, options in (("ours0", []), ("ours1", []), ("oursexit", rules))
        ]
        network.others = {relay.name: relay.fingerprint for relay in ours}
        network.other_exits = ["oursexit"]
        network.start()
        network.wait_for_all()
        yield World(network, ours[2], ours[:2])


def check(world: World) -> None:
    """Asserts that no node logs a complaint about another node."""
    assert world.network.complaints() == []
    for relay in (*world.ours, world.exit):
        assert relay.violations() == [], relay.name


def stock_client(world: World, name: str, exit_: str) -> Node:
    """Returns a stock client that transfers over sets, all with the same exit."""
    only = ["ConfluxEnabled 1", "ConfluxClientUX throughput", PATIENT]
    return world.network.client(name, *only, f"ExitNodes {exit_}", "StrictNodes 1")


def linked(node: Node) -> list[str]:
    """Returns the circuits of a stock client that are legs."""
    with node.control() as control:
        status = control.info("circuit-status")
    return [line for line in status if "PURPOSE=CONFLUX_LINKED" in line]


def carried(world: World) -> dict[str, int]:
    """Returns the bytes that each possible guard or middle has received, by relay."""
    time.sleep(TOLD_S)
    stock = {node.name: node.carried() for node in world.network.of("relay")}
    return stock | {relay.name: relay.number("received") for relay in world.ours}


def by_legs(before: dict[str, int], after: dict[str, int], least: int) -> list[str]:
    """Returns the relays that have received at least ``least`` bytes more."""
    return [name for name in before if after[name] - before[name] >= least]


def has_legs(client: OurClient, legs: int) -> bool:
    """Returns whether ``legs`` circuits of a client are legs."""
    return len(client.events("circuit_linked")) >= legs


def upload(proxy: str, folder: Path) -> None:
    """Uploads 20 MB, and asserts that they arrive with the right hash."""
    body = folder / "body"
    body.write_bytes(bytes(range(256)) * 80_000)
    with FileServer() as server:
        assert post(proxy, body, server.url(0)) == hashlib.sha256(body.read_bytes()).hexdigest()


def test_a_stock_clients_sets_link_at_our_exit_and_carry_by_both_legs(
    world: World, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 200 MiB arrive intact, down and up; at least two legs each carry a tenth or
    more.

    C tor's legs may share relays: the guard of one leg can be the middle of another.
    """
    client = stock_client(world, "clientsets", world.exit.fingerprint)
    assert client.process is not None, "it runs"
    client.process.wait_until("a set of two legs", lambda: len(linked(client)) >= 2, 120.0)
    assert world.exit.number("sets") >= 1
    before = carried(world)
    fetch_all(client.proxy, tmp_path, partial(results.add, "stock client's set, our exit"))
    after = carried(world)
    assert len(by_legs(before, after, int(SHARE / 2 * 200 * MIB))) >= 3, (before, after)
    upload(client.proxy, tmp_path)
    client.close()
    check(world)


@pytest.mark.parametrize("legs", [1, 2, 3])
@pytest.mark.parametrize("kind", ["stock", "ours"])
def test_our_client_has_sets_at_either_kind_of_exit(
    world: World, kind: str, legs: int, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 200 MiB arrive intact, down and up, over one to three legs."""
    stock = world.network.of("exit")[0].fingerprint
    exit_ = {"stock": stock, "ours": world.exit.fingerprint}[kind]
    options = ["--legs", str(legs), "--exit", exit_]
    with OurClient(world.network, tmp_path / "client", *options) as client:
        client.wait_ready()
        with FileServer() as server:
            got = fetch(server.url(MIB), client.proxy, tmp_path / "first")
        assert not got.fault(MIB), got.fault(MIB)
        wanted = 0 if legs == 1 else legs
        client.process.wait_until(f"{legs} legs", partial(has_legs, client, wanted), 60.0)
        before = carried(world)
        add = partial(results.add, "our client's set", exit=kind, legs=legs)
        fetch_all(client.proxy, tmp_path, add)
        least = int(SHARE * 200 * MIB / max(1, legs - 1))
        assert len(by_legs(before, carried(world), least)) >= min(2 * legs, 4), before
        upload(client.proxy, tmp_path)
        assert client.events("violation") == []
    check(world)


def test_a_leg_that_is_cut_gives_an_error_and_the_next_request_goes(
    world: World, tmp_path: Path
) -> None:
    """By proposal 329 the set may die with its leg, but a truncated file never looks complete."""
    options = ["--legs", "2", "--exit", world.exit.fingerprint]
    with OurClient(world.network, tmp_path / "client", *options) as client, FileServer() as server:
        client.wait_ready()
        fetch(server.url(MIB), client.proxy, tmp_path / "first")
        client.process.wait_until("two legs", partial(has_legs, client, 2), 60.0)
        guards = [path[0] for path in client.paths()]
        victim = next(node for node in world.network.of("relay") if node.name in guards)
        command: Sequence[str] = [tool("curl"), "-sS", "--noproxy", "", "--proxy", client.proxy]
        command = [*command, "-m", "60", "-o", str(tmp_path / "got"), server.url(200 * MIB)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as going:
            before = victim.carried()
            assert client.process is not None
            moved = lambda: victim.carried() - before > 8 * MIB  # noqa: E731
            client.process.wait_until("bytes by that leg", moved, 60.0)
            victim.kill()
            assert going.wait(60.0) != 0, "an error, though the file is short"
        got = fetch(server.url(MIB), client.proxy, tmp_path / "next", 60.0)
        assert not got.fault(MIB), got.fault(MIB)
        world.network.restart(victim)
        world.network.wait(victim)


def options_of(world: World, design: str) -> list[str]:
    """Returns a client's options for sets of a design. The exit is ours, or a stock one if our
    middle joins the legs.
    """
    stock = world.network.of("exit")[0].fingerprint
    exit_ = stock if design == "merged" else world.exit.fingerprint
    options = ["--multipath", design, "--exit", exit_]
    if design == "merged":
        # The middles are ours. The guards are stock relays, which need not support these sets.
        guards = [node.fingerprint for node in world.network.of("relay")]
        options += [word for guard in guards for word in ("--entry", guard)]
    return options


@pytest.mark.parametrize("legs", [2, 3])
@pytest.mark.parametrize(
    "design", ["conflux-2013", "mtor", "conflux-2013-vegas", "mtor-vegas", "anabranch", "merged"]
)
def test_designs_of_ours_carry_by_every_leg_through_stock_relays(
    world: World, design: str, legs: int, tmp_path: Path, results: Results
) -> None:
    """20 MiB arrive intact, down and up; each leg of the set in use carries a share.

    Legs join at our exit, or at our middle in front of a stock exit. With few relays, a set may
    find none for its last leg. Each SOCKS user has a separate set, and at least one of these sets
    has all legs.
    """
    options = ["--legs", str(legs), *options_of(world, design)]
    with OurClient(world.network, tmp_path / "client", *options) as client, FileServer() as server:
        client.wait_ready()
        brought: list[list[int]] = []
        for user in range(USERS):
            into = tmp_path / f"got{user}"
            got = fetch(
                server.url(20 * MIB), client.proxy, into, 300.0, "--proxy-user", f"{user}:x"
            )
            assert not got.fault(20 * MIB), got.fault(20 * MIB)
            time.sleep(TOLD_S)
            brought = by_sets(client)
            if any(len(legs_of) == legs for legs_of in brought):
                break
        used = [legs_of for legs_of in brought if len(legs_of) == legs]
        assert used, brought
        results.add("design of ours", design=design, legs=legs, seconds=f"{got.seconds:.2f}")
        least = int(SHARE * 20 * MIB / max(1, legs - 1))
        assert min(used[0]) >= least, brought
        assert {event["multipath"] for event in client.events("circuit_linked")} == {design}
        upload(client.proxy, tmp_path)
        assert client.events("violation") == []
    check(world)


class Watch:
    """A watcher of a growing file, which measures stalls of the download."""

    def __init__(self, into: Path) -> None:
        """Watches the file ``into``, which need not exist yet."""
        self.into = into
        self.longest_stall_s = 0.0
        self._last = (time.monotonic(), 0)

    @property
    def bytes(self) -> int:
        """Returns the current size of the file in bytes."""
        return self.into.stat().st_size if self.into.exists() else 0

    def look(self) -> int:
        """Records the time without new bytes since the first ones; returns the current size."""
        now, there = time.monotonic(), self.bytes
        if there > self._last[1] or not there:
            self._last = (now, there)
        self.longest_stall_s = max(self.longest_stall_s, now - self._last[0])
        return there

    def restart(self) -> float:
        """Returns the longest stall so far, and resets it."""
        stall, self.longest_stall_s = self.longest_stall_s, 0.0
        return stall


@pytest.mark.parametrize("death", ["killed", "frozen"])
@pytest.mark.parametrize("place_of", [("anabranch", 0), ("anabranch", 1), ("merged", 0)])
def test_a_relay_that_dies_in_mid_download_costs_no_byte(
    world: World, place_of: tuple[str, int], death: str, tmp_path: Path, results: Results
) -> None:
    """A stock guard or middle gets SIGKILL or SIGSTOP, and 200 MiB still arrive intact.

    A stopped process is a black hole: its kernel accepts all data sent to it.
    """
    design, place = place_of
    options = ["--legs", "2", *options_of(world, design)]
    with (
        FileServer() as server,
        client_by_stock(world, place, options, tmp_path, server) as client,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as whole,
    ):
        watch = Watch(tmp_path / "got")
        get = partial(fetch, server.url(200 * MIB), client.proxy, watch.into, 300.0)
        before = {node.name: node.carried() for node in world.network.of("relay")}
        going = pool.submit(get, "--limit-rate", "16M")
        wait_for("a download under way", lambda: watch.look() > 48 * MIB, 60.0)
        quiet_s = watch.restart()
        victim = carriers(world, client, place, before)[0]
        watch.look()
        kill(victim, death)
        # Even if this test fails, the next test has all relays.
        whole.callback(revive, world, victim, death)
        while not going.done():
            watch.look()
            time.sleep(0.02)
        got = going.result()
        assert not got.fault(200 * MIB), got.fault(200 * MIB)
        assert {event["multipath"] for event in client.events("circuit_linked")} == {design}
        results.add(
            "a relay dies", design=design, place=place, death=death, before=f"{quiet_s:.2f}",
            stall=f"{watch.longest_stall_s:.2f}",
        )  # fmt: skip
        assert watch.longest_stall_s < STALL_S
        assert client.events("violation") == []
    check(world)


@contextmanager
def client_by_stock(
    world: World, place: int, options: list[str], folder: Path, server: FileServer
) -> Iterator[OurClient]:
    """Yields a client with two legs, of which one has a stock relay at position ``place``.

    Two of the eight guards and middles are ours, and a client may draw both.
    """
    for attempt in range(5):
        with OurClient(world.network, folder / f"client{attempt}", *options) as client:
            client.wait_ready()
            fetch(server.url(MIB), client.proxy, folder / "first")
            client.process.wait_until("two legs", partial(has_legs, client, 2), 60.0)
            before = {node.name: node.carried() for node in world.network.of("relay")}
            fetch(server.url(16 * MIB), client.proxy, folder / "first")
            if carriers(world, client, place, before):
                yield client
                return
    raise AssertionError("no download of five clients goes by a stock relay there")


def carriers(world: World, client: OurClient, place: int, before: dict[str, int]) -> list[Node]:
    """Returns the stock relays at this position of the client's circuits that have carried a MiB
    more, most first.
    """
    names = {path[place] for path in client.paths()}
    nodes = [node for node in world.network.of("relay") if node.name in names]
    since = {node.name: node.carried() - before[node.name] for node in nodes}
    nodes = [node for node in nodes if since[node.name] > MIB]
    return sorted(nodes, key=lambda node: -since[node.name])


def kill(node: Node, death: str) -> None:
    """Kills a relay, or stops its process."""
    if death == "killed":
        node.kill()
    else:
        assert node.process is not None, "it runs"
        os.kill(node.process.pid, signal.SIGSTOP)


def revive(world: World, node: Node, death: str) -> None:
    """Restarts a relay, or continues its process."""
    if death == "killed":
        world.network.restart(node)
        world.network.wait(node)
    else:
        assert node.process is not None, "it runs"
        os.kill(node.process.pid, signal.SIGCONT)


def by_sets(client: OurClient) -> list[list[int]]:
    """Returns the bytes that each leg received, for the sets that received 20 MiB."""
    sets = client.events("numbers")[-1]["sets"]
    assert isinstance(sets, list)
    brought = [[leg["received"] for leg in one["legs"]] for one in sets]
    return [legs for legs in brought if sum(legs) >= 20 * MIB]


def test_an_older_design_where_no_exit_does_it_is_told_at_once_and_programs_are_refused(
    world: World, tmp_path: Path
) -> None:
    """With only a stock exit, one line reports it, and no stream falls back to one circuit."""
    stock = world.network.of("exit")[0].fingerprint
    options = ["--legs", "2", "--multipath", "mtor", "--exit", stock]
    with OurClient(world.network, tmp_path / "client", *options) as client, FileServer() as server:

        def told() -> list[str]:
            return [str(event["what"]) for event in client.events("trouble")]

        client.process.wait_until("a word of it", lambda: bool(told()), 60.0)
        assert any("no usable exit of the network" in what for what in told()), told()
        got = fetch(server.url(MIB), client.proxy, tmp_path / "got", 30.0)
        assert got.error, "no stream goes out"
        assert client.events("circuit_linked") == []
    check(world)
