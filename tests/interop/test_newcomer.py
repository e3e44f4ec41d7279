"""README's first example: a third-party tunnel over two uplinks, and twenty pings through it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness.fair import difference
from harness.net import SERVER, Link
from harness.splitter import Splitter
from harness.wgquick import Quick, write_file
from harness.wireguard import INSIDE_SERVER, PORT, ServerEnd, make_keys, unique

pytestmark = pytest.mark.wireguard

UPLINKS = ("wlan0", "wwan0")
PINGS = 20


def test_a_tunnel_is_split_by_its_file_and_two_paths_and_twenty_pings_come_back(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """``split --wg FILE --write FILE --path … --path …``, ``wg-quick up``, ``ping -c 20``.

    ``--path auto`` is not used: it ignores tunnels, and the links of this network are TUN
    interfaces.
    """
    network = make_network([Link(name) for name in UPLINKS], default_routes=True)
    own = make_keys(network.client)
    file, written = tmp_path / "home.conf", tmp_path / f"{unique('wgn')}.conf"
    with ServerEnd(network.server, own.public) as server:
        write_file(
            file, own, server.public, f"{SERVER}:{PORT}", interface="",
            networks=f"{INSIDE_SERVER}/32",
        )  # fmt: skip
        interfaces = [f"{name}=if:{name}" for name in UPLINKS]
        options = ["--wg", str(file), "--write", str(written)]
        with (
            Splitter(
                network.client, None, interfaces, listen=None, schedule=None, every=None,
                seed=None, options=options,
            ) as splitter,
            Quick(network.client, written),
        ):  # fmt: skip
            before = network.stats()
            said = network.client.must(
                ["ping", "-c", str(PINGS), "-i", "0.3", INSIDE_SERVER], timeout=30
            )
            assert re.search(rf"{PINGS} received", said)
            carried = difference(network.stats(), before)
            (listening,) = splitter.of("listening")
            assert [path["name"] for path in listening["paths"]] == list(UPLINKS)
            for name in UPLINKS:
                assert carried[name].up_packets, f"nothing went up by {name}"
                assert carried[name].down_packets, f"nothing came down by {name}"
