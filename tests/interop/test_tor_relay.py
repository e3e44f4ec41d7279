"""Our relays in a network of stock authorities, at every position of a path."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness import tlslook
from harness.seeded import MIB, seeded_bytes
from harness.tools import tool, wait_for
from harness.tornet import Node, TorNetwork, free_ports
from harness.torours import OurClient, OurRelay, http_get, kill_who_carries
from harness.webfiles import (
    AT_ONCE,
    BROKEN,
    FileServer,
    Silent,
    fetch,
    fetch_all,
    interrupted,
)

pytestmark = [pytest.mark.tor, pytest.mark.timeout(600)]

# Rate limit of the slow relay in bytes per second.
RATE = 1_000_000
WAYS = ("received", "sent")
# A port of this machine that our exit's policy refuses.
REFUSED = 9
TORPY = Path(__file__).parent / "peers" / "torpy" / "fetch.py"
# : Counters of both ways.
PADDING = ("padding_received", "padding_sent")
# Hops of circuits by the position of our relay: "ours" or "stock", the first hop first.
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
    family: str

    def path(self, place: str) -> tuple[tuple[str, str], ...]:
        """Returns names and fingerprints of a path, first hop first."""
        stock = [*self.network.of("relay")[:2], self.network.of("exit")[0]]
        ours = [(relay.name, relay.fingerprint) for relay in self.ours]
        theirs = [(node.name, node.fingerprint) for node in stock]
        kinds = {"ours": ours, "stock": theirs}
        return tuple(kinds[kind][hop] for hop, kind in enumerate(PLACES[place]))


def family_key(folder: Path) -> Path:
    """Makes a family key with C tor; its identity is in a file next to it."""
    (folder / "nothing").touch()
    command = [tool("tor"), "-f", "nothing", "--defaults-torrc", "nothing"]
    subprocess.run(
        [*command, "--keygen-family", "kin"], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return folder / "kin.secret_family_key"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields a network: three authorities, two relays and an exit of C tor; two relays, an exit
    and a slow relay of ours.
    """
    folder = tmp_path_factory.mktemp("tor")
    with TorNetwork(folder, relays=2, exits=1) as network:
        slow = ["--rate", str(RATE), "--burst", str(RATE), "--threads", "1"]
        (port6,) = free_ports(1)
        both = ["--address6", "::1", "--listen", f"[::1]:{port6}"]
        rules = ["reject 0.0.0.0/8:*", f"reject 127.0.0.1:{REFUSED}", "accept *6:*", "accept *:*"]
        exit_ = [word for rule in rules for word in ("--exit", rule)] + ["--threads", "3"]
        slow += ["--family-key", str(family_key(folder))]
        options: list[list[str]] = [both, ["--threads", "2"], exit_, slow]
        ours = [
            OurRelay(network, folder / f"ours{number}", f"ours{number}", *more)
            for number, more in enumerate(options)
        ]
        network.others = {relay.name: relay.fingerprint for relay in ours}
        network.other_exits = ["ours2"]
        family = (folder / "kin.public_family_id").read_text().strip()
        try:
            network.start()
            network.wait_for_all()
            yield World(network, ours, family)
        finally:
            for relay in ours:
                relay.close()


def check(world: World) -> None:
    """Asserts that no node logs a complaint about another node."""
    assert world.network.complaints() == []
    for relay in world.ours:
        assert relay.violations() == [], relay.name


def test_stock_authorities_vote_for_our_relays(world: World) -> None:
    """The consensus has our relays with the flags that clients need."""
    with world.network.of("auth")[0].control() as control:
        flags = dict(control.routers().values())
        words = control.info(f"ns/id/{world.ours[0].fingerprint}")
    for relay in world.ours:
        assert {"Running", "Valid", "Fast", "Guard", "V2Dir"} <= flags[relay.name], flags
    assert "Exit" in flags["ours2"]
    # Authorities have reached the relay at its IPv6 address, with the right ed25519 identity.
    assert any(line.startswith("a [::1]:") for line in words), words
    check(world)


def test_stock_authorities_list_the_family_that_certifies_our_relay(world: World) -> None:
    """The microdescriptor of a relay with a family key made by C tor lists this family."""
    with world.network.of("auth")[0].control() as control:
        lines = [control.info(f"md/id/{relay.fingerprint}") for relay in world.ours]
    families = [[line for line in about if line.startswith("family-ids")] for about in lines]
    assert families == [[], [], [], [f"family-ids ed25519:{world.family}"]]
    check(world)


def test_a_stock_client_reaches_ipv6_by_our_exit(world: World, tmp_path: Path) -> None:
    """The consensus lists our exit's IPv6 ports, and streams to IPv6 addresses arrive."""
    with world.network.of("auth")[0].control() as control:
        about = control.info(f"md/id/{world.ours[2].fingerprint}")
    assert "p6 accept 1-65535" in about, about
    with through_our_exit(world, "six") as client, FileServer("::1") as server:
        got = fetch(server.url(MIB, "[::1]"), client.proxy, tmp_path / "got")
        assert not got.fault(MIB), got.fault(MIB)
    check(world)


@pytest.mark.parametrize("place", PLACES)
def test_a_stock_client_goes_by_our_relays(
    world: World, place: str, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 200 MiB arrive intact over a pinned path, and no tor logs a complaint."""
    path = tuple(fingerprint for _, fingerprint in world.path(place))
    client = world.network.client(f"client{place}", "ConfluxEnabled 0", path=path)
    fetch_all(client.proxy, tmp_path, partial(results.add, "stock client, our relays", place=place))
    with client.control() as control:
        used = control.paths()
    client.close()
    assert used == {path}
    ours = {relay.fingerprint: relay for relay in world.ours}
    if path[2] in ours:
        assert ours[path[2]].number("circuits_cgo") > 0, "tor asks its exit for CGO"
    check(world)


def through_our_exit(world: World, name: str, *options: str) -> Node:
    """Returns a stock client whose only exit is ours."""
    only = [f"ExitNodes {world.ours[2].fingerprint}", "StrictNodes 1", "ConfluxEnabled 0"]
    return world.network.client(name, *only, *options)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_refused_address_is_no_reason_to_leave_our_exit(
    world: World, host: str, tmp_path: Path
) -> None:
    """After our exit refuses a name or an address, a stock client uses it for other streams."""
    client = through_our_exit(world, f"refused{host.count('.')}")
    try:
        # The client retries, because it has no other exit.
        refused = fetch(f"http://{host}:{REFUSED}/", client.proxy, tmp_path / "got", 5.0)
        assert refused.error, "it is refused"
        with FileServer() as server:
            got = fetch(server.url(MIB, "localhost"), client.proxy, tmp_path / "got")
        assert not got.fault(MIB), f"{got.fault(MIB)}\n{client.log()[-10:]}"
    finally:
        client.close()
    check(world)


def test_a_probe_of_a_circuit_that_nobody_used_has_its_answer(world: World, tmp_path: Path) -> None:
    """Path bias probe: tor requests an address that does not exist, and recognises the exit's
    answer by it.
    """
    client = through_our_exit(world, "prober", "MaxCircuitDirtiness 10")
    sent, answered = "Sending pathbias testing cell", "Got valid path bias probe back"

    def probed(word: str) -> bool:
        return any(word in line for line in client.log("details"))

    try:
        with Silent() as silent:
            # The stream is never answered, so its circuit is probed after some time.
            fetch(f"http://127.0.0.1:{silent.port}/", client.proxy, tmp_path / "got", 3.0)
            assert client.process is not None
            client.process.wait_until("a probe", lambda: probed(sent), 90.0)
        client.process.wait_until("its answer", lambda: probed(answered), 30.0)
    finally:
        client.close()
    check(world)


def torpy_hop(world: World, fingerprint: str) -> str:
    """Returns one of our relays as an argument of ``peers/torpy``, by its descriptor."""
    authority = world.network.of("auth")[0]
    _, _, text = http_get(authority.dirport, f"/tor/server/fp/{fingerprint}")
    lines = dict(line.split(" ", 1) for line in text.decode().splitlines() if " " in line)
    orport = lines["router"].split()[2]
    return f"127.0.0.1:{orport},{fingerprint},{lines['ntor-onion-key']}"


def test_torpy_whose_sendmes_bear_no_tag_downloads_through_our_relays(world: World) -> None:
    """A download of 5 MiB takes a hundred SENDMEs of version 0, which C tor accepts too."""
    length = 5 * MIB
    hops = [torpy_hop(world, fingerprint) for _, fingerprint in world.path("all")]
    with FileServer() as server:
        command = [sys.executable, str(TORPY), server.url(length), *hops]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    expected = hashlib.sha256(seeded_bytes(length)).hexdigest()
    assert done.stdout.split() == [str(length), expected], done.stderr[-2000:]
    check(world)


def test_a_stock_client_and_our_guard_pad_their_silent_link(world: World) -> None:
    """Both ends send padding although no circuit is used."""
    path = [fingerprint for _, fingerprint in world.path("guard")]
    guard = world.ours[0]
    before = [guard.number(name) for name in PADDING]
    client = world.network.client("silent", "ConfluxEnabled 0", path=path)
    try:

        def grown() -> bool:
            now = [guard.number(name) for name in PADDING]
            return all(after > then + 2 for after, then in zip(now, before, strict=True))

        guard.process.wait_until("padding both ways", grown, 120)
    finally:
        client.close()
    check(world)


def test_nobody_tells_a_relay_of_ours_by_its_certificate(world: World) -> None:
    """Our certificate's names, key, signature, serial number and validity have a stock relay's
    form.
    """
    theirs = tlslook.certificate(world.network.of("relay")[0].orport)
    for relay in world.ours:
        ours = tlslook.certificate(relay.orport)
        assert min(ours.days, theirs.days) >= 5
        assert max(ours.days, theirs.days) <= 364
        # The first bytes of a random number may be zero.
        assert min(ours.serial_bytes, theirs.serial_bytes) >= 6
        one, two = (replace(each, days=0, serial_bytes=0) for each in (ours, theirs))
        assert one == two
    names = {
        tlslook.session(relay.orport).partition("subject=")[2].split("\n")[0]
        for relay in world.ours
    }
    assert len(names) == len(world.ours), "each has names of its own"
    check(world)


@pytest.mark.parametrize(
    "offer",
    [
        "-tls1_3",
        "-tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256",
        "-tls1_3 -ciphersuites TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384",
        "-tls1_3 -groups X25519",
        "-tls1_3 -groups P-256",
        "-tls1_3 -groups P-384:P-256",
        "-tls1_3 -groups P-384",
        "-tls1_3 -alpn h2",
        "-tls1_2 -groups P-256",
        "-tls1_2 -groups P-256 -cipher ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256",
        "-tls1_2 -cipher AES256-GCM-SHA384",
        "-tls1_1 -cipher ALL:@SECLEVEL=0",
    ],
)
def test_a_relay_of_ours_chooses_as_a_stock_one_does(world: World, offer: str) -> None:
    """From a prober's offer, our relay chooses the same version, cipher, key exchange and ALPN."""
    theirs = tlslook.choice(world.network.of("relay")[0].orport, *offer.split())
    assert tlslook.choice(world.ours[0].orport, *offer.split()) == theirs


def test_a_handshake_with_a_relay_of_ours_has_the_same_messages(world: World) -> None:
    """The handshake is followed by two tickets, of the same length as a stock relay's."""
    theirs = tlslook.messages(world.network.of("relay")[0].orport)
    ours = tlslook.messages(world.ours[0].orport)
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    assert ours[-1] == theirs[-1]
    assert ours[-1][0] == "NewSessionTicket"
    # The lengths of certificates differ, because their names do.
    for (name, length), (_, other) in zip(ours, theirs, strict=True):
        if name not in tlslook.OURS_TO_DIFFER:
            assert abs(length - other) <= 30, name


def test_a_stock_clients_download_goes_on_while_our_relays_read_their_settings_again(
    world: World, tmp_path: Path
) -> None:
    """Repeated SIGHUPs to all three relays of the path lose no byte."""
    path = tuple(fingerprint for _, fingerprint in world.path("all"))
    client = world.network.client("hangup", "ConfluxEnabled 0", path=path)
    length = 64 * MIB

    def hang_up() -> None:
        for _ in range(5):
            for relay in world.ours:
                os.kill(relay.process.pid, signal.SIGHUP)
            time.sleep(0.2)

    try:
        with FileServer() as server, ThreadPoolExecutor() as pool:
            done = pool.submit(fetch, server.url(length), client.proxy, tmp_path / "got")
            hang_up()
            got = done.result()
        assert not got.fault(length), got.fault(length)
    finally:
        client.close()
    for relay in world.ours:
        assert len(relay.events("reloaded")) >= 1, relay.name
    check(world)


@pytest.mark.parametrize("place", PLACES)
def test_our_client_goes_by_both_kinds(
    world: World, place: str, tmp_path: Path, results: Results
) -> None:
    """Our client uses mixed paths, with our relay at every position."""
    path = world.path(place)
    pins: list[str] = []
    for option, (_, fingerprint) in zip(("--entry", "--middle", "--exit"), path, strict=True):
        pins += [option, fingerprint]
    with OurClient(world.network, tmp_path / "c", *pins) as client:
        client.wait_ready()
        add = partial(results.add, "our client, both kinds of relays", place=place)
        fetch_all(client.proxy, tmp_path, add)
        assert set(client.paths()) == {tuple(name for name, _ in path)}
        assert client.events("violation") == []
    check(world)


def test_a_relay_keeps_to_its_rate_and_tells_prometheus(
    world: World, tmp_path: Path, results: Results
) -> None:
    """A download takes as long as the middle relay's rate requires; counters show the bytes."""
    stock, slow, exit_ = world.network.of("relay")[0], world.ours[3], world.network.of("exit")[0]
    pins = ["--entry", stock.fingerprint, "--middle", slow.fingerprint]
    length = 8 * MIB
    before = slow.scrape()
    with (
        OurClient(world.network, tmp_path / "c", *pins, "--exit", exit_.fingerprint) as client,
        FileServer() as server,
    ):
        client.wait_ready()
        got = fetch(server.url(length), client.proxy, tmp_path / "got")
    assert not got.fault(length), got.fault(length)
    # A burst may pass immediately.
    assert got.seconds > (length - RATE) / RATE, got

    def counted() -> bool:
        after = slow.scrape()
        grown = {series: after[series] - before[series] for series in before}
        wire = [grown[f'anabranch_relay_link_bytes_total{{direction="{way}"}}'] for way in WAYS]
        return min(wire) > length and grown["anabranch_relay_cells_total"] > length / 498

    # Metrics are those of the last full second.
    wait_for("counters that tell of all bytes", counted, 5.0)
    results.add("a relay held to a rate", rate=RATE, bytes=length, seconds=f"{got.seconds:.1f}")
    check(world)


@pytest.mark.parametrize("place", ["middle", "exit"])
def test_a_killed_relay_ends_its_streams_at_once_and_the_next_go_elsewhere(
    world: World, place: str, tmp_path: Path
) -> None:
    """After ``kill -9`` during a download there is an error at once, and the next stream has a new
    circuit.

    Killed are our middle relay between stock ones, and an exit of either kind after our middle
    relay.
    """
    stock, exits = world.network.of("relay"), world.network.of("exit")
    mortal: Sequence[OurRelay | Node] = (
        world.ours[:2] if place == "middle" else [exits[0], world.ours[2]]
    )
    pins: dict[str, Sequence[OurRelay | Node]] = {
        "entry": stock[:1], "middle": world.ours[:1], "exit": exits[:1], place: mortal
    }  # fmt: skip
    options: list[str] = []
    for hop, relays in pins.items():
        options += [f"--{hop}", ",".join(relay.fingerprint for relay in relays)]
    with OurClient(world.network, tmp_path / "c", *options) as client, FileServer() as server:
        client.wait_ready()
        kill = kill_who_carries(mortal)
        dead, status, seconds = interrupted(server, client.proxy, tmp_path / "got", kill)
        try:
            got = fetch(server.url(MIB), client.proxy, tmp_path / "got")
        finally:
            world.network.restart(dead) if isinstance(dead, Node) else dead.start()
        assert status in BROKEN, status
        assert seconds < AT_ONCE
        assert not got.fault(MIB), f"{got.fault(MIB)}\n{client.process.output()[-3000:]}"
    check(world)
