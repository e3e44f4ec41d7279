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
from harness.seeded import seeded_bytes, seeded_sha256
from harness.tools import tool


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


@dataclass(frozen=True)
class Download:
    """What curl got, and how long it took."""

    seconds: float
    first_byte_s: float
    bytes: int
    sha256: str
    error: str

    def fault(self, length: int) -> str:
        """What is wrong with it as a download of ``length`` seeded bytes; empty if nothing is."""
        if self.error:
            return f"{self.error} (after {self.bytes} bytes, {self.seconds:.1f} s)"
        if self.bytes != length:
            return f"{self.bytes} bytes instead of {length}"
        return "" if self.sha256 == seeded_sha256(length) else "the hash differs"


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
    digest = hashlib.sha256(body).hexdigest()
    return Download(float(total), float(first), len(body), digest, error)
