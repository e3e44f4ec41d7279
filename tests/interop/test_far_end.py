"""A far end, with unmodified wireguard-go at both ends, over three unequal paths."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import farend
from harness.capture import Packet, Tcpdump
from harness.fair import difference, seconds_of, unfair, weighted_bounds
from harness.farend import FarEnd
from harness.net import SERVER, Link, Network
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import site
from harness.wireguard import INSIDE_SERVER, PORT, Tunnel

pytestmark = pytest.mark.wireguard

PATHS = [Link("p0", delay="10ms"), Link("p1", delay="17ms"), Link("p2", delay="30ms")]
LENGTH = 25 * MIB
# Bytes to transfer while tcpdump captures: enough for a statistical test of the bytes at an
# offset, but not too many for tcpdump.
SEEN = 8 * MIB
IPERF_SECONDS = 5
# Bytes of the IPv4, UDP and WireGuard headers around a packet in the tunnel.
AROUND = 20 + 8 + 32
MTU = 1500 - AROUND - farend.OVERHEAD


@dataclass
class World:
    """The network, and all programs that run on it."""

    network: Network
    far: FarEnd
    splitter: Splitter
    tunnel: Tunnel
    key: Path
    stack: ExitStack

    def restart_far(self, every: str) -> None:
        """Starts a new far end after the previous one has exited."""
        server = f"{SERVER}:{PORT}"
        far = FarEnd(self.network.server, server, self.key, every=every)
        self.far = self.stack.enter_context(far)


@contextmanager
def _world(
    network: Network, folder: Path, every: str, schedule: str = "uniform", mtu: int = MTU
) -> Iterator[World]:
    far_key, home_key = farend.make_keys(folder)
    with ExitStack() as stack:
        server = f"{SERVER}:{PORT}"
        far = FarEnd(network.server, server, far_key, every=every, schedule=schedule)
        stack.enter_context(far)
        options = ["--key", str(home_key)]
        splitter = Splitter(
            network.client, f"{SERVER}:{farend.PORT}", interfaces(3),
            every=every, schedule=schedule, options=options,
        )  # fmt: skip
        stack.enter_context(splitter)
        splitter.wait_event("far_end", state="up")
        assert splitter.of("listening")[0]["tunnel_mtu"] == MTU
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        for host, name in [
            (network.client, tunnel.name),
            (network.server, tunnel.server.name),
        ]:
            host.must(["ip", "link", "set", name, "mtu", str(mtu)])
        tunnel.ping()
        yield World(network, far, splitter, tunnel, far_key, stack)


@pytest.mark.parametrize("every", ["100ms", "20ms"])
def test_a_tunnel_behind_a_far_end_goes_by_all_paths_both_ways(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, results: Results, every: str
) -> None:
    """An HTTP download is intact, iperf3 works in both directions, and every path carries its
    share of both, by the links' counts.
    """
    with _world(make_network(PATHS), tmp_path, every) as world:
        with world.tunnel.server.web(web_root / "site"):
            transfer = world.tunnel.download(LENGTH)
        assert not transfer.fault(LENGTH)
        before = world.network.stats()
        up, down = world.tunnel.iperf(IPERF_SECONDS)
        carried = difference(world.network.stats(), before)
        bounds = weighted_bounds(1 / 3, IPERF_SECONDS / seconds_of(every))
        assert not unfair(carried, dict.fromkeys(carried, bounds))
        assert not world.splitter.of("path"), "no path was taken for dead"
    results.add(
        "WireGuard behind a far end, 10/17/30 ms, Mbit/s",
        every=every, HTTP=transfer.goodput_mbits, iperf_up=up, iperf_down=down,
    )  # fmt: skip


def test_a_tunnel_that_keeps_its_mtu_loses_nothing_behind_a_far_end(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, results: Results
) -> None:
    """Packets of the usual 1,420 bytes pass in both directions, although they exceed the MTU with
    the far end's header.
    """
    usual = 1420
    assert usual > MTU
    with _world(make_network(PATHS), tmp_path, "100ms", mtu=usual) as world:
        # Minus the headers of IPv4 and ICMP; fragmentation is forbidden.
        ping = ["ping", "-M", "do", "-s", str(usual - 28), "-c", "20", "-i", "0.1", INSIDE_SERVER]
        assert " 0% packet loss" in world.tunnel.client.must(ping)
        with world.tunnel.server.web(web_root / "site"):
            transfer = world.tunnel.download(LENGTH)
        assert not transfer.fault(LENGTH)
        up, down = world.tunnel.iperf(IPERF_SECONDS)
        assert not [line for line in world.splitter.of("warning") if "lost" in str(line)]
    results.add(
        "WireGuard of MTU 1420 behind a far end, Mbit/s",
        HTTP=transfer.goodput_mbits, iperf_up=up, iperf_down=down,
    )  # fmt: skip


@pytest.mark.parametrize("schedule", ["conflux-2013", "pull"])
def test_a_schedule_that_looks_at_windows_uses_paths_as_they_can(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, results: Results, schedule: str
) -> None:
    """All paths carry both directions, the fastest path most; with one path cut, a download
    arrives intact.
    """
    rates = [30, 20, 10]
    paths = [
        Link(f"p{place}", rate=f"{rate}mbit", delay="10ms", queue="100kB")
        for place, rate in enumerate(rates)
    ]
    with _world(make_network(paths), tmp_path, "1p", schedule) as world:
        before = world.network.stats()
        up, down = world.tunnel.iperf(IPERF_SECONDS)
        carried = difference(world.network.stats(), before)
        shares = [carried[path.name] for path in paths]
        for sent in [[one.up_bytes for one in shares], [one.down_bytes for one in shares]]:
            assert min(sent) > 0.05 * sum(sent), sent
            assert sent[0] > sent[2], sent
        world.network.set("p1", down=True)
        with world.tunnel.server.web(web_root / "site"):
            transfer = world.tunnel.download(LENGTH, 60)
        assert not transfer.fault(LENGTH)
    results.add(
        "WireGuard behind a far end, 30 + 20 + 10 Mbit/s", schedule=schedule, up=up, down=down
    )


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_a_tunnel_behind_a_far_end_bears_loss(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, results: Results, loss: float
) -> None:
    """Each path loses packets at random; TCP in the tunnel recovers, and the hash is right."""
    paths = [Link(path.name, delay=path.delay, loss=loss) for path in PATHS]
    with _world(make_network(paths), tmp_path, "100ms") as world:
        with world.tunnel.server.web(web_root / "site"):
            transfer = world.tunnel.download(MIB, 60)
        assert not transfer.fault(MIB)
        assert not [event for event in world.splitter.of("path") if event["state"] == "down"]
    results.add("WireGuard behind a far end, loss", loss=loss, HTTP=transfer.goodput_mbits)


def test_a_path_is_cut_and_restored_and_both_ends_know(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path
) -> None:
    """Both ends leave the path within 4 s, a download arrives intact, and the path returns."""
    with _world(make_network(PATHS), tmp_path, "100ms") as world:
        ping = ["ping", "-q", "-i", "0.05", "10.8.0.1"]
        world.stack.enter_context(world.network.client.start(ping))
        with world.tunnel.server.web(web_root / "site"):
            world.network.set("p1", down=True)
            cut = time.monotonic()
            world.splitter.wait_event("path", 5, path="p1", state="down", reason="unheard")
            world.far.wait_event("path", 5, path=1, state="down")
            assert time.monotonic() - cut < 4
            assert not world.tunnel.download(LENGTH).fault(LENGTH)
            world.network.set("p1", down=False)
            world.splitter.wait_event("path", 5, path="p1", state="up")
            before = world.network.stats()
            assert not world.tunnel.download(LENGTH).fault(LENGTH)
            carried = difference(world.network.stats(), before)["p1"]
        assert min(carried.up_packets, carried.down_packets) > 500


def test_a_far_end_is_killed_and_started_again(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path
) -> None:
    """The tunnel recovers by itself within 15 s, whether or not the far end sent a goodbye
    message.
    """
    with _world(make_network(PATHS), tmp_path, "100ms") as world:
        ping = ["ping", "-q", "-i", "0.1", "10.8.0.1"]
        world.stack.enter_context(world.network.client.start(ping))
        for farewell in [False, True]:
            if farewell:
                world.far.close()
            else:
                world.far.kill()
            world.restart_far("100ms")
            world.far.wait_event("began", 15)
            world.tunnel.ping()
            with world.tunnel.server.web(web_root / "site"):
                assert not world.tunnel.download(MIB).fault(MIB)


def test_a_capture_of_each_path_holds_no_field_of_wireguard_and_none_that_counts(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """In tcpdump's captures of each path, the bytes at every offset are uniform and do not ascend;
    WireGuard's counter would.
    """
    network = make_network(PATHS)
    with _world(network, tmp_path, "20ms") as world, ExitStack() as captures:
        dumps = {
            path.name: captures.enter_context(
                Tcpdump(network.client, path.name, tmp_path / f"{path.name}.pcap")
            )
            for path in PATHS
        }
        with world.tunnel.server.web(site(tmp_path, SEEN)):
            assert not world.tunnel.download(SEEN).fault(SEEN)
        seen = {name: dump.stop(most_lost=0.05) for name, dump in dumps.items()}
    for name, packets in seen.items():
        down = [packet for packet in packets if not packet.is_to_port(farend.PORT)]
        full = [packet for packet in down if packet.size == 1500]
        assert len(full) > 1000, f"{name}: {len(full)} full packets"
        assert not _marked(full, name)
        # WireGuard's data packets begin with these bytes, followed by index and counter.
        assert not any(packet.payload[:4] == b"\x04\0\0\0" for packet in packets)


def _marked(packets: Sequence[Packet], name: str) -> list[str]:
    """Returns offsets whose bytes are not uniform, or ascend from packet to packet too often."""
    marked = []
    for place in range(min(len(packet.payload) for packet in packets)):
        values = [packet.payload[place] for packet in packets]
        counts = Counter(values)
        mean = len(values) / 256
        chi = sum((counts[value] - mean) ** 2 / mean for value in range(256))
        rises = statistics.fmean(a < b for a, b in pairwise(values))
        # With 255 degrees of freedom, one offset in 10^6 exceeds 369. The standard deviation of
        # ``rises`` is 0.01.
        if chi > 390 or not 0.45 < rises < 0.55:
            marked.append(f"{name} byte {place}: {chi:.0f}, rises {rises:.3f}")
    return marked
