"""WireGuard: wireguard-go at both ends, the splitter at the client, 2 to 4 equal paths."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness.fair import (
    difference,
    round_robin_bounds,
    seconds_of,
    unfair,
    weighted_bounds,
)
from harness.net import SERVER, Counts, Link, Network, links
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.wireguard import INSIDE_SERVER, PORT, Tunnel

pytestmark = pytest.mark.wireguard

LENGTH = 25 * MIB
IPERF_SECONDS = 5
TO = f"{SERVER}:{PORT}"
# Bytes of IPv4 and UDP headers, which links count and the splitter does not.
HEADERS = 28
# Maximum difference of counters: datagrams in flight while the two sides are read, and packets that
# the kernel itself sends on an interface.
IN_FLIGHT = 40


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("every", ["10ms", "100ms", "1000ms"])
def test_a_tunnel_goes_round_all_paths_by_time_in_both_directions(
    make_network: MakeNetwork, web_root: Path, results: Results, every: str, count: int
) -> None:
    """An HTTP download is intact, iperf3 works in both directions, and all paths have equal shares
    by the links' counts.
    """
    network = make_network(links(count))
    with Splitter(network.client, TO, interfaces(count), every=every) as splitter:
        carried = _use_tunnel(network, splitter, web_root, results, f"{every} x {count}")
        bounds = round_robin_bounds(count, IPERF_SECONDS, seconds_of(every))
        assert not unfair(carried, dict.fromkeys(carried, bounds))
        _agree(network, splitter)
        assert not splitter.of("skewed"), "the downlink is split as the uplink is"


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_tunnel_goes_round_all_paths_by_packets_in_both_directions(
    make_network: MakeNetwork, web_root: Path, results: Results, count: int
) -> None:
    """The uplink is distributed exactly: each path is within two runs of 50 of its share."""
    network = make_network(links(count))
    with Splitter(network.client, TO, interfaces(count), every="50p") as splitter:
        carried = _use_tunnel(network, splitter, web_root, results, f"50p x {count}")
        fair = sum(each.up_packets for each in carried.values()) / count
        assert all(abs(each.up_packets - fair) <= 100 + IN_FLIGHT for each in carried.values())
        # Responses use the client's latest path. Each path has only about 1/n of them, because
        # TCP's rate varies.
        assert not unfair(carried, dict.fromkeys(carried, (0.75 / count, 1.25 / count)))
        _agree(network, splitter)


@pytest.mark.parametrize(
    ("schedule", "weights"),
    [("weights:0.6,0.3,0.1", [0.6, 0.3, 0.1]), ("uniform", [1 / 3, 1 / 3, 1 / 3])],
)
def test_a_drawn_schedule_gives_each_path_its_weight(
    make_network: MakeNetwork, web_root: Path, results: Results, schedule: str, weights: list[float]
) -> None:
    """Each run of 20 packets is drawn independently: thousands of draws in five seconds."""
    network = make_network(links(3))
    with Splitter(network.client, TO, interfaces(3), every="20p", schedule=schedule) as splitter:
        carried = _use_tunnel(network, splitter, web_root, results, schedule)
        draws = sum(each.up_packets for each in carried.values()) / 20
        bounds = [weighted_bounds(weight, draws) for weight in weights]
        assert not unfair(carried, dict(zip(carried, bounds, strict=True)))
        _agree(network, splitter)


def test_a_schedule_by_round_trip_time_keeps_to_the_fastest_path(
    make_network: MakeNetwork, web_root: Path, results: Results
) -> None:
    """p1 has a quarter of the other paths' delay: after all are measured, it has most of the
    traffic.
    """
    network = make_network(
        [Link("p0", delay="20ms"), Link("p1", delay="5ms"), Link("p2", delay="20ms")]
    )
    with Splitter(network.client, TO, interfaces(3), schedule="lowest-rtt") as splitter:
        carried = _use_tunnel(network, splitter, web_root, results, "lowest-rtt")
        total_up = sum(each.up_packets for each in carried.values())
        assert carried["p1"].up_packets > 0.5 * total_up


def _use_tunnel(
    network: Network, splitter: Splitter, web_root: Path, results: Results, case: str
) -> dict[str, Counts]:
    """Runs a download, then iperf3; returns the links' traffic during iperf3, when all paths are
    busy.
    """
    with Tunnel(network.server, network.client, splitter.listen) as tunnel:
        tunnel.ping()
        with tunnel.server.web(web_root / "site"):
            transfer = tunnel.download(LENGTH)
        assert not transfer.fault(LENGTH)
        before = network.stats()
        up, down = tunnel.iperf(IPERF_SECONDS)
        carried = difference(network.stats(), before)
    assert min(up, down) > 1, "iperf3 got nothing through"
    results.add(
        "WireGuard, Mbit/s inside the tunnel",
        case=case, HTTP=transfer.goodput_mbits, iperf_up=up, iperf_down=down,
    )  # fmt: skip
    return carried


def _agree(network: Network, splitter: Splitter) -> None:
    """Asserts that the splitter's summary equals the links' counts, packet for packet."""
    splitter.stop()
    said, true = splitter.counts(), network.stats()
    for name, link in true.items():
        assert abs(said[name].up_packets - link.up_packets) <= IN_FLIGHT
        assert abs(said[name].up_bytes + HEADERS * said[name].up_packets - link.up_bytes) <= (
            IN_FLIGHT * 1500
        )
        assert abs(said[name].down_packets - link.down_packets) <= IN_FLIGHT
        assert abs(said[name].down_bytes + HEADERS * said[name].down_packets - link.down_bytes) <= (
            IN_FLIGHT * 1500
        )


def test_an_idle_tunnel_with_keepalives_has_no_long_round_trip(make_network: MakeNetwork) -> None:
    """A keepalive has no answer, so the time from it to the next packet is no round trip."""
    network = make_network(links(2, delay="0ms"))
    with (
        Splitter(network.client, f"{SERVER}:{PORT}", interfaces(2)) as splitter,
        Tunnel(network.server, network.client, LISTEN) as tunnel,
    ):
        tunnel.ping()
        peer = ["wg", "set", tunnel.name, "peer", tunnel.server.public]
        network.client.must([*peer, "persistent-keepalive", "3"])
        for _ in range(7):
            network.client.run(["ping", "-c", "3", "-i", "0.2", INSIDE_SERVER])
            time.sleep(5)
        paths = [path for each in splitter.of("stats")[3:] for path in each["paths"]]
    longest = max(path["rtt_ms"] or 0 for path in paths)
    assert 0 < longest < 100, "the links take no time; the rest is this machine's"
