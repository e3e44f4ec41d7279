"""Unmodified OpenVPN. In server mode it follows a client whose address changes. Point to point
with TLS it does not, with or without ``--float``, and the splitter reports this
(``docs/guide/any-program.md``).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import openvpn
from harness.fair import difference
from harness.interface import interface
from harness.net import SERVER, Host, links
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import site
from harness.wireguard import fetch

pytestmark = pytest.mark.wireguard

LENGTH = 25 * MIB
SHORT = 10 * MIB


@contextlib.contextmanager
def web(server: Host, root: Path) -> Iterator[None]:
    """Serves the files below ``root`` over HTTP inside the tunnel."""
    command = [sys.executable, "-m", "http.server", "80", "--bind", openvpn.INSIDE_SERVER]
    with server.start([*command, "--directory", str(root)]) as process:
        process.wait_bound(80, "tcp")
        yield


def test_a_server_follows_its_client_over_all_paths(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, results: Results
) -> None:
    """With ``--tun --udp 1194`` and the server's own address as remote, no option ``--float`` is
    needed.
    """
    network = make_network(links(3), default_routes=True)
    with (
        interface(network.client, interfaces(3), "--udp", str(openvpn.PORT)) as splitter,
        openvpn.tunnel(network.server, network.client, tmp_path, f"{SERVER}:{openvpn.PORT}"),
        web(network.server, web_root / "site"),
    ):
        before = network.stats()
        transfer = fetch(network.client, LENGTH, 60.0, openvpn.INSIDE_SERVER)
        assert not transfer.fault(LENGTH)
        carried = difference(network.stats(), before)
        total = sum(each.down_bytes for each in carried.values())
        shares = {name: each.down_bytes / total for name, each in carried.items()}
        results.add("OpenVPN", mbits=round(transfer.goodput_mbits, 1), **shares)
        assert min(shares.values()) > 0.1, shares
        assert not splitter.of("skewed")


@pytest.mark.parametrize("floats", [True, False], ids=["float", "no float"])
def test_point_to_point_with_tls_takes_nothing_from_a_second_address_and_that_is_said(
    make_network: MakeNetwork, tmp_path: Path, floats: bool
) -> None:
    """With and without ``--float``, packets on the other paths are dropped ("TLS keys are out of
    sync"). The server is reported, and one path remains.
    """
    network = make_network(links(3, rate="20mbit", queue="50kB"))
    with (
        Splitter(network.client, f"{SERVER}:{openvpn.PORT}", interfaces(3)) as splitter,
        openvpn.tunnel(
            network.server, network.client, tmp_path, LISTEN, point_to_point=True, floats=floats
        ) as server,
        web(network.server, site(tmp_path / "site", SHORT)),
    ):
        before = network.stats()
        transfer = fetch(network.client, SHORT, 30.0, openvpn.INSIDE_SERVER)
        assert not transfer.fault(SHORT)
        carried = difference(network.stats(), before)
        assert sum(each.down_packets > 0 for each in carried.values()) == 1, carried
        assert splitter.of("skewed")[0]["percent"] == 100
        assert [each["reason"] for each in splitter.of("path")] == ["never-answered"] * 2
        assert "TLS keys are out of sync" in server.output()
