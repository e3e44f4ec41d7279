"""QUIC with its handshake on a separate path: what an observer of the direct paths can read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness import quic
from harness.capture import Packet, Tcpdump
from harness.net import SERVER, Link, Network
from harness.quicwire import is_handshake, long_headers
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter

pytestmark = pytest.mark.quic

DIRECT = ("p1", "p2")
TO = f"{SERVER}:{quic.PORT}"
# Number of connections. At 2 % loss, about one handshake in eight loses a packet, so with twelve
# handshakes a loss is likely.
CONNECTIONS = 12


@pytest.mark.parametrize("loss", [0.0, 0.02])
@pytest.mark.parametrize("version", [1, 2])
def test_direct_paths_show_no_handshake(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, loss: float, version: int
) -> None:
    """Direct paths carry no Initial or Handshake packet, and the handshake path carries only
    handshakes.
    """
    network = make_network([Link("hs", loss=loss), *(Link(name, loss=loss) for name in DIRECT)])
    seen = _watch(network, web_root, tmp_path, version)
    for name in DIRECT:
        assert len(seen[name]) > 500, "the direct paths carry the connection"
        assert not [p for p in seen[name] if is_handshake(p.payload)]
        assert not [p for p in seen[name] if long_headers(p.payload)], "nor any other long header"
    assert sum(is_handshake(p.payload) for p in seen["hs"]) >= 3 * CONNECTIONS
    _assert_only_handshakes(seen["hs"], [p for name in DIRECT for p in seen[name]])


def test_the_parser_of_this_test_finds_handshakes_where_they_are_not_hidden(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path
) -> None:
    """The control: without a handshake path, an observer does see Initial packets."""
    network = make_network([Link("hs"), *(Link(name) for name in DIRECT)])
    with (
        quic.serving("quic-go", network.server, web_root),
        Tcpdump(network.client, "hs", tmp_path / "hs.pcap") as capture,
        Splitter(network.client, TO, ["p0=if:hs"]),
    ):
        transfer = quic.download(network.client, "quic-go", LISTEN, MIB)
        assert not transfer.fault(MIB)
        kinds = {h.kind for p in capture.stop() for h in long_headers(p.payload)}
    assert {"initial", "handshake"} <= kinds


def _watch(network: Network, web_root: Path, folder: Path, version: int) -> dict[str, list[Packet]]:
    """Makes connections one after another; returns tcpdump's packets of each path."""
    names = ("hs", *DIRECT)
    options = ["--handshake", "hs"]
    paths = [f"{name}=if:{name}" for name in names]
    with ExitStack() as stack:
        stack.enter_context(quic.serving("quic-go", network.server, web_root))
        captures = {
            name: stack.enter_context(Tcpdump(network.client, name, folder / f"{name}.pcap"))
            for name in names
        }
        stack.enter_context(Splitter(network.client, TO, paths, options=options))
        for _ in range(CONNECTIONS):
            transfer = quic.download(
                network.client, "quic-go", LISTEN, MIB, seconds=30, version=version
            )
            assert not transfer.fault(MIB)
        return {name: capture.stop() for name, capture in captures.items()}


def _assert_only_handshakes(on_handshake: Sequence[Packet], direct: Sequence[Packet]) -> None:
    """Asserts that a connection's uplink leaves the handshake path for good after its handshake.

    The test distinguishes connections only by time, because they are made one after another. A
    short-header packet to the server on the handshake path must be between a connection's first
    long header and its first packet on a direct path.
    """
    marks = [(p.time, "long") for p in on_handshake if long_headers(p.payload)]
    marks += [(p.time, "direct") for p in direct if p.is_to_port(quic.PORT)]
    short = [p for p in on_handshake if p.is_to_port(quic.PORT) and not long_headers(p.payload)]
    marks += [(p.time, "short") for p in short]
    latest, wrong = "", 0
    for _, what in sorted(marks):
        wrong += what == "short" and latest == "direct"
        latest = latest if what == "short" else what
    assert wrong == 0, f"{wrong} of {len(short)} late packets on the handshake path"
