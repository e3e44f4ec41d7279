"""A full tunnel with wg-quick's rules; the splitter's own packets must stay outside it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness.fair import difference
from harness.net import SERVER, Network, add_uplinks, links
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import site
from harness.wgquick import FWMARK, FullTunnel
from harness.wireguard import MTU, PORT, ServerEnd, fetch, make_keys

pytestmark = pytest.mark.loops

LENGTH = 25 * MIB
TO = f"{SERVER}:{PORT}"
MARK = ["--fwmark", str(FWMARK)]
BY_ADDRESS = [f"p{i}=addr:10.77.{i}.2" for i in range(3)]
BY_PORTS = ["rot=ports:3"]


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        pytest.param(interfaces(3), MARK, id="interfaces-marked"),
        pytest.param(BY_ADDRESS, MARK, id="addresses-marked"),
        pytest.param(BY_PORTS, MARK, id="ports-marked"),
        # Without a mark: the tunnel's table has no route over the device that a socket is bound
        # to, so wg-quick's rules do not apply. Ports also keep the device found at the start.
        pytest.param(interfaces(3), [], id="interfaces-unmarked"),
        pytest.param(BY_ADDRESS, [], id="addresses-unmarked"),
        pytest.param(BY_PORTS, [], id="ports-unmarked"),
    ],
)
def test_a_full_tunnel_flows_and_does_not_loop(
    make_network: MakeNetwork, tmp_path: Path, paths: Sequence[str], options: Sequence[str]
) -> None:
    """A download through the tunnel arrives intact, and the paths carry it only once."""
    network = _network_with_uplinks(make_network)
    with ExitStack() as stack:
        splitter = stack.enter_context(Splitter(network.client, TO, paths, options=options))
        _, server = _full_tunnel(network, stack, tmp_path)
        stack.enter_context(server.web(site(tmp_path / "site", LENGTH)))
        before = network.stats()
        transfer = fetch(network.client, LENGTH, 30)
        assert not transfer.fault(LENGTH)
        carried = difference(network.stats(), before)
        splitter.stop()
        assert not splitter.of("loop")
    # 25 MiB are 19,200 segments of at most 1,368 bytes; a loop would repeat them.
    assert sum(each.down_packets for each in carried.values()) < 30_000
    assert sum(each.up_packets for each in carried.values()) < 30_000
    assert all(c.down_packets > 1000 for c in carried.values()) or paths is BY_PORTS


@pytest.mark.parametrize(
    "paths", [BY_PORTS, BY_ADDRESS, interfaces(3)], ids=["ports", "addresses", "interfaces"]
)
def test_a_marked_splitter_may_start_after_the_full_tunnel(
    make_network: MakeNetwork, tmp_path: Path, paths: Sequence[str]
) -> None:
    """With the mark, the lookup of the splitter's routes bypasses the tunnel."""
    network = _network_with_uplinks(make_network)
    with ExitStack() as stack:
        tunnel, _ = _full_tunnel(network, stack, tmp_path)
        with Splitter(network.client, TO, paths, options=MARK):
            assert tunnel.reaches_server()


def test_without_a_mark_inside_a_running_tunnel_a_packet_loops_only_until_it_is_too_big(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """The control: without a mark, the splitter's packets enter the tunnel that they carry.

    No data can flow. Each round adds at least 60 bytes of headers (IPv4, UDP and WireGuard) to a
    packet, and fragmentation is forbidden. After at most 24 rounds the packet exceeds the MTU of
    1,420 bytes, and is dropped and counted as "too big". Nothing leaves over the paths.
    """
    network = _network_with_uplinks(make_network)
    with ExitStack() as stack:
        tunnel, _ = _full_tunnel(network, stack, tmp_path)
        with Splitter(network.client, TO, BY_PORTS, options=MARK):
            assert tunnel.reaches_server(), "keys are agreed on"
        splitter = stack.enter_context(Splitter(network.client, TO, BY_PORTS))
        before = network.stats()
        assert not tunnel.reaches_server()
        (path,) = splitter.stop()["paths"]
        carried = difference(network.stats(), before)
    # The drops are of one ping; wireguard-go may add a keepalive or a handshake.
    assert 1 <= path["drops"]["too_big"] <= 4
    assert 10 <= path["up_packets"] <= 4 * MTU / 60
    assert all(each.up_packets == 0 for each in carried.values())


def _network_with_uplinks(make_network: MakeNetwork) -> Network:
    """Returns a network of three uplinks with default routes, and rules that bind addresses to
    them.
    """
    network = make_network(links(3), default_routes=True)
    add_uplinks(network.client, 3)
    return network


def _full_tunnel(network: Network, stack: ExitStack, folder: Path) -> tuple[FullTunnel, ServerEnd]:
    """Starts both ends of a full tunnel; wg-quick sets up the client's end with its rules."""
    own = make_keys(network.client)
    server = stack.enter_context(ServerEnd(network.server, own.public))
    tunnel = FullTunnel(network.client, own, server.public, LISTEN, folder)
    stack.enter_context(tunnel)
    assert "suppress_prefixlength 0" in tunnel.rules()
    assert f"not from all fwmark {FWMARK:#x} lookup {FWMARK}" in tunnel.rules()
    return tunnel, server
