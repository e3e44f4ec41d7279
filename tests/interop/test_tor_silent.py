"""Relays that fall silent under open circuits, and an exit whose name server does.

C tor's client waits 10 s for an exit's answer, then 10 s, then 15 s, each time over another
circuit. Eight users who share no circuit send requests at the same time, with our client and with
C tor's in the same network. No user of our client may wait longer than the slowest user of C
tor's, or than the sum of those three times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import Results
from harness.tornet import Node, TorNetwork
from harness.torours import OurClient
from harness.webfiles import Download, FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(600)]

USERS, REQUESTS = 8, 15
FIRST_S, ALL_S = 10.0, 10.0 + 10.0 + 15.0
SLACK_S = 5.0  # circuits are built meanwhile
QUICK_S = 0.1
NAME = "web.example"


@pytest.fixture(scope="module")
def deaf() -> Iterator[socket.socket]:
    """Yields a socket in place of a name server, which never answers."""
    with socket.socket(type=socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.setblocking(False)
        yield deaf


@pytest.fixture(scope="module")
def network(deaf: socket.socket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorNetwork]:
    """Yields a network of stock tors in which the last exit's name server never answers."""
    folder = tmp_path_factory.mktemp("tor")
    with TorNetwork(folder, relays=4, exits=3) as network:
        dead = folder / "dead.conf"
        dead.write_text(f"nameserver 127.0.0.1:{deaf.getsockname()[1]}\n")
        network.of("exit")[-1].options = [f"ServerDNSResolvConfFile {dead}"]
        network.start()
        yield network


def asked(deaf: socket.socket) -> int:
    """Returns the number of unanswered queries since the last call."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while deaf.recv(1500):
            count += 1
    return count


@contextlib.contextmanager
def silenced(node: Node) -> Iterator[None]:
    """Stops a node's process while the block runs."""
    assert node.process is not None, "it runs"
    os.kill(node.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.process.pid, signal.SIGCONT)


def ask(url: str, socks: int, user: int, into: Path) -> Download:
    """Sends one user's request."""
    proxy = f"socks5h://user{user}:x@127.0.0.1:{socks}"
    return fetch(url, proxy, into / f"got{user}", 150.0)


def ask_all(url: str, socks: int, into: Path) -> list[float]:
    """Sends all users' requests at the same time; returns the seconds to each response."""
    with ThreadPoolExecutor(USERS) as pool:
        got = list(pool.map(lambda user: ask(url, socks, user, into), range(USERS)))
    assert [one.fault(1) for one in got if one.fault(1)] == []
    return [one.seconds for one in got]


def ask_on(url: str, socks: int, user: int, into: Path) -> float:
    """Returns the longest time of a user's next requests."""
    got = [ask(url, socks, user, into) for _ in range(REQUESTS)]
    assert [one.fault(1) for one in got if one.fault(1)] == []
    return max(one.seconds for one in got)


def middle_of(network: TorNetwork, paths: Sequence[Sequence[str]]) -> Node:
    """Returns the relay that is most often the middle of these paths, and never a guard."""
    guards = {path[0] for path in paths}
    middles = Counter(path[1] for path in paths if path[1] not in guards)
    (named, _) = middles.most_common(1)[0]
    relays = [node for node in network.nodes if node.role != "client"]
    return next(node for node in relays if named in (node.name, node.fingerprint))


def victim(network: TorNetwork, place: str, paths: Sequence[Sequence[str]]) -> Node:
    """Returns the node to stop."""
    return network.of("exit")[0] if place == "exit" else middle_of(network, paths)


def stock_waits(network: TorNetwork, place: str, legs: int, into: Path) -> float:
    """Returns the longest waiting time of C tor's users."""
    name, conflux = f"stock{place}{legs}", f"ConfluxEnabled {int(legs > 1)}"
    client = network.client(name, conflux)
    try:
        with FileServer() as server:
            url = server.url(1)
            ask_all(url, client.socks, into)
            with client.control() as control:
                circuits = control.circuits()
            paths = [circuit.hops for circuit in circuits if len(circuit.hops) == 3]
            with silenced(victim(network, place, paths)):
                return max(ask_all(url, client.socks, into))
    finally:
        client.close()


@pytest.mark.parametrize(
    ("place", "legs"), [("exit", 1), ("exit", 2), ("middle", 1), ("middle", 2)]
)
def test_users_of_circuits_through_a_silent_relay_are_served_by_others_in_c_tors_time(
    network: TorNetwork, place: str, legs: int, tmp_path: Path, results: Results
) -> None:
    """The relay gets SIGSTOP while its circuits are in use, and while they are spare."""
    stock = stock_waits(network, place, legs, tmp_path)
    ours = OurClient(network, tmp_path / "ours", "--legs", str(legs))
    with ours as client, FileServer() as server:
        client.wait_ready()
        url = server.url(1)
        ask_all(url, client.socks, tmp_path)
        before = max(ask_on(url, client.socks, user, tmp_path) for user in range(2))
        with silenced(victim(network, place, client.paths())):
            waits = ask_all(url, client.socks, tmp_path)
            after = max(ask_on(url, client.socks, user, tmp_path) for user in range(USERS))
        assert client.events("violation") == []
    results.add(
        "a silent relay", place=place, legs=legs, users_who_waited=sum(w > 1 for w in waits),
        longest_s=max(waits), stock_longest_s=stock, later_s=after, undisturbed_s=before,
    )  # fmt: skip
    assert max(waits) >= FIRST_S, "nobody's circuit led there"
    assert max(waits) <= max(stock, ALL_S) + SLACK_S
    assert after <= max(QUICK_S, 2 * before)


def test_a_name_that_one_exit_cannot_find_is_asked_of_others(
    network: TorNetwork, deaf: socket.socket, tmp_path: Path, results: Results
) -> None:
    """The last exit's name server never answers: users whose circuit ends there are served by
    other exits.
    """
    with OurClient(network, tmp_path / "ours", "--legs", "1") as client, FileServer() as server:
        client.wait_ready()
        # Every exit serves addresses; afterwards each user has a circuit.
        ask_all(server.url(1), client.socks, tmp_path)
        before = max(ask_on(server.url(1), client.socks, user, tmp_path) for user in range(2))
        url, _ = server.url(1, NAME), asked(deaf)
        waits = ask_all(url, client.socks, tmp_path)
        after = max(ask_on(url, client.socks, user, tmp_path) for user in range(USERS))
        assert client.events("violation") == []
    results.add(
        "a dead name server", users_who_waited=sum(wait > 1 for wait in waits),
        longest_s=max(waits), later_s=after,
    )  # fmt: skip
    assert asked(deaf) > 0, "nobody's circuit ended there"
    assert max(waits) <= ALL_S + SLACK_S
    assert after <= max(QUICK_S, 2 * before)
