"""A private network of stock tors only, the basis of all other tests of the onion network."""

from __future__ import annotations

import contextlib
import socket
import ssl
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.notices import unusual
from harness.seeded import MIB
from harness.tools import wait_for
from harness.tornet import TorNetwork
from harness.webfiles import FileServer, fetch, fetch_all

pytestmark = [pytest.mark.tor, pytest.mark.timeout(600)]


def test_stock_tors_carry_files_of_any_length(
    stock_tor: TorNetwork, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 200 MiB arrive intact, and no tor logs a complaint."""
    client = stock_tor.client("client0", "ConfluxEnabled 0")
    fetch_all(client.proxy, tmp_path, partial(results.add, "stock tor alone"))
    assert stock_tor.complaints() == []


def test_the_control_port_tells_the_path_that_a_client_was_told_to_take(
    stock_tor: TorNetwork, tmp_path: Path
) -> None:
    """A client uses its pinned path, on which the other tests rely."""
    guard, middle, exit_ = (
        stock_tor.of("relay")[0],
        stock_tor.of("relay")[1],
        stock_tor.of("exit")[0],
    )
    pinned = (guard.fingerprint, middle.fingerprint, exit_.fingerprint)
    client = stock_tor.client("pinned", "ConfluxEnabled 0", path=pinned)
    with FileServer() as server:
        got = fetch(server.url(MIB), client.proxy, tmp_path / "got")
        assert not got.fault(MIB), got.fault(MIB)
    with client.control() as control:
        assert control.paths() == {pinned}
        names = {name for name, _ in control.routers().values()}
    assert {node.name for node in stock_tor.nodes if node.role != "client"} <= names


def test_a_notice_that_no_stock_network_has_is_a_complaint() -> None:
    """The control of the list: notices count that it lacks, or that come after bootstrap."""
    said = "Nov 24 10:00:00.000 [notice] {%s} %s"
    short = said % ("PROTOCOL", "Short path bias probe response length field (1).")
    lost = said % ("NET", "The current consensus has no exit nodes. Tor can only build internal")
    usual = said % ("CONTROL", "Bootstrapped 100% (done): Done")
    assert unusual([short, lost, usual], is_client=True) == [short], "it comes up"
    assert unusual([usual, short, lost], is_client=True) == [short, lost]
    assert unusual([usual, short, lost], is_client=False) == [short]


def test_what_breaks_the_protocol_is_complained_of(stock_tor: TorNetwork) -> None:
    """The control of "no tor complains": a program that breaks the protocol causes a complaint."""
    relay = stock_tor.of("relay")[2]
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
    wait_for("a complaint", lambda: stock_tor.complaints() != [])
    assert all(line.startswith("relay2") for line in stock_tor.complaints())
