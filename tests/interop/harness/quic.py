"""Unmodified QUIC servers and clients."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.net import SERVER, Host
from harness.seeded import SEED
from harness.tools import INTEROP, PEERS, MissingPeer, PeerFailed
from harness.transfer import Transfer, client

PORT = 4433
# Number of paths in quiche: it follows as many addresses as the client may have connection IDs (2
# by default).
QUICHE_PATHS = "4"
CADDYFILE = """\
{{
	admin off
	auto_https off
}}
:{port} {{
	bind {address}
	tls {folder}/certificate.pem {folder}/key.pem
	root * {folder}/site
	file_server
}}
"""


@dataclass(frozen=True)
class Setting:
    """Settings of a server. ``folder`` contains the certificate, the key and ``site/``."""

    address: str
    port: int
    folder: Path


@dataclass(frozen=True)
class Kind:
    """A kind of server program: the protocols that it supports, and its command."""

    protocols: tuple[str, ...]  # "h3" and "hq"; the first one is the default
    command: Callable[[Setting], list[str]]


@dataclass(frozen=True)
class Request:
    """A download of ``/bytes/length`` from ``endpoint`` over ``protocol``."""

    endpoint: str
    protocol: str
    length: int
    seconds: float

    @property
    def path(self) -> str:
        """The path of the request."""
        return f"/bytes/{self.length}"


def _quicgo(at: Setting) -> list[str]:
    return ["quicgo-server", "-listen", f"{at.address}:{at.port}", "-seed", str(SEED)]


def _quicgo_files(at: Setting) -> list[str]:
    files = ["-certificate", str(at.folder / "certificate.pem"), "-key", str(at.folder / "key.pem")]
    return [*_quicgo(at), "-site", str(at.folder / "site"), *files]


def _quinn(at: Setting) -> list[str]:
    return ["quinn-server", f"{at.address}:{at.port}", str(SEED)]


def _noq(at: Setting) -> list[str]:
    return ["noq-server", *_quinn(at)[1:]]


def _gtlsserver(at: Setting) -> list[str]:
    files = [str(at.folder / "key.pem"), str(at.folder / "certificate.pem")]
    return ["gtlsserver", "-q", "-d", str(at.folder / "site"), at.address, str(at.port), *files]


def _aioquic(at: Setting) -> list[str]:
    python = PEERS / "venv/bin/python"
    if not python.exists():
        raise MissingPeer("the Python environment is missing; run tests/interop/setup")
    script = [str(python), str(INTEROP / "peers/aioquic/server.py"), at.address, str(at.port)]
    return [*script, str(at.folder / "certificate.pem"), str(at.folder / "key.pem"), str(SEED)]


def _s2n(at: Setting) -> list[str]:
    files = [str(at.folder / "certificate.pem"), str(at.folder / "key.pem")]
    return ["s2n-server", f"{at.address}:{at.port}", *files, str(SEED)]


def _quiche(at: Setting) -> list[str]:
    files = [str(at.folder / "certificate.pem"), str(at.folder / "key.pem")]
    return ["quiche-server", f"{at.address}:{at.port}", *files, str(SEED), QUICHE_PATHS]


def _quicgo_older(at: Setting) -> list[str]:
    return ["quicgo-server-0.63", *_quicgo(at)[1:]]


def _caddy_newer(at: Setting) -> list[str]:
    return ["caddy-2.11", *_caddy(at)[1:]]


def _caddy(at: Setting) -> list[str]:
    config = at.folder / "Caddyfile"
    config.write_text(CADDYFILE.format(port=at.port, address=at.address, folder=at.folder))
    return ["caddy", "run", "--config", str(config), "--adapter", "caddyfile"]


KINDS = {
    "quic-go": Kind(("h3",), _quicgo),
    "quic-go, files": Kind(("h3",), _quicgo_files),
    "quinn": Kind(("hq", "h3"), _quinn),
    "noq": Kind(("hq", "h3"), _noq),
    "gtlsserver": Kind(("h3",), _gtlsserver),
    "aioquic": Kind(("h3",), _aioquic),
    "s2n-quic": Kind(("hq", "h3"), _s2n),
    "quiche": Kind(("h3",), _quiche),
    "caddy": Kind(("h3",), _caddy),
    "quic-go 0.63": Kind(("h3",), _quicgo_older),
    "caddy 2.11": Kind(("h3",), _caddy_newer),
}


def _quicgo_client(ids: str) -> Callable[[Host, Request], Transfer]:
    def download(host: Host, asked: Request) -> Transfer:
        command = ["quic-client", "-server", asked.endpoint, "-protocol", asked.protocol]
        command += ["-path", asked.path, "-ids", ids, "-timeout", f"{asked.seconds}s"]
        return client(host, command, asked.seconds)

    return download


def _aioquic_client(host: Host, asked: Request) -> Transfer:
    address, _, port = asked.endpoint.rpartition(":")
    script = [str(PEERS / "venv/bin/python"), str(INTEROP / "peers/aioquic/client.py")]
    command = [*script, address, port, asked.protocol, asked.path, str(asked.seconds)]
    return client(host, command, asked.seconds)


def _quinn_client(host: Host, asked: Request) -> Transfer:
    command = ["quinn-client", asked.endpoint, asked.protocol, asked.path, str(asked.seconds)]
    return client(host, command, asked.seconds)


def _ngtcp2_client(host: Host, asked: Request) -> Transfer:
    """Runs ngtcp2's example client, which saves the response."""
    address, _, port = asked.endpoint.rpartition(":")
    with tempfile.TemporaryDirectory() as folder:
        command = ["gtlsclient", "-q", "--exit-on-all-streams-close", f"--download={folder}"]
        command += [address, port, f"https://localhost:{port}{asked.path}"]
        start = time.monotonic()
        done = host.run(command, timeout=asked.seconds)
        seconds = time.monotonic() - start
        file = Path(folder) / str(asked.length)
        body = file.read_bytes() if file.exists() else b""
    return Transfer(
        bytes=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        seconds=seconds,
        goodput_mbits=len(body) * 8e-6 / seconds,
        error="" if done.returncode == 0 else f"status {done.returncode}: {done.stderr[-300:]}",
    )


def _s2n_client(host: Host, asked: Request) -> Transfer:
    command = ["s2n-client", asked.endpoint, asked.protocol, asked.path, str(asked.seconds)]
    return client(host, command, asked.seconds)


# Clients, which differ in their use of connection IDs; a client with a socket for each connection
# needs none.
CLIENTS: dict[str, Callable[[Host, Request], Transfer]] = {
    "quinn": _quinn_client,
    "aioquic": _aioquic_client,
    "quic-go without IDs": _quicgo_client("none"),
    "quic-go with IDs": _quicgo_client("some"),
    "s2n-quic": _s2n_client,
    "ngtcp2": _ngtcp2_client,
}


# Protocols of the clients that do not support both.
_SPOKEN = {"ngtcp2": ("h3",)}


def common_protocol(client: str, server: str) -> str:
    """Returns the first protocol of the server ``server`` that the client ``client`` speaks too.

    Raises:
        MissingPeer: there is none.
    """
    spoken = _SPOKEN.get(client, ("h3", "hq"))
    for protocol in KINDS[server].protocols:
        if protocol in spoken:
            return protocol
    raise MissingPeer(f"{client} speaks {spoken}, {server} {KINDS[server].protocols}")


@contextlib.contextmanager
def serving(
    kind: str, host: Host, folder: Path, *, address: str = SERVER, port: int = PORT
) -> Iterator[None]:
    """Runs a server of :data:`KINDS` until the end of the ``with`` block.

    Servers of files need ``site/`` in ``folder`` (see :func:`harness.transfer.site`).
    """
    make_certificate(host, folder)
    command = KINDS[kind].command(Setting(address, port, folder))
    # Caddy stores files in its home; aioquic's script imports `seeded` from this package.
    environment = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "PYTHONPATH": str(INTEROP)}
    with host.start(command, **environment) as process:
        process.wait_bound(port)
        yield


def make_certificate(host: Host, folder: Path) -> None:
    """Makes a self-signed certificate for ``localhost``; clients compare hashes instead of checking
    it.
    """
    if (folder / "certificate.pem").exists():
        return
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    host.must([*made, *files])


def download(
    host: Host,
    kind: str,
    endpoint: str,
    length: int,
    *,
    seconds: float = 60.0,
    version: int = 1,
    keep_alive_s: float = 0.0,
) -> Transfer:
    """Fetches ``/bytes/length`` from ``endpoint``, a server of this kind, within ``seconds``;
    ``version`` is QUIC's, 1 or 2. With ``keep_alive_s`` the client sends a PING after this time
    without packets.
    """
    command = ["quic-client", "-server", endpoint, "-protocol", KINDS[kind].protocols[0]]
    command += ["-path", f"/bytes/{length}", "-version", str(version), "-timeout", f"{seconds}s"]
    command += ["-keep-alive", f"{keep_alive_s}s"]
    return client(host, command, seconds)


def goodput(host: Host, kind: str, endpoint: str, length: int, seconds: int) -> float:
    """Returns the Mbit/s of a download that is stopped after ``seconds`` and would last longer.

    Raises:
        PeerFailed: if the download ended early, or no bytes arrived.
    """
    transfer = download(host, kind, endpoint, length, seconds=seconds)
    if transfer.bytes in (0, length) or transfer.seconds < seconds * 0.95:
        raise PeerFailed(f"{kind}: no download of {seconds} s: {transfer}")
    return transfer.bytes * 8e-6 / transfer.seconds
