"""Tunnels whose servers accept data from only one address. Packets on other paths are lost until
the splitter leaves these paths.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import fastd
from harness.net import SERVER, Host, links
from harness.report import shares
from harness.seeded import MIB
from harness.splitter import Splitter, interfaces
from harness.transfer import site
from harness.wireguard import fetch
from test_programs import web

pytestmark = pytest.mark.programs

LISTEN = "127.0.0.1:51820"
SLOW = {"rate": "50mbit", "queue": "125kB"}
LENGTH = 40 * MIB
# Maximum seconds from the first datagram until the splitter leaves the paths.
LEFT_S = 10.0


def lost(host: Host, address: str, seconds: int) -> float:
    """Pings through the tunnel, ten times a second; returns the share of lost pings."""
    words = ["ping", "-q", "-i", "0.1", "-c", str(10 * seconds), "-W", "1", address]
    said = host.run(words, timeout=seconds + 20).stdout
    sent, back = map(int, re.findall(r"(\d+) packets transmitted, (\d+)", said)[0])
    return 1 - back / sent


@pytest.mark.parametrize("paths", [2, 3])
@pytest.mark.parametrize("load", ["pings", "download"])
def test_fastd_keeps_one_path_and_that_is_said(
    make_network: MakeNetwork, tmp_path: Path, results: Results, load: str, paths: int
) -> None:
    """Handshakes of fastd arrive on all paths every 15 s. Within 10 s a line names the cause;
    after that (almost) no ping is lost, for three rounds of handshakes.
    """
    network = make_network(links(paths, **SLOW))
    root = site(tmp_path / "site", LENGTH)
    with ExitStack() as stack:
        to = f"{SERVER}:{fastd.PORT}"
        splitter = stack.enter_context(Splitter(network.client, to, interfaces(paths)))
        tunnel = fastd.tunnel(network.server, network.client, tmp_path, LISTEN)
        stack.enter_context(tunnel)
        if load == "download":
            stack.enter_context(web(network.server, root, fastd.INSIDE_SERVER))
            words = ["curl", "-s", "-o", "/dev/null", "--limit-rate", "3M"]
            url = f"http://{fastd.INSIDE_SERVER}/bytes/{LENGTH}"
            stack.enter_context(network.client.start([*words, url]))
        before = lost(network.client, fastd.INSIDE_SERVER, 12)
        after = lost(network.client, fastd.INSIDE_SERVER, 45)
        transfer = None
        if load == "download":
            transfer = fetch(network.client, LENGTH, 60.0, fastd.INSIDE_SERVER)
        carried = shares(network.stats())
        begun = splitter.of("opened")[0]["time"]
        reports = [
            (each["path"], each["state"], each.get("reason")) for each in splitter.of("path")
        ]
        left = [each["time"] - begun for each in splitter.of("path")]
        results.add(
            "fastd", paths=paths, load=load, left_s=max(left, default=float("inf")),
            lost_first_12_s=100 * before, lost_next_45_s=100 * after, reports=len(reports),
            mbits=transfer.goodput_mbits if transfer else 0.0,
            up=[round(each[0], 2) for each in carried.values()],
        )  # fmt: skip
    assert len(reports) == paths - 1, reports
    assert all(each[1:] == ("down", "data-unanswered") for each in reports), reports
    assert max(left) <= LEFT_S
    assert after <= 0.02
    assert transfer is None or not transfer.fault(LENGTH)
