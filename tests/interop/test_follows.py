"""Servers that do not follow the client's address are reported, and servers that follow never are.

``RUNS=200`` repeats each test 200 times; the default is twice.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import nebula, quic
from harness.interface import interface
from harness.net import SERVER, Network, links
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import site
from harness.wireguard import PORT, Tunnel, fetch

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

RUNS = int(os.environ.get("RUNS", "2"))
# About three seconds at 20 Mbit/s per path, with servers that restart at each change.
LENGTH = 6_000_000
# Maximum seconds from the first datagram until a server that does not follow is reported.
NAMED_S = 10.0
# Bytes of a download that takes longer than NAMED_S at 20 Mbit/s on one path.
STAYING = 27_000_000
SLOW = {"rate": "20mbit", "queue": "100kB"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with ``site/bytes/LENGTH``."""
    folder = tmp_path_factory.mktemp("follows")
    site(folder / "site", LENGTH, STAYING)
    return folder


def _by_listen(network: Network, paths: int) -> Splitter:
    return Splitter(network.client, f"{SERVER}:{quic.PORT}", interfaces(paths))


def _by_tun(network: Network, paths: int) -> Splitter:
    return interface(network.client, interfaces(paths), "--udp", str(quic.PORT))


@pytest.mark.parametrize("way", [_by_listen, _by_tun])
def test_a_quic_server_that_follows_is_not_accused(
    make_network: MakeNetwork,
    root: Path,
    results: Results,
    way: Callable[[Network, int], Splitter],
) -> None:
    """quic-go: downloads over ``--listen`` and ``--tun`` cause no report. ``--tun`` does not warn
    either about the kernel's packets that report the client's closed port.
    """
    network = make_network(links(3, **SLOW), default_routes=True)
    endpoint = LISTEN if way is _by_listen else f"{SERVER}:{quic.PORT}"
    accused, refused, kernels = [], [], 0
    with quic.serving("quic-go", network.server, root):
        for run in range(RUNS):
            with way(network, 3) as splitter:
                transfer = quic.download(network.client, "quic-go", endpoint, LENGTH)
                assert not transfer.fault(LENGTH)
                kernels += splitter.stop()["housekeeping"]
                accused += [(run, event) for event in splitter.of("skewed")]
                texts = [event["text"] for event in splitter.of("warning")]
                refused += [text for text in texts if "a route sends" in text]
    results.add("Servers that follow", way=way.__name__, runs=RUNS, accused=len(accused))
    results.add("Warnings of --tun", way=way.__name__, refused=len(refused), kernels_own=kernels)
    assert not accused
    assert not refused


def test_a_wireguard_server_is_not_accused_over_paths_of_60_ms(
    make_network: MakeNetwork, root: Path, results: Results
) -> None:
    """wireguard-go, with 30 ms one way; each run has a new splitter and a new handshake."""
    network = make_network(links(3, delay="30ms", **SLOW))
    accused = []
    for run in range(RUNS):
        with ExitStack() as stack:
            to = f"{SERVER}:{PORT}"
            splitter = stack.enter_context(Splitter(network.client, to, interfaces(3)))
            tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
            tunnel.ping()
            stack.enter_context(tunnel.server.web(root / "site"))
            assert not tunnel.download(LENGTH).fault(LENGTH)
            accused += [(run, event) for event in splitter.of("skewed")]
    results.add("Servers that follow", way="wireguard-go, 60 ms", runs=RUNS, accused=len(accused))
    assert not accused


@pytest.mark.parametrize("kind", ["caddy", "quic-go 0.63"])
def test_a_quic_server_that_stays_is_named_in_time(
    make_network: MakeNetwork, root: Path, results: Results, kind: str
) -> None:
    """Caddy 2.6.2 never follows, and quic-go 0.63 follows twice; the client has connection IDs.
    The paths of a server that has followed stay in use.
    """
    network = make_network(links(3, **SLOW))
    named = []
    asked = quic.Request(LISTEN, "h3", STAYING, 60.0)
    with quic.serving(kind, network.server, root):
        for _ in range(RUNS):
            with _by_listen(network, 3) as splitter:
                assert not quic.CLIENTS["quic-go with IDs"](network.client, asked).fault(STAYING)
                splitter.stop()
                named.append(_named_after(splitter))
                followed = kind != "caddy"
                assert not (followed and splitter.of("path")), "no path looks dead"
    _note(results, kind, named)


def test_nebula_with_two_paths_is_named_in_time(
    make_network: MakeNetwork, root: Path, results: Results, tmp_path: Path
) -> None:
    """Nebula's server does not return to the last address within 2 s; both paths stay in use."""
    network = make_network(links(2, **SLOW))
    named = []
    for run in range(RUNS):
        with ExitStack() as stack:
            splitter = Splitter(network.client, f"{SERVER}:{nebula.PORT}", interfaces(2))
            stack.enter_context(splitter)
            folder = tmp_path / str(run)
            folder.mkdir()
            tunnel = nebula.tunnel(network.server, network.client, folder, LISTEN)
            stack.enter_context(tunnel)
            words = [sys.executable, "-m", "http.server", "80", "--bind", nebula.INSIDE_SERVER]
            words += ["--directory", str(root / "site")]
            web = stack.enter_context(network.server.start(words))
            web.wait_bound(80, "tcp")
            for _ in range(2):
                transfer = fetch(network.client, LENGTH, 60.0, nebula.INSIDE_SERVER)
                assert not transfer.fault(LENGTH)
            named.append(_named_after(splitter))
            assert not splitter.of("path"), "no path looks dead"
    _note(results, "nebula, two paths", named)


def _named_after(splitter: Splitter) -> float:
    """Returns the seconds from a session's first datagram to the report that its server does not
    follow.
    """
    reports = splitter.of("skewed")
    begun: float = splitter.of("opened")[0]["time"]
    return float(reports[0]["time"]) - begun if reports else float("inf")


def _note(results: Results, server: str, named: list[float]) -> None:
    within = sum(after <= NAMED_S for after in named)
    results.add(
        "Servers that stay",
        server=server,
        runs=len(named),
        named=within,
        median_s=statistics.median(named),
        latest_s=max(named),
    )
    assert within == len(named), named
