"""A server that falls silent after it has answered, as shown in live view, log, JSON and
``status``.

The sessions are of real programs: a QUIC download (quic-go at both ends) and a Mosh login.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import quic
from harness.mosh import PORT as MOSH
from harness.mosh import Login, MoshServer, Screen
from harness.net import SERVER, Host, Network, links
from harness.splitter import LISTEN, Splitter, interfaces
from harness.tools import anabranch, wait_for
from harness.transfer import site
from test_moved import silent_in_status

# Seconds of silence until the state changes, and the interval of statistics in seconds.
SILENCE_S, TICK_S = 10.0, 1.0
# Seconds between a QUIC client's keep-alives. Without them, a client that only receives stops
# sending when its last frame is acknowledged.
KEEP_ALIVE_S = 1.0
# Bytes of a download that outlasts the test at the rate of the links.
LONG = 400 << 20
LINE = re.compile(
    r"no answer from a server for [1-3]\d s on any path, last answer at \d\d:\d\d:\d\d"
)

each_protocol = pytest.mark.parametrize(
    "protocol",
    [
        pytest.param("quic", marks=pytest.mark.quic),
        pytest.param("mosh", marks=pytest.mark.mosh),
    ],
)


def port_of(protocol: str) -> int:
    """Returns the server's port."""
    return quic.PORT if protocol == "quic" else MOSH


def silence(server: Host, port: int) -> None:
    """Silently drops all packets to and from the server's port."""
    server.must(["nft", "add", "table", "ip", "silent"])
    for hook, end in (("input", "dport"), ("output", "sport")):
        chain = f"{{ type filter hook {hook} priority 0; }}"
        server.must(["nft", "add", "chain", "ip", "silent", hook, chain])
        rule = ["ip", "silent", hook, "udp", end, str(port), "drop"]
        server.must(["nft", "add", "rule", *rule])


def hear(server: Host) -> None:
    """Ends the server's silence."""
    server.must(["nft", "delete", "table", "ip", "silent"])


@contextmanager
def session(protocol: str, network: Network, folder: Path, begin: ExitStack) -> Iterator[str]:
    """Runs a server and yields its address; its client starts when ``begin`` is closed."""
    with ExitStack() as stack:
        if protocol == "quic":
            site(folder / "site", LONG)
            stack.enter_context(quic.serving("quic-go", network.server, folder))
            beside = stack.enter_context(ThreadPoolExecutor(1))

            def download() -> None:
                args = (network.client, "quic-go", LISTEN, LONG)
                quic.download(*args, seconds=40.0, keep_alive_s=KEEP_ALIVE_S)

            begin.callback(lambda: beside.submit(download))
        else:
            server = stack.enter_context(MoshServer(network.server))
            host, port = LISTEN.split(":")

            def log_in() -> None:
                login = Login(network.client, host, int(port), server.key)
                stack.enter_context(login)
                assert login.wait_text("$ ", 15), login.text()

            begin.callback(log_in)
        yield f"{SERVER}:{port_of(protocol)}"


@each_protocol
def test_a_silent_server_is_a_state_in_json_and_status(
    make_network: MakeNetwork, tmp_path: Path, results: Results, protocol: str
) -> None:
    """The state begins ten seconds after the last answer, and ends when a client gets an answer
    again.
    """
    network = make_network(links(2))
    begin = ExitStack()
    with (
        session(protocol, network, tmp_path, begin) as to,
        Splitter(network.client, to, interfaces(2)) as splitter,
    ):
        begin.close()
        told = splitter.wait_event("session")
        assert told["protocol"] == protocol
        wait_for("statistics", lambda: bool(splitter.of("stats")))
        wait_for("some of it", lambda: splitter.counts()["p0"].down_packets > 2)
        assert splitter.of("stats")[-1]["silent"] is None
        silence(network.server, port_of(protocol))
        event = splitter.wait_event("unanswered", 20)
        waited = event["time"] - event["last"]
        assert SILENCE_S - 0.5 < waited < SILENCE_S + 2 * TICK_S, event
        wait_for("the state silent", lambda: splitter.of("stats")[-1]["silent"] is not None, 5)
        assert splitter.of("stats")[-1]["silent"]["seconds"] >= SILENCE_S - 0.5
        wait_for("the state silent in status", lambda: silent_in_status(network.client), 5)
        assert not any("down" in splitter.changes(path) for path in ("p0", "p1"))
        hear(network.server)
        results.add("A server falls silent, seconds", protocol=protocol, reported_after=waited)
        # A QUIC client has closed its connection meanwhile.
        if protocol == "mosh":
            splitter.wait_event("answered", 20)
            wait_for("the end of it", lambda: splitter.of("stats")[-1]["silent"] is None, 5)


@each_protocol
@pytest.mark.parametrize("shown", ["view", "log"])
def test_a_silent_server_is_a_line_for_people(
    make_network: MakeNetwork, tmp_path: Path, protocol: str, shown: str
) -> None:
    """The live view, and without a terminal the log, show the same text."""
    network = make_network(links(2))
    begin = ExitStack()
    with ExitStack() as stack:
        to = stack.enter_context(session(protocol, network, tmp_path, begin))
        words = [anabranch(), "split", "--listen", LISTEN, "--to", to]
        words += [word for path in interfaces(2) for word in ("--path", path)]
        if shown == "view":
            screen = stack.enter_context(Screen(network.client.command(words), {}))
            assert screen.wait_text("p0", 10), screen.text()
            text = screen.text
        else:
            log = stack.enter_context(network.client.start(words))
            log.wait_bound(int(LISTEN.split(":")[1]))
            text = log.output
        begin.close()
        # A server that has never answered is reported by another message.
        wait_for("an answer", lambda: any(one.down_packets > 2 for one in network.stats().values()))
        silence(network.server, port_of(protocol))
        if shown == "view":
            assert screen.wait_text("no answer from a server for", 30), text()
        else:
            log.wait_until("the line", lambda: LINE.search(text()) is not None, 30)
        assert LINE.search(text()), text()
