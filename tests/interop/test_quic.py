"""QUIC: unmodified servers and quic-go's client, with the splitter at the client."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import quic
from harness.fair import difference, unfair
from harness.net import SERVER, Counts, Network, links
from harness.report import shares
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces

pytestmark = pytest.mark.quic

LENGTH = 25 * MIB
# Bytes of a long download. A server with a congestion window for each path has three slow starts,
# which are a small part of this download.
LONG = 60 * MIB
TO = f"{SERVER}:{quic.PORT}"
# Timeout in seconds. At 100 ms, some servers restart congestion control at each switch
# (docs/notes/quic-servers.md); none needs more than half of this time.
LIMIT = 90.0


@pytest.mark.parametrize("kind", ["quic-go", "quinn", "gtlsserver", "aioquic"])
def test_a_download_survives_switching_and_the_server_follows(
    make_network: MakeNetwork, web_root: Path, results: Results, kind: str
) -> None:
    """Unsplit, and with switches every 1000 ms and 100 ms, the hash is right and all paths carry
    both directions.
    """
    network = make_network(links(3))
    goodput = {}
    with quic.serving(kind, network.server, web_root):
        whole = quic.download(network.client, kind, TO, LENGTH, seconds=LIMIT)
        assert not whole.fault(LENGTH)
        goodput["unsplit"] = whole.goodput_mbits
        for every in ("1000ms", "100ms"):
            goodput[every] = _split_download(network, kind, every)
    results.add("QUIC, 25 MiB, Mbit/s", server=kind, **goodput)


def _split_download(
    network: Network, kind: str, every: str, options: Sequence[str] = (), length: int = LENGTH
) -> float:
    """Downloads through the splitter, asserts the shares, and returns the goodput in Mbit/s."""
    before = network.stats()
    with Splitter(network.client, TO, interfaces(3), every=every, options=options) as splitter:
        transfer = quic.download(network.client, kind, LISTEN, length, seconds=LIMIT)
        splitter.stop()
        carried = difference(network.stats(), before)
        assert not transfer.fault(length)
        _assert_all_paths_both_ways(carried, every)
        assert not any("down" in splitter.changes(path) for path in carried)
    return transfer.goodput_mbits


def _assert_all_paths_both_ways(carried: dict[str, Counts], every: str) -> None:
    """Asserts that all paths carried both directions.

    At 100 ms a path's share has bounds. At 1000 ms a fast download takes only three slices, of
    which the last may be short. Then each path must have carried more than probes do: 100 packets
    up and down.
    """
    if every == "1000ms":
        assert all(min(c.up_packets, c.down_packets) >= 100 for c in carried.values()), carried
        return
    # If congestion control restarts at every switch, a path's slices are bursts and waits of
    # unequal size, 20 or more in total. The bounds are half and twice the fair share.
    paths = len(carried)
    assert not unfair(carried, dict.fromkeys(carried, (0.5 / paths, 2 / paths)))


@pytest.mark.parametrize("kind", ["s2n-quic", "aioquic"])
def test_in_order_saves_the_window_of_servers_that_keep_it(
    make_network: MakeNetwork, web_root: Path, results: Results, kind: str
) -> None:
    """At 100 ms, ``--in-order`` gives more goodput than without, in alternating runs.

    Here the median of three runs must be a tenth higher; ``bench/quic.py`` measures the gain.
    """
    network = make_network(links(3))
    goodput: dict[str, list[float]] = {"plain": [], "in order": []}
    with quic.serving(kind, network.server, web_root):
        for _ in range(3):
            for name, options in {"plain": [], "in order": ["--in-order", "30ms"]}.items():
                goodput[name].append(_split_download(network, kind, "100ms", options, LONG))
    medians = {name: statistics.median(each) for name, each in goodput.items()}
    results.add("QUIC every 100 ms, 60 MiB, Mbit/s, median of 3", server=kind, **medians)
    assert medians["in order"] > 1.1 * medians["plain"], goodput


def test_a_server_that_answers_on_its_first_path_only_makes_no_path_look_dead(
    make_network: MakeNetwork, web_root: Path, results: Results
) -> None:
    """Caddy 2.6 receives on all paths and answers on one: this is reported, and no path counts as
    dead.
    """
    network = make_network(links(3))
    options = ["--keep-silent-paths"]
    with (
        quic.serving("caddy", network.server, web_root),
        Splitter(network.client, TO, interfaces(3), options=options) as splitter,
    ):
        transfer = quic.download(network.client, "caddy", LISTEN, LENGTH, seconds=LIMIT)
        splitter.stop()
        carried = network.stats()
        assert not transfer.fault(LENGTH)
        up, down = zip(*shares(carried).values(), strict=True)
        assert min(up) > 0.15, "the uplink goes by all paths"
        assert max(down) > 0.95, "the downlink stays on one"
        assert not any("down" in splitter.changes(path) for path in carried)
        said = splitter.counts()
        assert max(shares(said).values(), key=lambda each: each[1])[1] > 0.95
        assert splitter.of("skewed"), "the splitter tells that the downlink is not split"
    results.add("Caddy", goodput=transfer.goodput_mbits, downlink_on_one_path=max(down))


@pytest.mark.parametrize("kind", ["quic-go 0.63", "caddy 2.11"])
def test_a_server_that_follows_twice_and_stays_makes_no_path_look_dead(
    make_network: MakeNetwork, web_root: Path, results: Results, kind: str
) -> None:
    """With quic-go up to 0.64.1 and a client with connection IDs, the uplink stays split over all
    paths. Within 10 s the splitter reports that the server, which followed before, no longer does.
    """
    network = make_network(links(3, rate="20mbit"))
    asked = quic.Request(LISTEN, "h3", LENGTH, LIMIT)
    with (
        quic.serving(kind, network.server, web_root),
        Splitter(network.client, TO, interfaces(3)) as splitter,
    ):
        transfer = quic.CLIENTS["quic-go with IDs"](network.client, asked)
        splitter.stop()
    carried = network.stats()
    assert not transfer.fault(LENGTH)
    up, down = zip(*shares(carried).values(), strict=True)
    (skewed,) = splitter.of("skewed")
    reported = skewed["time"] - splitter.of("released")[0]["time"]
    results.add(
        "Servers that follow twice",
        server=kind,
        goodput=transfer.goodput_mbits,
        uplink_on_one_path=max(up),
        downlink_on_one_path=max(down),
        reported_after_s=reported,
    )
    assert min(up) > 0.25, "the uplink goes by all paths alike"
    assert max(down) > 0.8, "the downlink stays on one"
    assert not any("down" in splitter.changes(path) for path in carried)
    assert skewed["followed"]
    assert reported < 10


def test_paths_without_any_answer_are_left_while_nobody_knows_why(
    make_network: MakeNetwork, web_root: Path
) -> None:
    """Caddy 2.6 with defaults: the download is intact, and the splitter leaves the two silent
    paths for a reason that also names the server.
    """
    network = make_network(links(3, rate="20mbit"))
    with (
        quic.serving("caddy", network.server, web_root),
        Splitter(network.client, TO, interfaces(3)) as splitter,
    ):
        transfer = quic.download(network.client, "caddy", LISTEN, LENGTH, seconds=LIMIT)
        splitter.stop()
    assert not transfer.fault(LENGTH)
    left = [event["reason"] for event in splitter.of("path") if event["state"] == "down"]
    assert left == ["never-answered"] * 2
