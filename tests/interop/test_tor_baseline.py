"""A private network of stock tors alone: what all other tests of the onion network stand on."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Results
from harness.seeded import MIB
from harness.tools import wait_for
from harness.tornet import TorNetwork
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(400)]

LENGTHS = (1, 514, 100_000, 5 * MIB, 200 * MIB)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorNetwork]:
    """Three authorities, three relays, two exits."""
    with TorNetwork(tmp_path_factory.mktemp("tor")) as network:
        network.start()
        yield network


def test_stock_tors_carry_files_of_any_length(
    network: TorNetwork, tmp_path: Path, results: Results
) -> None:
    """1 B to 200 MiB arrive with the right hash, and no tor complains."""
    client = network.client("client0", "ConfluxEnabled 0")
    proxy = f"socks5h://127.0.0.1:{client.socks}"
    with FileServer() as server:
        for length in LENGTHS:
            got = fetch(server.url(length), proxy, tmp_path / "got")
            assert not got.fault(length), got.fault(length)
            results.add(
                "stock tor alone",
                bytes=length,
                seconds=f"{got.seconds:.2f}",
                first_byte_ms=f"{got.first_byte_s * 1000:.0f}",
            )
    assert network.complaints() == []


def test_the_control_port_tells_the_path_that_a_client_was_told_to_take(
    network: TorNetwork, tmp_path: Path
) -> None:
    """A pinned path is the path that is used: the other tests rely on that."""
    guard, middle, exit_ = network.of("relay")[0], network.of("relay")[1], network.of("exit")[0]
    client = network.client(
        "pinned",
        "ConfluxEnabled 0",
        f"EntryNodes {guard.fingerprint}",
        f"MiddleNodes {middle.fingerprint}",
        f"ExitNodes {exit_.fingerprint}",
    )
    with FileServer() as server:
        got = fetch(server.url(MIB), f"socks5h://127.0.0.1:{client.socks}", tmp_path / "got")
        assert not got.fault(MIB), got.fault(MIB)
    with client.control() as control:
        general = [
            c.hops for c in control.circuits() if c.purpose == "GENERAL" and len(c.hops) == 3
        ]
        names = {name for name, _ in control.routers().values()}
    assert general, "no circuit of three hops"
    pinned = (guard.fingerprint, middle.fingerprint, exit_.fingerprint)
    assert set(general) == {pinned}
    assert {node.name for node in network.nodes if node.role != "client"} <= names


def test_what_breaks_the_protocol_is_complained_of(network: TorNetwork) -> None:
    """The twin of "no tor complains": a stranger that is no tor shows in who it talked to."""
    relay = network.of("relay")[2]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", relay.orport), timeout=10) as plain,
        context.wrap_socket(plain) as stranger,
    ):
        # A VERSIONS cell that offers nothing but version 9.
        stranger.sendall(b"\x00\x00\x07\x00\x02\x00\x09")
        with contextlib.suppress(ConnectionError):
            assert stranger.recv(1) == b"", "it hangs up"
    wait_for("a complaint", lambda: network.complaints() != [])
    assert all(line.startswith("relay2") for line in network.complaints())
