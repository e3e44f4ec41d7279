"""A path is cut during a transfer and restored: no session is lost, and the path is used again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from conftest import MakeNetwork, Results
from harness import mosh, quic
from harness.capture import Tcpdump
from harness.fair import difference
from harness.faults import FAULTS, SilentCut
from harness.net import SERVER, Counts, Link, Network, links
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import Transfer, site
from harness.wireguard import INSIDE_SERVER, PORT, Tunnel

pytestmark = pytest.mark.faults

CUT = "p1"
WHOLE_S, DARK_S = 1.5, 4.0
# Maximum seconds to detect a fault. Silence is detected after 1 s of use, which takes 3 s if each
# path is used a third of the time. Local errors are detected at once.
NOTICED_S = {"silent": DARK_S, "interface": 1.0}
# Maximum seconds to detect recovery: a path that is down is probed with a live packet every few
# seconds, and not every response uses it.
BACK_S = 25.0
# Bytes of a transfer that outlives the fault: ten seconds at the maximum rate of a path.
LONG = 120 * MIB


@dataclass
class Outcome:
    """What the cut path carried after it was restored, and how soon the splitter detected the
    fault.
    """

    after: Counts
    noticed_s: float


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """Yields an executor that runs a session in the background of a test."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tunnel_outlives_a_path(
    make_network: MakeNetwork,
    tmp_path: Path,
    results: Results,
    fault: str,
    beside: ThreadPoolExecutor,
) -> None:
    """WireGuard: an HTTP download during the fault ends with the right hash."""
    network = make_network(links(3))
    with ExitStack() as stack:
        splitter = stack.enter_context(Splitter(network.client, f"{SERVER}:{PORT}", interfaces(3)))
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        tunnel.ping()
        stack.enter_context(tunnel.server.web(site(tmp_path, LONG)))
        # A second flow, as usual in a tunnel; the next test has a lone download.
        stack.enter_context(network.client.start(["ping", "-q", "-i", "0.1", INSIDE_SERVER]))
        running = beside.submit(tunnel.download, LONG, 90)
        outcome, transfer = _judge(network, splitter, running, fault)
    _note(results, "WireGuard", fault, outcome, transfer.longest_gap_s)


def test_a_lone_download_waits_for_its_path_and_is_not_lost(
    make_network: MakeNetwork, tmp_path: Path, results: Results
) -> None:
    """WireGuard: a lone download stalls if its server sends into the cut path.

    A client that only acknowledges then sends nothing. This happens if the cut path is the one
    from which the server received last. Neither end has a packet to send on another path, so the
    server does not change paths, and no path is *used*: the download stalls until the path is back
    and the server's TCP retransmits.
    """
    network = make_network(links(3))
    with ExitStack() as stack:
        stack.enter_context(Splitter(network.client, f"{SERVER}:{PORT}", interfaces(3)))
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        tunnel.ping()
        stack.enter_context(tunnel.server.web(site(tmp_path, LONG)))
        path = SilentCut(network, CUT)
        timers = [Timer(WHOLE_S, path.cut), Timer(WHOLE_S + DARK_S, path.restore)]
        for timer in timers:
            timer.start()
        transfer = tunnel.download(LONG, 60)
        for timer in timers:
            timer.join()
    assert not transfer.fault(LONG)
    results.add("A lone download in a tunnel, path cut", longest_gap_s=transfer.longest_gap_s)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_quic_connection_outlives_a_path(
    make_network: MakeNetwork,
    web_root: Path,
    results: Results,
    fault: str,
    beside: ThreadPoolExecutor,
) -> None:
    """QUIC: the download uses a single connection, and ends with the right hash."""
    network = make_network(links(3))
    with (
        quic.serving("quic-go", network.server, web_root),
        Splitter(network.client, f"{SERVER}:{quic.PORT}", interfaces(3)) as splitter,
    ):
        running = beside.submit(quic.download, network.client, "quic-go", LISTEN, LONG, seconds=120)
        outcome, transfer = _judge(network, splitter, running, fault)
    _note(results, "QUIC", fault, outcome, transfer.longest_gap_s)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_login_outlives_a_path(
    make_network: MakeNetwork, results: Results, fault: str, beside: ThreadPoolExecutor
) -> None:
    """Mosh: the output of every command appears on the screen."""
    network = make_network(links(3))
    listen = f"127.0.0.1:{mosh.PORT}"
    with (
        mosh.MoshServer(network.server) as server,
        Splitter(network.client, f"{SERVER}:{mosh.PORT}", interfaces(3), listen=listen) as splitter,
        mosh.Login(network.client, "127.0.0.1", mosh.PORT, server.key) as login,
    ):
        running = beside.submit(login.run_for, 40, pause=0.1)
        outcome = _break(network, splitter, running, fault)
        result = running.result()
    _assert_used_again(outcome, least=3)
    assert not result.fault()
    _note(results, "Mosh", fault, outcome, result.slowest_s)


def _judge(
    network: Network, splitter: Splitter, running: Future[Transfer], fault: str
) -> tuple[Outcome, Transfer]:
    """Breaks the path during a transfer; asserts that both recover."""
    outcome = _break(network, splitter, running, fault)
    transfer = running.result()
    assert not transfer.fault(LONG)
    _assert_used_again(outcome, least=200)
    splitter.stop()
    return outcome, transfer


def _break(network: Network, splitter: Splitter, running: Future[Any], fault: str) -> Outcome:
    """Cuts the path until the splitter detects this, then restores it."""
    path = FAULTS[fault](network, CUT)
    time.sleep(WHOLE_S)
    path.cut()
    start = time.monotonic()
    splitter.wait_event("path", DARK_S + 1, path=CUT, state="down")
    noticed = time.monotonic() - start
    assert noticed < NOTICED_S[fault] + 0.5
    time.sleep(max(0.0, DARK_S - noticed))
    path.restore()
    splitter.wait_event("path", BACK_S, path=CUT, state="up")
    before = network.stats()
    time.sleep(2)
    assert running.running(), "the session ended before the path was back: it proves nothing"
    return Outcome(difference(network.stats(), before)[CUT], noticed)


def _assert_used_again(outcome: Outcome, least: int) -> None:
    assert outcome.after.up_packets >= least
    assert outcome.after.down_packets >= least


def _note(results: Results, protocol: str, fault: str, outcome: Outcome, gap: float) -> None:
    results.add(
        "A path cut and restored",
        protocol=protocol, fault=fault, noticed_s=outcome.noticed_s, longest_gap_s=gap,
    )  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_leaves_by_an_unnamed_path_when_all_named_ones_are_gone(
    make_network: MakeNetwork, tmp_path: Path, fault: str
) -> None:
    """The client has another route to the server, which the user did not name; it stays unused."""
    network = make_network([*links(2), Link("other")])
    faults = [FAULTS[fault](network, name) for name in ("p0", "p1")]
    with ExitStack() as stack:
        stack.enter_context(Splitter(network.client, f"{SERVER}:{PORT}", interfaces(2)))
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        tunnel.ping()
        capture = stack.enter_context(
            Tcpdump(network.client, "other", tmp_path / "other.pcap", f"host {SERVER}")
        )
        for path in faults:
            path.cut()
        with pytest.raises(TimeoutError):
            tunnel.ping(4)
        for path in faults:
            path.restore()
        tunnel.ping(15)
        capture.stop()
        assert capture.captured == 0
