"""A file server on loopback, and curl behind a SOCKS5 proxy, as ends of a path through Tor."""

from __future__ import annotations

import hashlib
import subprocess
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from harness.closing import Closing
from harness.seeded import seeded_bytes
from harness.tools import tool
from harness.transfer import Fetched


class _Handler(BaseHTTPRequestHandler):
    """``GET /bytes/N`` gives N seeded bytes; ``POST`` gives the SHA-256 of what was posted."""

    protocol_version = "HTTP/1.1"
    # Names that the exit resolved, to see that it was the exit that did.
    hosts: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Sends the bytes asked for."""
        length = int(self.path.rpartition("/")[2])
        self._answer(seeded_bytes(length))

    def do_POST(self) -> None:
        """Sends back the hash of what came."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(hashlib.sha256(body).hexdigest().encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _answer(self, body: bytes) -> None:
        self.hosts.append(self.headers.get("Host", ""))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class FileServer(Closing):
    """Serves seeded bytes on a port of 127.0.0.1."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_address[1]

    def url(self, length: int, host: str = "127.0.0.1") -> str:
        """Where ``length`` bytes are to be had."""
        return f"http://{host}:{self.port}/bytes/{length}"

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True, kw_only=True)
class Download(Fetched):
    """What curl got, and how long it took."""

    first_byte_s: float


def fetch(url: str, proxy: str, into: Path, seconds: float = 120.0, *more: str) -> Download:
    """Downloads ``url`` with curl by ``proxy`` (such as ``socks5h://127.0.0.1:9050``).

    What came lies in ``into`` for the length of the call.
    """
    command = [tool("curl"), "-sS", "--noproxy", "", "--proxy", proxy, "-m", f"{seconds:g}"]
    command += ["-o", str(into), "-w", "%{time_total} %{time_starttransfer}", *more, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    total, first = (done.stdout.split() or ["0", "0"])[:2]
    body = into.read_bytes() if into.exists() else b""
    into.unlink(missing_ok=True)
    error = f"curl: {done.stderr.strip()}" if done.returncode else ""
    return Download(
        bytes=len(body), sha256=hashlib.sha256(body).hexdigest(), seconds=float(total),
        first_byte_s=float(first), error=error,
    )  # fmt: skip
