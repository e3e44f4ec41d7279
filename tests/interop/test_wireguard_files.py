"""``split --wg FILE``: an unmodified wg-quick brings up the written file; a tunnel as a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness.fair import difference, unfair
from harness.net import SERVER, Network, add_uplinks, links
from harness.seeded import MIB
from harness.splitter import Splitter, interfaces
from harness.tools import wait_for
from harness.wgquick import FWMARK, Quick, write_file
from harness.wireguard import (
    INSIDE_SERVER,
    PORT,
    Keys,
    ServerEnd,
    fetch,
    make_keys,
    unique,
)

pytestmark = pytest.mark.wireguard

LENGTH = 25 * MIB
# Ethernet's MTU, and the bytes of the IPv4, UDP and WireGuard headers.
WHOLE, OVERHEAD = 1500, 20 + 8 + 32
# Bounds of a path's share. On the uplink, runs of 50 packets are distributed exactly. Responses
# follow the uplink, but TCP's rate varies.
THIRD = (0.75 / 3, 1.25 / 3)
VPN, VPN_PORT = "10.99.0.2", 51821


@pytest.mark.parametrize(
    "networks", [f"{INSIDE_SERVER}/32", "0.0.0.0/0"], ids=["one-address", "full-tunnel"]
)
def test_wg_quick_brings_up_the_written_file_and_the_splitter_carries_it(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, networks: str
) -> None:
    """The hash is right, all paths have equal shares in both directions, and the MTU and
    wg-quick's mark are right.
    """
    network = make_network(links(3), default_routes=True)
    add_uplinks(network.client, 3)
    own = make_keys(network.client)
    with ServerEnd(network.server, own.public) as server:
        file, written = _files(tmp_path, own, server.public, networks)
        options = ["--wg", str(file), "--write", str(written)]
        with (
            Splitter(
                network.client, None, interfaces(3), listen=None, every="50p", options=options
            ) as splitter,
            Quick(network.client, written) as tunnel,
        ):
            assert splitter.listen == f"127.0.0.1:{PORT}", "the server's own port, which is free"
            assert written.stat().st_mode & 0o777 == 0o600
            assert tunnel.mtu() == WHOLE - OVERHEAD
            rule = f"not from all fwmark {FWMARK:#x} lookup {FWMARK}"
            assert (rule in tunnel.rules()) == networks.endswith("/0")
            _use(network, server, web_root)
            assert not splitter.of("loop")
            assert not splitter.of("warning")


def test_a_tunnel_that_is_up_is_one_of_the_paths(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path
) -> None:
    """Two paths are plain links; the third goes through another tunnel, which reduces the MTU of
    all.
    """
    network = make_network(links(3), default_routes=True)
    own = make_keys(network.client)
    with (
        ServerEnd(network.server, own.public) as server,
        Quick(network.server, _vpn_server(network, tmp_path)),
        Quick(network.client, tmp_path / "client" / "vpn.conf") as vpn,
    ):
        file, written = _files(tmp_path, own, server.public, f"{INSIDE_SERVER}/32")
        paths = ["p0=if:p0", "p1=if:p1", f"vpn=wg:{tmp_path}/client/vpn.conf"]
        options = ["--wg", str(file), "--write", str(written)]
        with (
            Splitter(
                network.client, None, paths, listen=None, every="50p", options=options
            ) as splitter,
            Quick(network.client, written) as tunnel,
        ):
            (about,) = splitter.of("listening")
            assert about["paths"][2]["interface"] == "vpn"
            assert about["paths"][2]["mtu"] == vpn.mtu() < WHOLE
            assert tunnel.mtu() == vpn.mtu() - OVERHEAD
            _use(network, server, web_root)
            splitter.stop()
            carried = splitter.counts()["vpn"]
            assert min(carried.up_packets, carried.down_packets) > 1000


def _files(folder: Path, own: Keys, server: str, networks: str) -> tuple[Path, Path]:
    """Writes a WireGuard file as from a provider; returns its path and the path for the splitter's
    file.
    """
    file, written = folder / "tunnel.conf", folder / f"{unique('wgs')}.conf"
    hooks = "# from the provider\nPostUp = true # nothing to do"
    write_file(file, own, server, f"{SERVER}:{PORT}", interface=hooks, networks=networks)
    return file, written


def _use(network: Network, server: ServerEnd, web_root: Path) -> None:
    """Runs a download through the tunnel; asserts the hash and the links' shares."""
    once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]
    wait_for("a ping in the tunnel", lambda: network.client.run(once).returncode == 0)
    with server.web(web_root / "site"):
        before = network.stats()
        transfer = fetch(network.client, LENGTH, 30)
        carried = difference(network.stats(), before)
    assert not transfer.fault(LENGTH)
    assert not unfair(carried, dict.fromkeys(carried, THIRD))


def _vpn_server(network: Network, folder: Path) -> Path:
    """Writes the files of a second tunnel over link p2; returns the server's file, next to the
    client's.

    The server has an additional address for this tunnel, and responds from it over p2, because the
    client's route to the first address leads into the tunnel.
    """
    network.server.must(["ip", "address", "add", f"{VPN}/32", "dev", "lo"])
    network.server.must(["ip", "route", "replace", "10.77.2.0/24", "dev", "p2", "src", VPN])
    network.client.must(["ip", "route", "add", f"{VPN}/32", "dev", "p2"])
    here, there = make_keys(network.server), make_keys(network.client)
    file, client = folder / f"{unique('wgv')}.conf", folder / "client" / "vpn.conf"
    # Packets that arrive through this tunnel for the first address are answered from it.
    file.write_text(f"""\
[Interface]
PrivateKey = {here.private}
Address = 10.9.0.1/24
PostUp = ip route replace 10.9.0.0/24 dev %i src {SERVER}
ListenPort = {VPN_PORT}
[Peer]
PublicKey = {there.public}
AllowedIPs = 10.9.0.2/32
""")
    client.parent.mkdir()
    client.write_text(f"""\
[Interface]
PrivateKey = {there.private}
Address = 10.9.0.2/32
[Peer]
PublicKey = {here.public}
AllowedIPs = {SERVER}/32
Endpoint = {VPN}:{VPN_PORT}
""")
    file.chmod(0o600)
    client.chmod(0o600)
    return file
