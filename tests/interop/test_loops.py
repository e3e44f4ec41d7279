"""A full tunnel by wg-quick's rules, with the splitter's own packets outside it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness.fair import difference
from harness.net import SERVER, Counts, Network, links
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import site
from harness.wgquick import FWMARK, FullTunnel
from harness.wireguard import PORT, ServerEnd, fetch, make_keys

pytestmark = pytest.mark.loops

LENGTH = 25 * MIB
TO = f"{SERVER}:{PORT}"
MARK = ["--fwmark", str(FWMARK)]
BY_ADDRESS = [f"p{i}=addr:10.77.{i}.2" for i in range(3)]
BY_PORTS = ["rot=ports:3"]


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        pytest.param(interfaces(3), MARK, id="interfaces, marked"),
        pytest.param(BY_ADDRESS, MARK, id="addresses, marked"),
        pytest.param(BY_PORTS, MARK, id="ports, marked"),
        # Sockets bound to a device find no route to the tunnel's: the rules do not catch them.
        pytest.param(interfaces(3), [], id="interfaces, unmarked"),
        # The device of an address was looked up before the tunnel took the default route.
        pytest.param(BY_ADDRESS, [], id="addresses, unmarked"),
    ],
)
def test_a_full_tunnel_flows_and_does_not_loop(
    make_network: MakeNetwork, tmp_path: Path, paths: Sequence[str], options: Sequence[str]
) -> None:
    """A download through the tunnel arrives whole, and the paths carry it once."""
    network = make_network(links(3), default_routes=True)
    with ExitStack() as stack:
        splitter = stack.enter_context(Splitter(network.client, TO, paths, options=options))
        carried = _download_through_full_tunnel(network, stack, tmp_path)
        splitter.stop()
        assert not splitter.of("loop")
    # Twenty-five MiB in packets of 1,420 bytes are 19,000; a loop would send them again and again.
    assert sum(each.down_packets for each in carried.values()) < 30_000
    assert sum(each.up_packets for each in carried.values()) < 30_000


def test_an_unmarked_splitter_started_inside_a_full_tunnel_does_not_flood(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """The twin: ports only and no mark, so its packets enter the tunnel that they carry.

    Nothing can flow. What must hold is that the loop ends by itself and does not flood the paths.
    """
    network = make_network(links(3), default_routes=True)
    with ExitStack() as stack:
        splitter = stack.enter_context(Splitter(network.client, TO, BY_PORTS))
        tunnel, _ = _full_tunnel(network, stack, tmp_path)
        before = network.stats()
        assert not tunnel.reaches_server()
        time.sleep(3)
        carried = difference(network.stats(), before)
        splitter.stop()
    # Handshake attempts every 5 s, each at most as many packets as headers fit into the MTU.
    assert sum(each.up_packets for each in carried.values()) < 500


def _full_tunnel(network: Network, stack: ExitStack, folder: Path) -> tuple[FullTunnel, ServerEnd]:
    """Both ends, the client's by wg-quick, with the rules that this test is about."""
    own = make_keys(network.client)
    server = stack.enter_context(ServerEnd(network.server, own.public))
    tunnel = FullTunnel(network.client, own, server.public, LISTEN, folder)
    stack.enter_context(tunnel)
    assert "suppress_prefixlength 0" in tunnel.rules()
    assert f"not from all fwmark {FWMARK:#x} lookup {FWMARK}" in tunnel.rules()
    return tunnel, server


def _download_through_full_tunnel(
    network: Network, stack: ExitStack, folder: Path
) -> dict[str, Counts]:
    _, server = _full_tunnel(network, stack, folder)
    stack.enter_context(server.web(site(folder / "site", LENGTH)))
    before = network.stats()
    transfer = fetch(network.client, LENGTH, 30)
    assert not transfer.fault(LENGTH)
    return difference(network.stats(), before)
