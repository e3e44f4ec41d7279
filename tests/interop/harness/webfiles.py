"""A file server on loopback, and curl with a SOCKS5 proxy, as ends of a path through Tor."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, TypeVar

from harness.closing import Closing
from harness.seeded import MIB, seeded_bytes
from harness.tools import Background, tool
from harness.transfer import Fetched

# Lengths of files in bytes: one byte, more than a cell, several windows, more than any buffer.
LENGTHS = (1, 514, 100_000, 5 * MIB, 200 * MIB)

Killed = TypeVar("Killed")
# curl's exit codes for an interrupted transfer: fewer bytes than announced, or a reset.
BROKEN = (18, 56)
# Maximum seconds to an immediate end; a later end may be a timeout.
AT_ONCE = 10.0


class _Handler(BaseHTTPRequestHandler):
    """Handler that sends N seeded bytes for ``GET /bytes/N``, a body's SHA-256 for ``POST``."""

    protocol_version = "HTTP/1.1"
    # Requested host names, to verify that the exit resolved them.
    hosts: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Sends the requested bytes."""
        length = int(self.path.rpartition("/")[2])
        self._answer(seeded_bytes(length))

    def do_POST(self) -> None:
        """Sends the hash of the request's body."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(hashlib.sha256(body).hexdigest().encode())

    def log_message(self, *_: object) -> None:
        """Logs nothing."""

    def _answer(self, body: bytes) -> None:
        self.hosts.append(self.headers.get("Host", ""))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _HTTPServer6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class FileServer(Closing):
    """Serves seeded bytes on a port of 127.0.0.1, or of another address of this machine."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        kind = _HTTPServer6 if ":" in address else ThreadingHTTPServer
        self._server = kind((address, 0), _Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_address[1]

    def url(self, length: int, host: str = "127.0.0.1") -> str:
        """Returns the URL of ``length`` bytes."""
        return f"http://{host}:{self.port}/bytes/{length}"

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()


class Silent(Closing):
    """A port of 127.0.0.1 that never accepts: the kernel's queue of connections is full."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self._waiting = [socket.socket() for _ in range(4)]
        for each in self._waiting:
            each.setblocking(False)
            each.connect_ex(self._listener.getsockname())

    @property
    def port(self) -> int:
        """The port."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Closes its sockets."""
        for each in [self._listener, *self._waiting]:
            each.close()


class SiteServer(Closing):
    """Serves the files of a folder on a port of 127.0.0.1, each on a connection of its own."""

    def __init__(self, folder: Path):
        handler = partial(_Quiet, directory=str(folder))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_address[1]

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@dataclass(frozen=True, kw_only=True)
class Download(Fetched):
    """A download with curl, with the seconds to its first byte, and its end by
    ``time.monotonic()``.
    """

    first_byte_s: float
    ended: float


def fetch(url: str, proxy: str, into: Path, seconds: float = 120.0, *more: str) -> Download:
    """Downloads ``url`` with curl by ``proxy`` (such as ``socks5h://127.0.0.1:9050``).

    The response is in the file ``into`` during the call.
    """
    command = _curl(url, proxy, into, seconds)
    command += ["-w", "%{time_total} %{time_starttransfer}", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ended = time.monotonic()
    total, first = (done.stdout.split() or ["0", "0"])[:2]
    body = into.read_bytes() if into.exists() else b""
    into.unlink(missing_ok=True)
    error = f"curl: {done.stderr.strip()}" if done.returncode else ""
    return Download(
        bytes=len(body), sha256=hashlib.sha256(body).hexdigest(), seconds=float(total),
        first_byte_s=float(first), error=error, ended=ended,
    )  # fmt: skip


def post(proxy: str, body: Path, url: str, seconds: float = 120.0) -> str:
    """Uploads a file and returns the server's response: the hash of the body."""
    command = [tool("curl"), "-sS", "--noproxy", "", "--proxy", proxy, "-m", f"{seconds:g}"]
    command += ["-H", "Expect:", "--data-binary", f"@{body}", url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def interrupted(
    server: FileServer, proxy: str, into: Path, kill: Callable[[], Killed]
) -> tuple[Killed, int, float]:
    """Downloads slowly, and calls ``kill`` after the first MiB.

    Returns the result of ``kill``, curl's exit status, and the seconds until curl ended.
    """
    command = [*_curl(server.url(200 * MIB), proxy, into, 120.0), "--limit-rate", "4M"]
    with Background(command) as curl:
        there = lambda: into.exists() and into.stat().st_size > MIB  # noqa: E731
        curl.wait_until("a download under way", there, 60.0)
        killed = kill()
        begin = time.monotonic()
        status = curl.wait(120.0)
        seconds = time.monotonic() - begin
    into.unlink()
    return killed, status, seconds


def _curl(url: str, proxy: str, into: Path, seconds: float) -> list[str]:
    command = [tool("curl"), "-sS", "--noproxy", "", "--proxy", proxy, "-m", f"{seconds:g}"]
    return [*command, "-o", str(into), url]


def fetch_all(
    proxy: str,
    folder: Path,
    add: Callable[..., None],
    lengths: Sequence[int] = LENGTHS,
    patience: float = 300.0,
) -> None:
    """Downloads files of these lengths; each must arrive intact within ``patience`` seconds.

    Calls ``add`` with a row of numbers for each.
    """
    with FileServer() as server:
        for length in lengths:
            got = fetch(server.url(length), proxy, folder / "got", patience)
            assert not got.fault(length), f"{length} bytes: {got.fault(length)}"
            first = f"{got.first_byte_s * 1000:.0f}"
            add(bytes=length, seconds=f"{got.seconds:.2f}", first_byte_ms=first)
