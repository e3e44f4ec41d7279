"""Circuits as paths to a far end: WireGuard, QUIC and Mosh over stock tor, Arti and our client.

All programs run on loopback, like the private Tor network; the WireGuard server's interface is in
a separate namespace.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import farend, quic
from harness.arti import Arti
from harness.farend import FarEnd
from harness.mosh import PORT as MOSH_PORT
from harness.mosh import Login, MoshServer
from harness.net import Host, links
from harness.seeded import MIB
from harness.splitter import Splitter
from harness.tools import wait_for
from harness.tornet import Node, TorNetwork, free_ports
from harness.torours import OurClient, network_of_ours
from harness.transfer import site
from harness.webfiles import FileServer, fetch
from harness.wireguard import Tunnel

pytestmark = [pytest.mark.stream_paths, pytest.mark.timeout(900)]

HERE = Host("here")
HOME = "127.0.0.1"
# Paths: an interface and two circuits, with equal probabilities. LEAST_SHARE allows for a download
# of few runs.
MIXED = ("u=addr:127.0.0.2", "o=onion:2")
NAMES = ("u", "o-1", "o-2")
LEAST_SHARE = 0.1
LENGTHS = (1, 1_000, MIB, 10 * MIB)
# Length of a long download, and its timeout. All relays of its circuits are on this machine.
LONG = 200 * MIB
LONG_SECONDS = 600.0
UP_SECONDS = 90.0
ARTI_SECONDS = 180.0
# Number of legs of each set of our client, and number of relays: enough for one set and some more.
LEGS, RELAYS = 2, 8


@contextmanager
def _split(
    folder: Path,
    to: str,
    paths: Sequence[str],
    socks: int,
    names: Sequence[str],
    *,
    listen: int = 0,
) -> Iterator[tuple[Splitter, str]]:
    """Yields a splitter to a far end in front of the server at ``to``, with all paths up, and its
    listening address.
    """
    udp, tcp, free = free_ports(3)
    at = f"{HOME}:{listen or free}"
    far_key, home_key = farend.make_keys(folder)
    streams = f"{HOME}:{tcp}"
    own = ["--listen-tcp", streams]
    ends = ["--key", str(home_key), "--to-tcp", streams, "--onion-socks", f"{HOME}:{socks}"]
    far_at = f"{HOME}:{udp}"
    with (
        FarEnd(HERE, to, far_key, every="~10p", options=own, listen=far_at),
        Splitter(
            HERE, far_at, paths, every="~10p", schedule="uniform", listen=at, options=ends
        ) as splitter,
    ):
        splitter.wait_event("far_end", UP_SECONDS, state="up")
        wait_for("all paths", lambda: _are_up(splitter, names), UP_SECONDS)
        yield splitter, at


def _are_up(splitter: Splitter, names: Sequence[str]) -> bool:
    """Returns whether these are the paths, and each was up in the latest counters."""
    stats = splitter.of("stats")
    paths = stats[-1]["paths"] if stats else []
    return [path["name"] for path in paths if path["state"] == "up"] == list(names)


@contextmanager
def _tunnel(network_server: Host, splitter: Splitter, at: str, port: int) -> Iterator[Tunnel]:
    """Runs WireGuard through a splitter that listens at ``at``."""
    with Tunnel(HERE, HERE, at, network_server, port) as tunnel:
        mtu = str(splitter.of("listening")[0]["tunnel_mtu"])
        # Loopback's MTU is larger than that of any real line.
        mtu = str(min(int(mtu), 1_360))
        for host, name in [(HERE, tunnel.name), (network_server, tunnel.server.name)]:
            host.must(["ip", "link", "set", name, "mtu", mtu])
        tunnel.ping(30)
        yield tunnel


def _shares(splitter: Splitter) -> dict[str, float]:
    """Returns each path's share of the packets down so far."""
    counts = splitter.counts()
    total = sum(each.down_packets for each in counts.values())
    return {name: each.down_packets / total for name, each in counts.items()}


def _assert_shared(splitter: Splitter, names: Sequence[str]) -> None:
    time.sleep(1.2)  # Counters are reported every second.
    shares = _shares(splitter)
    assert min(shares[name] for name in names) > LEAST_SHARE, shares


@pytest.fixture(scope="module")
def tor_client(stock_tor: TorNetwork) -> Node:
    """Returns Debian's tor as a client of the private network."""
    return stock_tor.client("paths", "ConfluxEnabled 0")


def test_wireguard_by_two_circuits_of_stock_tor_and_an_interface(
    make_network: MakeNetwork, tor_client: Node, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 200 MiB arrive intact, and each path has its share of the packets down."""
    server = make_network(links(1)).server
    root = site(tmp_path / "site", *LENGTHS, LONG)
    (port,) = free_ports(1)
    with (
        _split(tmp_path, f"{HOME}:{port}", MIXED, tor_client.socks, NAMES) as (splitter, at),
        _tunnel(server, splitter, at, port) as tunnel,
        tunnel.server.web(root),
    ):
        for length in LENGTHS:
            transfer = tunnel.download(length, 120)
            assert not transfer.fault(length)
        _assert_shared(splitter, NAMES)
        long = tunnel.download(LONG, LONG_SECONDS)
        assert not long.fault(LONG)
        assert splitter.stop()["sessions"] == 1
    for length, each in [(LENGTHS[-1], transfer), (LONG, long)]:
        results.add(
            "WireGuard by 2 circuits of tor and an interface", MiB=length // MIB,
            Mbits=each.goodput_mbits, longest_gap_s=each.longest_gap_s,
        )  # fmt: skip


def test_quic_by_two_circuits_of_stock_tor_and_an_interface(
    tor_client: Node, tmp_path: Path, results: Results
) -> None:
    """With quic-go's server and client, 10 MiB arrive intact, and each path has its share."""
    (port,) = free_ports(1)
    with (
        quic.serving("quic-go", HERE, tmp_path, address=HOME, port=port),
        _split(tmp_path, f"{HOME}:{port}", MIXED, tor_client.socks, NAMES) as (splitter, at),
    ):
        transfer = quic.download(HERE, "quic-go", at, 10 * MIB, seconds=120)
        assert not transfer.fault(10 * MIB)
        _assert_shared(splitter, NAMES)
    results.add("QUIC by 2 circuits of tor and an interface, 10 MiB", Mbits=transfer.goodput_mbits)


def test_mosh_by_two_circuits_of_stock_tor_and_an_interface(
    tor_client: Node, tmp_path: Path, results: Results
) -> None:
    """The output of every command appears on the screen."""
    (listen,) = free_ports(1)
    with (
        MoshServer(HERE, address=HOME, port=MOSH_PORT) as server,
        _split(tmp_path, f"{HOME}:{MOSH_PORT}", MIXED, tor_client.socks, NAMES, listen=listen) as (
            splitter,
            _,
        ),
        Login(HERE, HOME, listen, server.key) as login,
    ):
        result = login.run_for(20)
        assert not result.fault()
        assert splitter.stop()["sessions"] == 1
    results.add(
        "Mosh by 2 circuits of tor and an interface", commands=result.commands,
        slowest_s=result.slowest_s,
    )  # fmt: skip


def test_a_relay_of_a_circuit_that_is_killed_costs_no_session(
    make_network: MakeNetwork,
    stock_tor: TorNetwork,
    tor_client: Node,
    tmp_path: Path,
    results: Results,
) -> None:
    """An exit is killed during a download of 50 MiB: circuits are rebuilt over the other exit."""
    server = make_network(links(1)).server
    length = 50 * MIB
    root = site(tmp_path / "site", length)
    (port,) = free_ports(1)
    with ExitStack() as stack:
        split = _split(tmp_path, f"{HOME}:{port}", MIXED, tor_client.socks, NAMES)
        splitter, at = stack.enter_context(split)
        tunnel = stack.enter_context(_tunnel(server, splitter, at, port))
        stack.enter_context(tunnel.server.web(root))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        download = pool.submit(tunnel.download, length, 300.0)
        time.sleep(2)
        victim = _exit_in_use(stock_tor, tor_client)
        victim.kill()
        try:
            _wait_down_and_up(splitter)
            transfer = download.result()
        finally:
            stock_tor.restart(victim)
        assert not transfer.fault(length)
        assert "down" not in splitter.changes("u")[1:], splitter.of("path")
        assert splitter.stop()["sessions"] == 1
    results.add("An exit killed, longest gap, s", gap=transfer.longest_gap_s)


def _exit_in_use(network: TorNetwork, client: Node) -> Node:
    """Returns the exit of most of the client's circuits."""
    with client.control() as control:
        ends = [path[-1] for path in control.paths()]
    exits = network.of("exit")
    return max(exits, key=lambda node: ends.count(node.fingerprint))


def _wait_down_and_up(splitter: Splitter) -> None:
    """Waits until a circuit was down and is up again."""

    def is_back() -> bool:
        changes = [splitter.changes(name) for name in NAMES[1:]]
        # The states of a circuit are down at first, up, down and up again.
        return any(each.count("up") >= 2 for each in changes)

    wait_for("a circuit to come again", is_back, UP_SECONDS)


def test_an_exit_that_reaches_no_far_end_is_told_and_the_interface_carries(
    make_network: MakeNetwork, tor_client: Node, tmp_path: Path
) -> None:
    """The exit's error is reported in one line with the path's name; the session continues over
    the interface.
    """
    server = make_network(links(1)).server
    root = site(tmp_path / "site", MIB)
    port, udp, closed, listen = free_ports(4)
    far_key, home_key = farend.make_keys(tmp_path)
    at, far_at = f"{HOME}:{listen}", f"{HOME}:{udp}"
    ends = ["--key", str(home_key), "--to-tcp", f"{HOME}:{closed}"]
    ends += ["--onion-socks", f"{HOME}:{tor_client.socks}"]
    with (
        FarEnd(HERE, f"{HOME}:{port}", far_key, listen=far_at),
        Splitter(HERE, far_at, MIXED, listen=at, options=ends) as splitter,
    ):
        wait_for("a warning", lambda: bool(splitter.of("warning")), UP_SECONDS)
        text = str(splitter.of("warning")[0]["text"])
        assert text.startswith(("path 'o-1' (onion): the proxy", "path 'o-2' (onion): the proxy"))
        with _tunnel(server, splitter, at, port) as tunnel, tunnel.server.web(root):
            assert not tunnel.download(MIB, 60).fault(MIB)


def test_wireguard_by_three_circuits_of_our_client(
    make_network: MakeNetwork, tmp_path: Path, results: Results
) -> None:
    """`anabranch client --multipath anabranch` with our relays: the hash is right, and each path
    has its share.
    """
    server = make_network(links(1)).server
    root = site(tmp_path / "site", 10 * MIB)
    (port,) = free_ports(1)
    names = ("o-1", "o-2", "o-3")
    with ExitStack() as stack:
        network, _ = network_of_ours(tmp_path, stack, RELAYS)
        network.start()
        network.wait_for_all()
        sets = ["--multipath", "anabranch", "--legs", str(LEGS)]
        client = stack.enter_context(OurClient(network, tmp_path / "c", *sets))
        client.wait_ready()
        split = _split(tmp_path, f"{HOME}:{port}", ["o=onion:3"], client.socks, names)
        splitter, at = stack.enter_context(split)
        tunnel = stack.enter_context(_tunnel(server, splitter, at, port))
        stack.enter_context(tunnel.server.web(root))
        transfer = tunnel.download(10 * MIB, 120)
        assert not transfer.fault(10 * MIB)
        _assert_shared(splitter, names)
        designs = {event["multipath"] for event in client.events("circuit_linked")}
        assert designs == {"anabranch"}
    results.add("WireGuard by 3 circuits of our client, Mbit/s", HTTP=transfer.goodput_mbits)


def test_wireguard_by_three_circuits_of_arti(
    make_network: MakeNetwork, tmp_path: Path, results: Results
) -> None:
    """Arti's SOCKS port, which isolates streams by user, with our relays: the hash is right, and
    each path has its share.
    """
    server = make_network(links(1)).server
    root = site(tmp_path / "site", MIB)
    (port,) = free_ports(1)
    names = ("o-1", "o-2", "o-3")
    with ExitStack() as stack:
        network, relays = network_of_ours(tmp_path, stack, RELAYS)
        network.start()
        network.wait_for_all()
        (line,) = network.authorities
        arti = stack.enter_context(Arti(tmp_path / "arti", line, relays))
        pages = stack.enter_context(FileServer())
        wait_for(
            "a circuit of Arti's",
            lambda: not fetch(pages.url(1), arti.proxy, tmp_path / "first").fault(1),
            ARTI_SECONDS,
        )
        split = _split(tmp_path, f"{HOME}:{port}", ["o=onion:3"], arti.socks, names)
        splitter, at = stack.enter_context(split)
        tunnel = stack.enter_context(_tunnel(server, splitter, at, port))
        stack.enter_context(tunnel.server.web(root))
        transfer = tunnel.download(MIB, 240)
        assert not transfer.fault(MIB)
        _assert_shared(splitter, names)
    results.add("WireGuard by 3 circuits of Arti, 1 MiB, Mbit/s", HTTP=transfer.goodput_mbits)
