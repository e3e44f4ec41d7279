"""A censor between client and server, and strangers' handshakes: quic-go's, OpenSSL's."""

from __future__ import annotations

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
    """The keys of quic-go's first packets are found, of either version; other names pass."""
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


@pytest.mark.parametrize(("name", "passes"), [("www.blocked.example", False), ("example", True)])
def test_tls_is_cut_by_the_name_that_its_clienthello_asks_for(
    tmp_path: Path, name: str, passes: bool
) -> None:
    """OpenSSL's client and server; a name below a blocked one is blocked, one above it is not."""
    with _network("blocked.example") as network:
        quic.make_certificate(network.server, tmp_path)
        files = ["-cert", str(tmp_path / "certificate.pem"), "-key", str(tmp_path / "key.pem")]
        server = ["openssl", "s_server", "-accept", f"{SERVER}:{TLS_PORT}", "-www", *files]
        with network.server.start(server) as process:
            process.wait_bound(TLS_PORT, "tcp")
            assert _shakes_hands(network.client, name) == passes


def _shakes_hands(client: Host, name: str) -> bool:
    ask = ["openssl", "s_client", "-connect", f"{SERVER}:{TLS_PORT}", "-servername", name, "-brief"]
    said = client.run(["timeout", "4", *ask], text="Q\n", timeout=10)
    return "CONNECTION ESTABLISHED" in said.stderr + said.stdout
