"""aioquic's server with its defaults, speaking HTTP/3 and HTTP/0.9 ("hq-interop").

``GET /bytes/N`` answers with the first N bytes of the seeded stream that all test servers share,
``GET /zeros/N`` with N zero bytes, which take no time to make.

Usage: ``server.py ADDRESS PORT CERTIFICATE KEY SEED``, with tests/interop in ``PYTHONPATH``;
``server.py --version`` prints the library's version and a hash of this file.
"""

from __future__ import annotations

import asyncio
import hashlib
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, QuicEvent, StreamDataReceived

from harness.seeded import MIB, seeded_bytes

HQ_ALPN = "hq-interop"


def body_for(path: str, seed: int) -> bytes | None:
    """Returns the body of ``/bytes/N`` and ``/zeros/N``; None for any other path."""
    kind, _, length = path.removeprefix("/").partition("/")
    if kind not in ("bytes", "zeros") or not length.isdecimal():
        return None
    return bytes(int(length)) if kind == "zeros" else seeded_bytes(int(length), seed)


class Server(QuicConnectionProtocol):
    """A connection: responds to requests that the library receives."""

    seed = 1

    def quic_event_received(self, event: QuicEvent) -> None:
        """Passes events to the HTTP version that was negotiated."""
        if isinstance(event, ProtocolNegotiated):
            self._h3 = H3Connection(self._quic) if event.alpn_protocol in H3_ALPN else None
            self._asked: dict[int, bytes] = {}
        elif self._h3 is not None:
            self._handle_h3(self._h3, event)
        elif isinstance(event, StreamDataReceived):
            self._handle_hq(event)

    def _handle_h3(self, h3: H3Connection, event: QuicEvent) -> None:
        for happened in h3.handle_event(event):
            if isinstance(happened, HeadersReceived):
                self._answer_h3(h3, happened)

    def _answer_h3(self, h3: H3Connection, request: HeadersReceived) -> None:
        path = dict(request.headers).get(b":path", b"").decode()
        body = body_for(path, self.seed)
        status = b"404" if body is None else b"200"
        h3.send_headers(request.stream_id, [(b":status", status)])
        h3.send_data(request.stream_id, body or b"", end_stream=True)
        self.transmit()

    def _handle_hq(self, event: StreamDataReceived) -> None:
        asked = self._asked.get(event.stream_id, b"") + event.data
        self._asked[event.stream_id] = asked
        if not event.end_stream:
            return
        path = asked.decode().removeprefix("GET ").strip()
        self._quic.send_stream_data(event.stream_id, body_for(path, self.seed) or b"", True)
        self.transmit()


def told() -> str:
    """Returns the version, which measurements of the same server have in common."""
    script = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    packages = ", ".join(f"{name} {version(name)}" for name in ("aioquic", "cryptography"))
    return f"{packages}, Python {platform.python_version()}, server.py {script}"


async def main(address: str, port: int, certificate: str, key: str) -> None:
    """Serves until the process exits."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[*H3_ALPN, HQ_ALPN])
    configuration.load_cert_chain(certificate, key)
    await serve(address, port, configuration=configuration, create_protocol=Server)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(told())
        sys.exit()
    Server.seed = int(sys.argv[5])
    seeded_bytes(25 * MIB, Server.seed)  # made before the first request is timed
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
