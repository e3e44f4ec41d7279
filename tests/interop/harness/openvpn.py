"""OpenVPN at both ends: server mode, as providers run it, and point to point."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.net import Host
from harness.tools import Background, wait_for

PORT = 1194
INSIDE_SERVER = "10.9.0.1"
INSIDE_CLIENT = "10.9.0.2"
# Socket buffers for a fast link; Debian's OpenVPN uses the kernel's defaults, which are small.
_BUFFERS = ["--sndbuf", "1000000", "--rcvbuf", "1000000"]


@dataclass(frozen=True)
class Identity:
    """A self-signed certificate, its key, and the fingerprint that the other end checks."""

    certificate: Path
    key: Path
    fingerprint: str

    def words(self, of_the_other: Identity) -> list[str]:
        """Returns the options of an end with this identity, which accepts only the other end."""
        files = ["--cert", str(self.certificate), "--key", str(self.key)]
        return [*files, "--peer-fingerprint", of_the_other.fingerprint]


def identity(host: Host, folder: Path, name: str) -> Identity:
    """Makes an identity with ``openssl``."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    out = ["-keyout", str(key), "-out", str(certificate)]
    host.must(["openssl", "req", "-x509", *kind, "-days", "9", "-subj", f"/CN={name}", *out])
    show = ["openssl", "x509", "-in", str(certificate), "-noout", "-sha256", "-fingerprint"]
    return Identity(certificate, key, host.must(show).strip().split("=")[1])


@contextlib.contextmanager
def tunnel(
    server: Host,
    client: Host,
    folder: Path,
    endpoint: str,
    *,
    point_to_point: bool = False,
    floats: bool = True,
) -> Iterator[Background]:
    """Runs a tunnel to ``endpoint`` (ADDRESS:PORT); yields the server, which listens on ``PORT``.

    The tunnel uses server mode, or with ``point_to_point`` that mode; there ``floats`` adds
    ``--float`` at the server.
    """
    own, other = identity(server, folder, "server"), identity(client, folder, "client")
    address, port = endpoint.rsplit(":", 1)
    common = ["openvpn", "--dev", "tun", "--verb", "3", *_BUFFERS]
    if point_to_point:
        at_server = ["--tls-server", "--ifconfig", INSIDE_SERVER, INSIDE_CLIENT]
        at_server += ["--float"] if floats else []
        at_client = ["--tls-client", "--ifconfig", INSIDE_CLIENT, INSIDE_SERVER]
    else:
        network = ["--server", "10.9.0.0", "255.255.255.0", "--topology", "subnet"]
        at_server = ["--mode", "server", "--tls-server", *network, "--keepalive", "10", "60"]
        at_client = ["--client"]
    listening = [*common, *at_server, "--port", str(PORT), "--dh", "none", *own.words(other)]
    calling = [*common, *at_client, "--nobind", "--remote", address, port, *other.words(own)]
    with server.start(listening) as listener, client.start(calling) as caller:
        caller.wait_until(
            "the tunnel", lambda: "Initialization Sequence Completed" in caller.output(), 30
        )
        once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]
        wait_for("a ping in the tunnel", lambda: client.run(once).returncode == 0, 30)
        yield listener
