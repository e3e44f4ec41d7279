"""A server that stops responding after it has answered is reported, and its name is resolved
again.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness.interface import ECHO_PORT, WithNames, echo, names
from harness.net import SERVER, Host, Network, links
from harness.splitter import LISTEN, Splitter, interfaces
from harness.tools import anabranch, wait_for
from harness.wireguard import INSIDE_SERVER, PORT, Tunnel

pytestmark = pytest.mark.wireguard

ELSEWHERE = "10.99.0.2"
NAME = "server.example"
_OPTIONS = "options timeout:1 attempts:1\n"


@pytest.fixture
def network(make_network: MakeNetwork) -> Network:
    """Returns a network of two uplinks with default routes; the server has a second address."""
    network = make_network(links(2), default_routes=True)
    network.server.must(["ip", "address", "add", f"{ELSEWHERE}/32", "dev", "lo"])
    return network


@pytest.fixture
def host(network: Network, tmp_path: Path) -> Host:
    """Returns the client's host, whose name server is on the server's host."""
    (tmp_path / "resolv.conf").write_text(f"nameserver {SERVER}\n{_OPTIONS}")
    return WithNames(network.client.name, network.client.netns, tmp_path / "resolv.conf")


def move(server: Host, port: int) -> None:
    """Moves the server to its second address; nothing listens at the first any more."""
    for i in range(2):
        server.must(["ip", "route", "replace", f"10.77.{i}.0/24", "dev", f"p{i}", "src", ELSEWHERE])
    server.must(["nft", "add", "table", "ip", "gone"])
    chain = "{ type filter hook input priority 0; }"
    server.must(["nft", "add", "chain", "ip", "gone", "input", chain])
    rule = ["ip", "daddr", SERVER, "udp", "dport", str(port), "drop"]
    server.must(["nft", "add", "rule", "ip", "gone", "input", *rule])


def silent_in_status(host: Host) -> bool:
    """Returns whether ``anabranch status`` reports the silence, in text and in JSON."""
    text = host.run([anabranch(), "status"]).stdout
    runs = host.run([anabranch(), "status", "--json"]).stdout
    return "no answer from a server for" in text and '"silent":{"' in runs.replace(" ", "")


def test_a_tunnel_follows_its_servers_name(network: Network, host: Host, results: Results) -> None:
    """WireGuard: after 10 s of silence the name is resolved again, and the session moves to the
    new address.
    """
    with ExitStack() as stack:
        at_first = stack.enter_context(ExitStack())
        at_first.enter_context(names(network.server, SERVER, SERVER))
        splitter = stack.enter_context(Splitter(host, f"{NAME}:{PORT}", interfaces(2)))
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        tunnel.ping()
        pings = ["ping", "-i", "0.2", "-O", INSIDE_SERVER]
        pinger = stack.enter_context(network.client.start(pings))
        pinger.wait_until("an answer", lambda: "bytes from" in pinger.output())
        at_first.close()
        move(network.server, PORT)
        stack.enter_context(names(network.server, SERVER, ELSEWHERE))
        event = splitter.wait_event("unanswered", 20)
        assert event["last"] is not None
        assert event["server"] == f"{SERVER}:{PORT}"
        silence = event["time"] - event["last"]
        assert 9.5 < silence < 13, event
        back = splitter.wait_event("answered", 20)
        assert back["server"] == f"{ELSEWHERE}:{PORT}"
        results.add(
            "WireGuard, the server's name moves, seconds",
            reported_after=silence,
            moved_after=back["time"] - event["time"],
        )
        told = [each["text"] for each in splitter.of("warning")]
        assert any("the server's address changed from" in text for text in told), told
        tunnel.ping()
        assert not any("down" in splitter.changes(path) for path in ("p0", "p1"))


def test_a_server_that_is_gone_is_silent_everywhere(network: Network, host: Host) -> None:
    """The state is ``silent`` in ``--json`` and ``status``; sessions other than WireGuard's do not
    move.
    """
    with ExitStack() as stack:
        at_first = stack.enter_context(ExitStack())
        at_first.enter_context(names(network.server, SERVER, SERVER))
        echoing = stack.enter_context(ExitStack())
        echoing.enter_context(echo(network.server, SERVER))
        splitter = stack.enter_context(Splitter(host, f"{NAME}:{ECHO_PORT}", interfaces(2)))
        asker = stack.enter_context(network.client.start([sys.executable, "-c", _ASKER, LISTEN]))
        asker.wait_until("an answer", lambda: "answered" in asker.output())
        at_first.close()
        move(network.server, ECHO_PORT)
        stack.enter_context(names(network.server, SERVER, ELSEWHERE))
        event = splitter.wait_event("unanswered", 20)
        assert event["last"] is not None
        wait_for("the state silent", lambda: splitter.of("stats")[-1]["silent"] is not None, 5)
        latest = splitter.of("stats")[-1]["silent"]
        assert latest["seconds"] > 9.5, latest
        wait_for("the state silent in status", lambda: silent_in_status(network.client), 5)
        told = f"changed from {SERVER}:{ECHO_PORT} to {ELSEWHERE}:{ECHO_PORT}"
        (warning,) = (each["text"] for each in splitter.of("warning") if told in each["text"])
        assert "restart the program whose traffic is split" in warning
        assert not splitter.of("answered")


# A client that sends a datagram five times a second, with or without answers.
_ASKER = """\
import socket, sys, time
host, port = sys.argv[1].split(":")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.connect((host, int(port)))
    s.settimeout(0.2)
    while True:
        s.send(b"?" * 60)
        try:
            s.recv(100)
            print("answered", flush=True)
            time.sleep(0.2)
        except OSError:
            pass
"""
