"""aioquic's client with its defaults: downloads one path over HTTP/3 or HTTP/0.9 ("hq-interop").

Prints the result as one line of JSON, like all test clients. Certificates are not checked, because
servers have self-signed ones, and tests compare hashes.

Usage: ``client.py HOST PORT h3|hq PATH SECONDS``
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import sys
import time
from typing import Any, cast

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    ProtocolNegotiated,
    QuicEvent,
    StreamDataReceived,
)


class Client(QuicConnectionProtocol):
    """A download: hashes the body that the library receives."""

    def __init__(self, *args: Any, **settings: Any):
        """Passes the library's arguments on."""
        super().__init__(*args, **settings)
        self.ended = asyncio.Event()
        self.error = ""
        self.bytes = 0
        self.hash = hashlib.sha256()
        self._h3: H3Connection | None = None

    def ask(self, authority: str, path: str) -> None:
        """Sends the request."""
        stream = self._quic.get_next_available_stream_id()
        if self._h3 is None:
            self._quic.send_stream_data(stream, f"GET {path}\r\n".encode(), end_stream=True)
        else:
            names = {":method": "GET", ":scheme": "https", ":authority": authority, ":path": path}
            headers = [(name.encode(), value.encode()) for name, value in names.items()]
            self._h3.send_headers(stream, headers, end_stream=True)
        self.transmit()

    def quic_event_received(self, event: QuicEvent) -> None:
        """Adds received parts of the body to the hash, and records its end."""
        if isinstance(event, ConnectionTerminated):
            if not self.ended.is_set():
                self.error = event.reason_phrase or f"closed with {event.error_code}"
            self.ended.set()
        elif isinstance(event, ProtocolNegotiated):
            # Created before the request, because the server's settings may arrive with its first
            # flight.
            self._h3 = H3Connection(self._quic) if event.alpn_protocol in H3_ALPN else None
        elif self._h3 is not None:
            for part in self._h3.handle_event(event):
                if isinstance(part, DataReceived):
                    self._take(part.data, part.stream_ended)
        elif isinstance(event, StreamDataReceived):
            self._take(event.data, event.end_stream)

    def _take(self, data: bytes, ended: bool) -> None:
        self.bytes += len(data)
        self.hash.update(data)
        if ended:
            self.ended.set()


async def main(host: str, port: int, protocol: str, path: str, limit: float) -> int:
    """Downloads, and prints the result; returns 1 if the download failed."""
    alpn = H3_ALPN if protocol == "h3" else ["hq-interop"]
    configuration = QuicConfiguration(is_client=True, alpn_protocols=alpn)
    configuration.verify_mode = ssl.CERT_NONE
    configuration.server_name = "localhost"
    client: Client | None = None
    start, error = time.monotonic(), ""
    try:
        async with (
            asyncio.timeout(limit),
            connect(host, port, configuration=configuration, create_protocol=Client) as made,
        ):
            client = cast(Client, made)
            client.ask(f"{host}:{port}", path)
            await client.ended.wait()
            seconds = time.monotonic() - start
    except (TimeoutError, ConnectionError) as failure:
        error, seconds = repr(failure), time.monotonic() - start
    result: dict[str, Any] = {"bytes": 0, "sha256": "", "seconds": seconds, "error": error}
    if client is not None:
        result |= {"bytes": client.bytes, "sha256": client.hash.hexdigest()}
        result["error"] = error or client.error
    print(json.dumps(result | {"goodput_mbits": result["bytes"] * 8e-6 / seconds}))
    return 1 if result["error"] else 0


if __name__ == "__main__":
    _, server, port_number, which, what, seconds_left = sys.argv
    sys.exit(asyncio.run(main(server, int(port_number), which, what, float(seconds_left))))
