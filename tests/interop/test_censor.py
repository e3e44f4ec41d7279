"""The emulated censor, tested with handshakes of quic-go and OpenSSL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import quic
from harness.net import Host, Network, namespaces_allowed
from harness.tools import MissingPeer

pytestmark = pytest.mark.quic

SERVER = "10.2.0.2"
TLS_PORT = 8443
# quic-client always asks for this name.
NAME = "localhost"
BLOCKED = "www.blocked.example"
# Clients that request one name after another from one port, and print the result for each.
TLS_CLIENT = """
import socket, ssl, struct, sys
context = ssl._create_unverified_context()
for name in sys.argv[3:]:
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Closed with a reset, so that the port is free at once.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        plain.bind(("", 40000))
        plain.settimeout(4)
        try:
            plain.connect((sys.argv[1], int(sys.argv[2])))
            context.wrap_socket(plain, server_hostname=name).close()
            print("through")
        except OSError:
            print("cut")
"""
QUIC_CLIENT = """
import asyncio, ssl, sys
from aioquic.asyncio import connect
from aioquic.quic.configuration import QuicConfiguration
async def ask(name):
    settings = QuicConfiguration(
        alpn_protocols=["h3"], server_name=name, verify_mode=ssl.CERT_NONE, idle_timeout=3
    )
    server = sys.argv[1], int(sys.argv[2])
    try:
        async with connect(*server, configuration=settings, local_port=40000):
            print("through")
    except ConnectionError:
        print("cut")
async def main():
    for name in sys.argv[3:]:
        await ask(name)
asyncio.run(main())
"""


def _topology(blocked: str) -> str:
    return f"""\
[[host]]
name = "client"
[[host]]
name = "border"
forward = true
censor = ["{blocked}"]
[[host]]
name = "server"
[[link]]
name = "near"
ends = [
  {{ host = "client", address = ["10.1.0.2/24"], routes = ["10.2.0.0/24"] }},
  {{ host = "border", address = ["10.1.0.1/24"] }},
]
delay = "5ms"
[[link]]
name = "far"
ends = [
  {{ host = "border", address = ["10.2.0.1/24"] }},
  {{ host = "server", address = ["{SERVER}/24"], routes = ["10.1.0.0/24"] }},
]
delay = "5ms"
"""


@contextmanager
def _network(blocked: str) -> Iterator[Network]:
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    with Network(_topology(blocked)) as network:
        yield network


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("blocked", "passes"), [(NAME, False), ("elsewhere.example", True)])
def test_quic_is_cut_by_the_name_that_its_clienthello_asks_for(
    tmp_path: Path, version: int, blocked: str, passes: bool
) -> None:
    """The censor decrypts quic-go's first packets of both QUIC versions; other names pass."""
    endpoint = f"{SERVER}:{quic.PORT}"
    with (
        _network(blocked) as network,
        quic.serving("quic-go", network.server, tmp_path, address=SERVER),
    ):
        transfer = quic.download(
            network.client, "quic-go", endpoint, 100_000, seconds=4, version=version
        )
        assert bool(transfer.error) != passes, transfer
        assert transfer.bytes == (100_000 if passes else 0)
        assert (network.censored("near") > 0) != passes


@pytest.mark.parametrize(("name", "passes"), [(BLOCKED, False), ("example", True)])
def test_tls_is_cut_by_the_name_that_its_clienthello_asks_for(
    tmp_path: Path, name: str, passes: bool
) -> None:
    """With OpenSSL: subdomains of a blocked name are blocked; its parent domains are not."""
    with _network("blocked.example") as network, _tls_server(network, tmp_path):
        assert _shakes_hands(network.client, name) == passes


ORDERS = [["good.example", BLOCKED, "good.example"], [BLOCKED, "good.example", BLOCKED]]


@pytest.mark.parametrize("names", ORDERS, ids=["good-first", "blocked-first"])
def test_each_connection_of_one_port_is_judged_by_its_own_name(
    tmp_path: Path, names: list[str]
) -> None:
    """OpenSSL's and aioquic's clients reuse a port: a verdict applies to one connection only."""
    expected = ["cut" if name == BLOCKED else "through" for name in names]
    with (
        _network("blocked.example") as network,
        quic.serving("quic-go", network.server, tmp_path, address=SERVER),
    ):
        ask = [sys.executable, "-c", QUIC_CLIENT, SERVER, str(quic.PORT), *names]
        assert network.client.must(ask, timeout=60).split() == expected
        with _tls_server(network, tmp_path):
            ask = [sys.executable, "-c", TLS_CLIENT, SERVER, str(TLS_PORT), *names]
            assert network.client.must(ask, timeout=60).split() == expected


def test_a_dot_at_the_end_of_a_name_hides_nothing(tmp_path: Path) -> None:
    """A trailing dot does not evade the censor; OpenSSL sends the name as given."""
    with _network("blocked.example") as network, _tls_server(network, tmp_path):
        assert _shakes_hands(network.client, "example.")
        assert not _shakes_hands(network.client, f"{BLOCKED}.")


@contextmanager
def _tls_server(network: Network, folder: Path) -> Iterator[None]:
    quic.make_certificate(network.server, folder)
    files = ["-cert", str(folder / "certificate.pem"), "-key", str(folder / "key.pem")]
    server = ["openssl", "s_server", "-accept", f"{SERVER}:{TLS_PORT}", "-www", *files]
    with network.server.start(server) as process:
        process.wait_bound(TLS_PORT, "tcp")
        yield


def _shakes_hands(client: Host, name: str) -> bool:
    ask = ["openssl", "s_client", "-connect", f"{SERVER}:{TLS_PORT}", "-servername", name, "-brief"]
    said = client.run(["timeout", "4", *ask], text="Q\n", timeout=10)
    return "CONNECTION ESTABLISHED" in said.stderr + said.stdout
