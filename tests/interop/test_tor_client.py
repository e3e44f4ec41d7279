"""Our client in a network of stock tors only."""

from __future__ import annotations

import hashlib
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.mosh import Screen
from harness.net import Host
from harness.seeded import MIB
from harness.tools import Background, tool
from harness.tornet import Node, TorNetwork, free_ports
from harness.torours import OurClient, client_command, kill_who_carries
from harness.webfiles import (
    AT_ONCE,
    BROKEN,
    FileServer,
    fetch,
    fetch_all,
    interrupted,
)
from harness.website import load_by_proxy

pytestmark = [pytest.mark.tor, pytest.mark.timeout(600)]

HERE = Host("here", None)
OBJECTS = 50
HEIGHT = 32  # of each picture: 48 KiB


@pytest.fixture(scope="module")
def client(stock_tor: TorNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurClient]:
    """Yields one client for all tests, without any authority's directory port."""
    folder, authorities = tmp_path_factory.mktemp("client"), without_directory_ports(stock_tor)
    with OurClient(stock_tor, folder, authorities=authorities) as client:
        client.wait_ready()
        yield client


def test_our_client_carries_files_of_any_length_through_stock_relays(
    stock_tor: TorNetwork, client: OurClient, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 200 MiB arrive intact, and no tor logs a complaint about our client."""
    fetch_all(client.proxy, tmp_path, partial(results.add, "our client, stock relays"))
    assert stock_tor.complaints() == []
    assert client.events("violation") == []
    built = client.events("circuit_built")
    assert built
    assert all(event["cgo"] for event in built), "tor 0.4.9 does CGO"


def test_http_connect_serves_as_well(client: OurClient, tmp_path: Path) -> None:
    """The SOCKS port also accepts HTTP CONNECT."""
    with FileServer() as server:
        proxy = f"http://127.0.0.1:{client.socks}"
        got = fetch(server.url(MIB), proxy, tmp_path / "got", 60.0, "--proxytunnel")
        assert not got.fault(MIB), got.fault(MIB)


def ask_http(port: int, head: str, seconds: float = 60.0) -> tuple[socket.socket, str]:
    """Sends a request's head to an HTTP proxy at ``port``; returns the connection and the
    response's head.
    """
    link = socket.create_connection(("127.0.0.1", port), timeout=seconds)
    link.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = link.recv(4096)
        if not piece:
            break
        answer += piece
    return link, answer.decode()


def verdict(answer: str) -> tuple[str, str]:
    """Returns the status of a response, and its reason of a failure."""
    status = [*answer.split(), "", ""][1]
    failed = re.search(r"^Tor-Request-Failed: (\S+)", answer, re.MULTILINE)
    return status, failed.group(1) if failed else ""


def test_streams_that_ask_to_be_kept_apart_by_a_header_share_no_circuit(
    stock_tor: TorNetwork, tmp_path: Path
) -> None:
    """Eight streams with different values of Tor-Stream-Isolation use eight circuits; with one
    value, fewer.
    """
    count, circuits = 8, {}
    for which in ("one value", "a value each"):
        with (
            OurClient(stock_tor, tmp_path / which, "--legs", "1") as client,
            FileServer() as server,
            ExitStack() as held,
        ):
            client.wait_ready()
            for number in range(count):
                value = number if which == "a value each" else "same"
                head = f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\nTor-Stream-Isolation: {value}"
                link, answer = ask_http(client.socks, head)
                held.enter_context(link)
                assert answer.startswith("HTTP/1.1 200 "), answer
                assert "\r\nVia: tor/1.0 tor-network (Anabranch " in answer
            circuits[which] = len(client.events("circuit_built"))
    assert circuits["one value"] < count <= circuits["a value each"], circuits


def test_http_answers_are_those_of_a_stock_tor(stock_tor: TorNetwork, client: OurClient) -> None:
    """Statuses and reasons are those of tor's HTTPTunnelPort; other requests get no response."""
    closed, tunnel = free_ports(2)
    stock_tor.client("tunnel", f"HTTPTunnelPort 127.0.0.1:{tunnel}")
    with FileServer() as server:
        heads = (
            "OPTIONS * HTTP/1.1\nHost: localhost",
            "OPTIONS * HTTP/1.1\nHost: a.example",
            "GET / HTTP/1.1\nHost: localhost",
            "GET / HTTP/1.1\nHost: a.example",
            f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\nTor-RPC-Target: 1",
            f"CONNECT web.example:{server.port} HTTP/1.1\nTor-Stream-Isolation: 1",
            f"CONNECT 127.0.0.1:{closed} HTTP/1.1",
            "CONNECT no.such.name.example:80 HTTP/1.1",
        )
        for head in heads:
            (ours, here), (theirs, there) = ask_http(client.socks, head), ask_http(tunnel, head)
            ours.close()
            theirs.close()
            if "RPC" in head:
                assert verdict(here)[0] == verdict(there)[0] == "501"
                continue
            assert verdict(here) == verdict(there), (head, here, there)
            names = [
                {line.split(":")[0] for line in answer.split("\r\n\r\n")[0].splitlines()[1:]}
                for answer in (here, there)
            ]
            assert names[1] <= names[0], (head, here, there)


def test_user_names_of_a_format_that_is_not_known_are_refused(client: OurClient) -> None:
    """By proposal 351, ``<torS0X>0`` isolates by password; unknown formats are refused, as they
    may have any meaning.
    """
    for user, status in ((b"<torS0X>0", 0), (b"<torS0X>1", 1), (b"<torS0X>0x", 1), (b"user", 0)):
        with socket.create_connection(("127.0.0.1", client.socks), timeout=10) as link:
            link.sendall(b"\x05\x01\x02\x01" + bytes([len(user)]) + user + b"\x01p")
            assert link.recv(4, socket.MSG_WAITALL) == bytes([5, 2, 1, status]), user


def test_uploads_arrive(client: OurClient, tmp_path: Path) -> None:
    """Uploads arrive intact, which tests the other direction's windows and SENDMEs."""
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)) * 80_000)
    with FileServer() as server:
        command = [tool("curl"), "-sS", "--noproxy", "", "--proxy", client.proxy, "-m", "120"]
        command += ["-H", "Expect:", "--data-binary", f"@{body}", server.url(0)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == hashlib.sha256(body.read_bytes()).hexdigest()


def test_many_streams_at_once(client: OurClient, tmp_path: Path) -> None:
    """Thirty simultaneous downloads arrive, of three users who share no circuit."""
    with FileServer() as server, ThreadPoolExecutor(30) as pool:

        def one(number: int) -> str:
            proxy = f"socks5h://user{number % 3}:x@127.0.0.1:{client.socks}"
            got = fetch(server.url(MIB), proxy, tmp_path / f"got{number}")
            return got.fault(MIB)

        assert [fault for fault in pool.map(one, range(30)) if fault] == []


def test_pinned_relays_are_the_ones_that_are_used(stock_tor: TorNetwork, tmp_path: Path) -> None:
    """The path is the one that --entry, --middle and --exit name."""
    guard, middle, exit_ = (
        stock_tor.of("relay")[0],
        stock_tor.of("relay")[1],
        stock_tor.of("exit")[0],
    )
    pins = ["--entry", guard.fingerprint, "--middle", middle.fingerprint]
    with OurClient(stock_tor, tmp_path / "c", *pins, "--exit", exit_.fingerprint) as client:
        client.wait_ready()
        with FileServer() as server:
            got = fetch(server.url(MIB), client.proxy, tmp_path / "got")
            assert not got.fault(MIB), got.fault(MIB)
        assert set(client.paths()) == {(guard.name, middle.name, exit_.name)}


def test_a_second_start_needs_no_download_and_keeps_its_guard(
    stock_tor: TorNetwork, tmp_path: Path
) -> None:
    """With its state on disk, the client has the same guard and is ready at once. It has one leg,
    because of two either could be first.
    """
    guards = []
    for _ in range(2):
        with OurClient(stock_tor, tmp_path / "c", "--legs", "1") as client:
            client.wait_ready()
            guards.append({path[0] for path in client.paths()})
            assert client.process.stop() == 0
    assert guards[0] == guards[1]
    assert len(guards[0]) == 1


def test_a_stock_exit_finds_names(stock_tor: TorNetwork, client: OurClient, tmp_path: Path) -> None:
    """The client sends names to the exit unresolved; only the exit's name server is queried."""
    with FileServer() as server:
        got = fetch(server.url(MIB, "web.example"), client.proxy, tmp_path / "got")
        assert not got.fault(MIB), got.fault(MIB)
        missing = fetch(server.url(1, "no.such.name.example"), client.proxy, tmp_path / "got")
        assert "Can't complete SOCKS5" in missing.error, missing
    assert {"web.example", "no.such.name.example"} <= set(stock_tor.names.asked)


def test_names_and_addresses_are_resolved(client: OurClient) -> None:
    """Tor's program (tor-resolve) resolves a name, and the name of an address."""
    command = [tool("tor-resolve"), "-p", str(client.socks)]
    for question, answer in (("other.example", "127.0.0.1"), ("web.example", "127.0.0.1")):
        said = subprocess.run([*command, question], capture_output=True, text=True, check=True)
        assert said.stdout.strip() == answer
    said = subprocess.run([*command, "gone.example"], capture_output=True, text=True, check=False)
    assert said.returncode != 0


@pytest.mark.parametrize("way", ["socks4", "socks4a"])
def test_socks4_serves_as_well(client: OurClient, way: str, tmp_path: Path) -> None:
    """The SOCKS port also accepts SOCKS4, and names with SOCKS4a."""
    with FileServer() as server:
        host = "web.example" if way == "socks4a" else "127.0.0.1"
        proxy = f"{way}://user@127.0.0.1:{client.socks}"
        got = fetch(server.url(MIB, host), proxy, tmp_path / "got")
        assert not got.fault(MIB), got.fault(MIB)


def test_a_browser_that_opens_the_proxy_port_reads_what_it_is(client: OurClient) -> None:
    """The port responds to a browser with a page that explains that it is not a web server."""
    command = [tool("curl"), "-sS", "--noproxy", "*", f"http://127.0.0.1:{client.socks}/"]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "proxy port of an onion network's client" in page


def refused_at_once(client: OurClient, url: str) -> tuple[str, dict[str, object]]:
    """Returns curl's error for a stream that is refused within a second or two, and the client's
    event.
    """
    told = len(client.events("refused"))
    command = [tool("curl"), "-sS", "--noproxy", "", "--proxy", client.proxy, "-m", "60", url]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert time.monotonic() - begun < AT_ONCE, "it was kept waiting"
    client.process.wait_until("an event", lambda: len(client.events("refused")) > told, 5.0)
    return done.stderr, client.events("refused")[-1]


def test_what_no_relay_exits_to_is_refused_at_once_and_keeps_nobody_waiting(
    stock_tor: TorNetwork, client: OurClient, tmp_path: Path
) -> None:
    """A port that no exit allows, IPv6 without an exit for it, and an onion service are refused at
    once; the next stream works.
    """
    said, event = refused_at_once(client, "http://[2001:db8::1]:80/")
    assert "(2)" in said, "not allowed by the ruleset"
    assert (event["port"], event["why"]) == (80, "no_exit")
    assert "IPv6" in str(event["what"])
    said, event = refused_at_once(client, f"http://{'a' * 56}.onion/")
    assert "(1)" in said, "general failure"
    assert event["why"] == "onion"
    with FileServer() as server:
        got = fetch(server.url(MIB), client.proxy, tmp_path / "got", 20.0)
        assert not got.fault(MIB), got.fault(MIB)


def test_a_wish_for_a_relay_that_nobody_lists_is_told_at_once(
    stock_tor: TorNetwork, tmp_path: Path
) -> None:
    """An unknown relay is reported, and streams are refused rather than delayed; an onion service
    gets Tor's own error code.
    """
    nobody = "F" * 40
    options = ["--exit", nobody, "--extended-errors"]
    with OurClient(stock_tor, tmp_path / "c", *options) as client:

        def told() -> list[dict[str, object]]:
            return [event for event in client.events("trouble") if nobody in str(event["what"])]

        client.process.wait_until("a line", lambda: bool(told()), 60)
        client.process.wait_until("a network", lambda: bool(client.events("ready")), 60)
        said, event = refused_at_once(client, "http://127.0.0.1:80/")
        assert "(2)" in said
        assert (event["why"], str(event["what"]).count("--exit")) == ("no_exit", 1)
        said, _ = refused_at_once(client, f"http://{'a' * 56}.onion/")
        assert "(240)" in said, "0xF0, as --extended-errors has it"
        assert len(told()) == 1


def test_where_all_relays_are_of_one_subnet_streams_are_refused_with_the_reason(
    stock_tor: TorNetwork, tmp_path: Path
) -> None:
    """Without ``--share-subnets`` no path can be built on one machine, and streams are refused
    with this reason.
    """
    command, port = client_command(stock_tor, tmp_path / "c")
    command.remove("--share-subnets")
    with Background([*command]) as client:
        line = "no usable relay can be the first of a circuit: a circuit never uses two relays of"
        ask = [tool("curl"), "-sS", "-m", "60", "--noproxy", "", "http://127.0.0.1:80/"]
        client.wait_until("a line", lambda: f"not ready: {line}" in client.output(), 60)
        for proxy, word in (
            (f"socks5h://127.0.0.1:{port}", "(1)"),
            (f"http://127.0.0.1:{port}", "503"),
        ):
            tunnel = ["--proxytunnel", "--proxy", proxy]
            done = subprocess.run([*ask, *tunnel], capture_output=True, text=True, check=False)
            assert word in done.stderr, done.stderr
        assert client.output().count(line) == 2, client.output()
        assert "\nready" not in client.output(), client.output()


def test_chromium_loads_a_page_of_fifty_objects(
    stock_tor: TorNetwork, client: OurClient, tmp_path: Path, results: Results
) -> None:
    """A browser that uses only the SOCKS5 proxy gets every picture intact."""
    took = load_by_proxy(tmp_path / "site", f"127.0.0.1:{client.socks}", OBJECTS, HEIGHT)
    results.add("Chromium by our client", objects=OBJECTS, seconds=f"{took:.1f}")
    assert stock_tor.complaints() == []


def test_a_killed_exit_ends_its_streams_at_once_and_the_next_go_elsewhere(
    stock_tor: TorNetwork, tmp_path: Path
) -> None:
    """After ``kill -9`` during a download, there is an error at once, and the next stream gets a
    new circuit.
    """
    guard, middle, exits = stock_tor.of("relay")[0], stock_tor.of("relay")[1], stock_tor.of("exit")
    pins = ["--entry", guard.fingerprint, "--middle", middle.fingerprint]
    pins += ["--exit", ",".join(node.fingerprint for node in exits)]
    with OurClient(stock_tor, tmp_path / "c", *pins) as client, FileServer() as server:
        client.wait_ready()
        kill = kill_who_carries(exits)
        killed, status, seconds = interrupted(server, client.proxy, tmp_path / "got", kill)
        try:
            got = fetch(server.url(MIB), client.proxy, tmp_path / "got")
        finally:
            assert isinstance(killed, Node)
            stock_tor.restart(killed)
        assert status in BROKEN, status
        assert seconds < AT_ONCE
        assert not got.fault(MIB), got.fault(MIB)
        assert client.events("circuit_closed")


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [(["--legs", "1"], "spare", "used"), ([], "leg 0", "minrtt")],
    ids=["one-leg", "sets"],
)
def test_the_live_view_shows_guards_circuits_and_what_they_carry(
    stock_tor: TorNetwork, tmp_path: Path, options: list[str], before: str, after: str
) -> None:
    """The live view on a terminal disappears at the end, and earlier output stays."""
    command, port = client_command(stock_tor, tmp_path / "c")
    with Screen([*command, *options], {}) as screen, FileServer() as server:
        assert screen.wait_text("ready, 8 relays", 60), screen.text()
        assert screen.wait_text(before, 30), screen.text()
        assert "guards: " in screen.text()
        got = fetch(server.url(MIB), f"socks5h://127.0.0.1:{port}", tmp_path / "got")
        assert not got.fault(MIB), got.fault(MIB)
        assert screen.wait_text(after, 10), screen.text()
        screen.enter("\x03")
        assert screen.wait_exit(10) == 0
        assert f"SOCKS and HTTP CONNECT proxy on 127.0.0.1:{port}" in screen.text()
        assert "guards: " not in screen.text()


def test_a_silent_link_to_a_stock_guard_is_padded_both_ways(
    client: OurClient, tmp_path: Path
) -> None:
    """Both ends send padding although no circuit of the link is used.

    The link is used first, because a stock guard with several DESTROYs for a link sends one and
    keeps the others until it has another cell to send. Meanwhile it sends no padding.
    """
    with FileServer() as server:
        got = fetch(server.url(MIB), client.proxy, tmp_path / "got")
        assert not got.fault(MIB), got.fault(MIB)

    def padded() -> list[int]:
        numbers = client.events("numbers")
        ways = ("padding_received", "padding_sent")
        return [int(str(numbers[-1][way])) if numbers else 0 for way in ways]

    before = padded()

    def grown() -> bool:
        return all(after > then + 2 for after, then in zip(padded(), before, strict=True))

    client.process.wait_until("padding both ways", grown, 120)


def test_without_an_or_port_an_authority_is_asked_at_its_directory_port(
    stock_tor: TorNetwork, tmp_path: Path
) -> None:
    """An authority's directory port is used until circuits can be built; later requests use
    circuits.
    """
    authorities = [re.sub(r"orport=\d+ ", "", line) for line in stock_tor.authorities]
    with OurClient(stock_tor, tmp_path / "c", authorities=authorities) as client:
        client.wait_ready()
        asked = client.events("directory")
    names = {node.name for node in stock_tor.of("auth")}
    assert not asked[0]["by_circuit"]
    assert {event["from"] for event in asked if not event["by_circuit"]} <= names


def test_what_a_client_lacks_later_is_had_of_its_guards_by_circuits(
    stock_tor: TorNetwork, tmp_path: Path
) -> None:
    """The client fetches an unknown relay's documents over circuits, without any authority's
    directory port.
    """
    folder, authorities = tmp_path / "c", without_directory_ports(stock_tor)
    with OurClient(stock_tor, folder, authorities=authorities) as client:
        client.wait_ready()
    kept = folder / "state" / "cached-microdescs"
    text = kept.read_text()
    relays = re.split(r"(?m)^(?=onion-key)", text)[1:]
    # Without the exits' documents it could not build circuits, and would ask authorities.
    lost = next(relay for relay in relays if "p accept" not in relay)
    kept.write_text(text.replace(lost, ""))
    with OurClient(stock_tor, folder, authorities=authorities) as client:
        client.process.wait_until("an answer", lambda: bool(client.events("directory")), 60)
        (asked,) = client.events("directory")
        client.process.wait_until("a circuit", lambda: bool(client.paths()), 60)
    assert (asked["what"], asked["by_circuit"], asked["good"]) == ("microdescriptors", True, True)
    assert asked["from"] in {node.name for node in stock_tor.nodes}
    assert lost in kept.read_text()


def test_no_request_of_a_client_reaches_an_authoritys_directory_port(
    stock_tor: TorNetwork, client: OurClient
) -> None:
    """All requests since the client's start used circuits."""
    asked = client.events("directory")
    authorities = {node.name for node in stock_tor.of("auth")}
    assert asked[0]["what"] == "consensus"
    assert asked[0]["from"] in authorities
    assert all(event["by_circuit"] for event in asked)
    assert stock_tor.complaints() == []


def without_directory_ports(network: TorNetwork) -> list[str]:
    """Returns the lines of the network's authorities with directory ports on which nothing
    listens.
    """
    (nobody,) = free_ports(1)
    return [re.sub(r":\d+ ", f":{nobody} ", line) for line in network.authorities]
