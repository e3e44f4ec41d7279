"""A path that drops all packets from the start, like a hotspot before its login."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import quic
from harness.faults import SilentCut
from harness.net import SERVER, Host, links
from harness.report import shares
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import site
from harness.wireguard import INSIDE_SERVER, PORT, Tunnel

pytestmark = pytest.mark.faults

CUT = "p1"
# Slow links, so that a download outlasts the detection, with a queue of 25 ms. With a queue of 200
# ms, a run of 100 ms would end before the server has validated its path.
SLOW = {"rate": "10mbit", "queue": "30kB"}
LENGTH = 12_000_000


def pings(host: Host, seconds: int) -> float:
    """Pings through the tunnel, ten times a second; returns the share of lost pings."""
    words = ["ping", "-q", "-i", "0.1", "-c", str(10 * seconds), "-W", "1", INSIDE_SERVER]
    said = host.run(words, timeout=seconds + 20).stdout
    sent, back = map(int, re.findall(r"(\d+) packets transmitted, (\d+)", said)[0])
    return 1 - back / sent


def downs(splitter: Splitter) -> list[tuple[str, str]]:
    """Returns the paths that the splitter left, each with the reason."""
    return [
        (event["path"], event["reason"])
        for event in splitter.of("path")
        if event["state"] == "down"
    ]


@pytest.mark.parametrize("paths", [2, 3])
def test_a_tunnel_leaves_a_path_that_swallows_within_three_seconds(
    make_network: MakeNetwork, results: Results, paths: int
) -> None:
    """WireGuard's server always follows, so a silent path drops packets, and the splitter leaves
    it. Then every ping returns. A restored path is used again.
    """
    network = make_network(links(paths))
    swallows = SilentCut(network, CUT)
    swallows.cut()
    with ExitStack() as stack:
        to = f"{SERVER}:{PORT}"
        splitter = stack.enter_context(Splitter(network.client, to, interfaces(paths)))
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        tunnel.ping()
        before = pings(network.client, 4)
        after = pings(network.client, 8)
        assert downs(splitter) == [(CUT, "silent")]
        down = splitter.of("path")[0]["time"] - splitter.of("opened")[0]["time"]
        results.add(
            f"WireGuard, one of {paths} paths swallows, pings lost in percent",
            down_s=down,
            first_4_s=100 * before,
            next_8_s=100 * after,
        )
        assert after <= 0.03, "but for a try of the path now and then"
        assert not splitter.of("skewed")
        swallows.restore()
        stack.enter_context(network.client.start(["ping", "-q", "-i", "0.1", INSIDE_SERVER]))
        splitter.wait_event("path", 25, path=CUT, state="up")
    assert down < 4.0, "a second of use, with visits to the other paths between"


@pytest.mark.parametrize("server", ["quic-go", "gtlsserver"])
def test_of_two_paths_the_one_that_never_answers_is_left_after_three_seconds(
    make_network: MakeNetwork, web_root: Path, results: Results, server: str
) -> None:
    """A QUIC server may stay on a path, so the cause of the silence is unknown. For 3 s, packets
    for the silent path are also sent on the other one. Then the splitter leaves the silent path,
    for a reason that names both causes.
    """
    network = make_network(links(2, **SLOW))
    SilentCut(network, CUT).cut()
    root = web_root.parent / "swallowed"
    site(root / "site", LENGTH)
    with (
        quic.serving(server, network.server, root),
        Splitter(network.client, f"{SERVER}:{quic.PORT}", interfaces(2)) as splitter,
    ):
        transfer = quic.download(network.client, server, LISTEN, LENGTH)
        summary = splitter.stop()
    assert not transfer.fault(LENGTH)
    assert downs(splitter) == [(CUT, "never-answered")]
    (down,) = (event for event in splitter.of("path") if event["state"] == "down")
    took = down["time"] - splitter.of("released")[0]["time"]
    copies = {path["name"]: path["copies"] for path in summary["paths"]}
    results.add(
        "QUIC, one of 2 paths swallows",
        server=server,
        left_s=took,
        copies=copies["p0"],
        longest_gap_s=transfer.longest_gap_s,
        goodput=transfer.goodput_mbits,
    )
    assert 3.0 <= took < 6.0
    assert copies["p0"] > 0, "the datagrams of the silent path"


def test_of_three_paths_the_one_that_swallows_is_told_by_the_two_that_answer(
    make_network: MakeNetwork, web_root: Path
) -> None:
    """A QUIC server that follows to two paths would follow to the third, so the third path drops
    packets.
    """
    network = make_network(links(3, **SLOW))
    SilentCut(network, CUT).cut()
    root = web_root.parent / "swallowed"
    site(root / "site", LENGTH)
    with (
        quic.serving("gtlsserver", network.server, root),
        Splitter(network.client, f"{SERVER}:{quic.PORT}", interfaces(3)) as splitter,
    ):
        transfer = quic.download(network.client, "gtlsserver", LISTEN, LENGTH)
        splitter.stop()
    assert not transfer.fault(LENGTH)
    assert downs(splitter) == [(CUT, "silent")]
    assert not splitter.of("skewed")


def test_silent_paths_are_kept_where_the_user_says_so(
    make_network: MakeNetwork, web_root: Path
) -> None:
    """With ``--keep-silent-paths`` the uplink stays on both paths, and no packet is duplicated."""
    network = make_network(links(2, **SLOW))
    SilentCut(network, CUT).cut()
    options = ["--keep-silent-paths"]
    root = web_root.parent / "swallowed"
    site(root / "site", LENGTH)
    with (
        quic.serving("gtlsserver", network.server, root),
        Splitter(
            network.client, f"{SERVER}:{quic.PORT}", interfaces(2), options=options
        ) as splitter,
    ):
        quic.download(network.client, "gtlsserver", LISTEN, LENGTH, seconds=12)
        summary = splitter.stop()
    assert downs(splitter) == []
    up = {path: each[0] for path, each in shares(splitter.counts()).items()}
    assert up[CUT] > 0.15, up
    assert not any(path["copies"] for path in summary["paths"])
