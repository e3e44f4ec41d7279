"""Every QUIC client with every server: the handshake on one path, then all paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import MakeNetwork, Results, fail_or_skip
from harness import quic
from harness.net import SERVER, links
from harness.report import shares
from harness.splitter import LISTEN, Splitter, interfaces
from harness.tools import MissingPeer
from harness.transfer import site

pytestmark = pytest.mark.quic

# Bytes for about twenty runs of 100 ms, with a server that restarts congestion control on each
# path.
LENGTH = 6_000_000
LIMIT = 60.0
TO = f"{SERVER}:{quic.PORT}"
SERVERS = ["quic-go", "quic-go 0.63", "caddy 2.11", "quinn", "noq", "aioquic", "s2n-quic"]
SERVERS += ["gtlsserver"]


@pytest.fixture(scope="module")
def short_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with ``site/bytes/LENGTH`` for file servers."""
    folder = tmp_path_factory.mktemp("matrix")
    site(folder / "site", LENGTH)
    return folder


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", list(quic.CLIENTS))
def test_a_connection_is_split_once_its_handshake_is_confirmed(
    make_network: MakeNetwork, short_root: Path, results: Results, client: str, server: str
) -> None:
    """The hash is right, all paths carry the uplink, and the release is reported within 3 s.

    Servers that follow only two changes (quic-go 0.63, Caddy 2.11) keep their downlink on one
    path; then no path may count as dead.
    """
    network = make_network(links(3))
    try:
        asked = quic.Request(LISTEN, quic.common_protocol(client, server), LENGTH, LIMIT)
        with (
            quic.serving(server, network.server, short_root),
            Splitter(network.client, TO, interfaces(3)) as splitter,
        ):
            transfer = quic.CLIENTS[client](network.client, asked)
            splitter.stop()
    except MissingPeer as missing:
        fail_or_skip(missing)
    carried = network.stats()
    assert not transfer.fault(LENGTH)
    pinned, released = splitter.of("pinned"), splitter.of("released")
    assert len(pinned) == len(released) == 1, (pinned, released)
    took = released[0]["time"] - pinned[0]["time"]
    assert took < 3.0, "within some round trips"
    up = {path: each[0] for path, each in shares(carried).items()}
    assert min(up.values()) > 0.1, up
    assert not any("down" in splitter.changes(path) for path in carried)
    assert not splitter.of("kept"), "nothing keeps it to one path"
    results.add(
        "QUIC, every 100 ms",
        client=client,
        server=server,
        release_ms=took * 1e3,
        goodput=transfer.goodput_mbits,
        downlink_on_one_path=max(each[1] for each in shares(carried).values()),
    )
