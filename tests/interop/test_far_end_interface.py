"""``--tun`` with a far end: IP packets of a namespace are tunnelled to the far end's interface."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import farend
from harness.capture import Tcpdump
from harness.fair import difference, seconds_of, unfair, weighted_bounds
from harness.farend import FarEnd
from harness.interface import OURS, TUN, echo, refused, tcp, udp
from harness.net import SERVER, Host, Link, Network
from harness.seeded import MIB
from harness.splitter import Splitter, interfaces
from harness.transfer import site
from harness.wireguard import fetch

pytestmark = pytest.mark.interface

PATHS = [Link("p0", delay="10ms"), Link("p1", delay="17ms"), Link("p2", delay="30ms")]
FAR = f"far{os.getpid() % 1_000_000}"
LENGTH = 10 * MIB
SECONDS = 5
# An address that only the routes of the far end's machine reach.
ELSEWHERE = "198.51.100.80"


@dataclass
class World:
    """The network, and all programs that run on it."""

    network: Network
    far: FarEnd
    splitter: Splitter
    inside: Host
    far4: str
    far6: str


@contextmanager
def _world(network: Network, folder: Path, every: str = "20ms") -> Iterator[World]:
    far_key, home_key = farend.make_keys(folder)
    with ExitStack() as stack:
        options = ["--tun", FAR]
        far = FarEnd(network.server, None, far_key, every=every, options=options)
        stack.enter_context(far)
        splitter = Splitter(
            network.client, f"{SERVER}:{farend.PORT}", interfaces(3),
            every=every, schedule="uniform", listen=None,
            options=["--tun", TUN, "--netns", OURS, "--route", "--key", str(home_key)],
        )  # fmt: skip
        stack.enter_context(splitter)
        splitter.wait_event("far_end", state="up")
        far4, far6 = far.of("listening")[0]["tun"]["addresses"]
        inside = Host("inside", f"/run/netns/{OURS}")
        yield World(network, far, splitter, inside, far4, far6)


@contextmanager
def _web(host: Host, address: str, folder: Path, length: int) -> Iterator[None]:
    command = [sys.executable, "-m", "http.server", "80", "--bind", address]
    with host.start([*command, "--directory", str(site(folder, length))]) as server:
        server.wait_bound(80, "tcp")
        yield


def test_tcp_is_split_over_all_paths_both_ways_and_nothing_else_leaves(
    make_network: MakeNetwork, tmp_path: Path, results: Results
) -> None:
    """One TCP connection in each direction: every path carries its share, and shows only UDP to
    the far end.
    """
    network = make_network(PATHS)
    with _world(network, tmp_path) as world, ExitStack() as stack:
        seen = stack.enter_context(
            Tcpdump(
                network.client, "p1", tmp_path / "p1.pcap", f"ip and not udp port {farend.PORT}"
            )
        )
        with _web(network.server, world.far4, tmp_path, LENGTH):
            transfer = fetch(world.inside, LENGTH, 60, world.far4)
        assert not transfer.fault(LENGTH)
        before = network.stats()
        server = network.server.start(["iperf3", "-s", "-1", "-B", world.far4])
        stack.enter_context(server).wait_bound(5201, "tcp")
        command = ["iperf3", "-c", world.far4, "-J", "--bidir", "-t", str(SECONDS)]
        end = json.loads(world.inside.must(command, timeout=SECONDS + 20))["end"]
        carried = difference(network.stats(), before)
        bounds = weighted_bounds(1 / 3, SECONDS / seconds_of("20ms"))
        assert not unfair(carried, dict.fromkeys(carried, bounds))
        up, down = end["sum_received"], end["sum_received_bidir_reverse"]
        results.add(
            "TCP of a namespace by way of a far end, 10/17/30 ms, Mbit/s",
            HTTP=transfer.goodput_mbits, iperf_up=up["bits_per_second"] / 1e6,
            iperf_down=down["bits_per_second"] / 1e6,
        )  # fmt: skip
        seen.stop()
        assert seen.captured == 0, "a path shows other packets than those to the far end"


def test_udp_ping_both_families_and_places_beyond_the_far_end(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """Datagrams arrive whole, also over IPv6, and to an address that only the far end's machine
    can reach.
    """
    network = make_network(PATHS)
    with _world(network, tmp_path) as world:
        network.server.must(["ip", "address", "add", f"{ELSEWHERE}/32", "dev", "lo"])
        for address in (world.far4, world.far6, ELSEWHERE):
            world.inside.must(["ping", "-c", "2", "-W", "2", address])
        with echo(network.server, ELSEWHERE):
            assert udp(world.inside, ELSEWHERE, [1, 500, 1300]) == [1, 500, 1300]
            source, count = tcp(world.inside, ELSEWHERE, length=100_000)
        own = json.loads(world.inside.must(["ip", "-j", "-4", "address", "show", TUN]))
        assert (source, count) == (own[0]["addr_info"][0]["local"], 100_000)


def test_a_client_speaks_from_its_own_address_alone(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """The far end drops and counts packets with another source address."""
    network = make_network(PATHS)
    with _world(network, tmp_path) as world:
        world.inside.must(["ping", "-c", "1", "-W", "2", world.far4])
        world.inside.must(["ip", "address", "add", "100.64.0.7/32", "dev", TUN])
        forged = world.inside.run(["ping", "-c", "3", "-W", "1", "-I", "100.64.0.7", world.far4])
        assert forged.returncode == 1, forged
        world.far.close()
        assert world.far.of("summary")[0]["refused"] == 3


def test_a_path_is_cut_and_restored_under_a_download(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """The TCP connection continues over the other paths, and all bytes arrive intact."""
    network = make_network(PATHS)
    with _world(network, tmp_path) as world, _web(network.server, world.far4, tmp_path, LENGTH):
        network.set("p1", down=True)
        assert not fetch(world.inside, LENGTH, 60, world.far4).fault(LENGTH)
        world.splitter.wait_event("path", 5, path="p1", state="down", reason="unheard")
        network.set("p1", down=False)
        world.splitter.wait_event("path", 10, path="p1", state="up")
        before = network.stats()
        assert not fetch(world.inside, LENGTH, 60, world.far4).fault(LENGTH)
        assert difference(network.stats(), before)["p1"].down_packets > 100


def test_without_the_far_end_nothing_leaves_the_namespace(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """The namespace has no other route, and the splitter removes all of its settings when it
    stops.
    """
    network = make_network(PATHS)
    with _world(network, tmp_path) as world:
        world.far.kill()
        time.sleep(0.5)
        assert world.inside.run(["ping", "-c", "2", "-W", "1", SERVER]).returncode != 0
        world.splitter.stop()
        assert not Path(f"/run/netns/{OURS}").exists()


def test_what_does_not_go_together_is_refused_in_a_line(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """Refused are routing the whole machine into the interface, and naming a server."""
    network = make_network(PATHS)
    _, home_key = farend.make_keys(tmp_path)
    given = ["--tun", TUN, "--key", str(home_key), "--to", f"{SERVER}:{farend.PORT}"]
    given += ["--path", "p0=if:p0"]
    for more, setting in [
        (["--route"], "--route"),
        (["--behind", "office"], "--behind"),
        (["--udp", "53"], "--udp"),
    ]:
        assert f"{setting}: " in refused(network.client, *given, *more)
