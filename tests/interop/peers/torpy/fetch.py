"""A download over a circuit of torpy, a client in pure Python that sends SENDMEs of version 0.

Usage: ``fetch.py URL HOP...``, where a hop is ``ADDRESS:PORT,FINGERPRINT,NTOR-KEY``, with the key
in base64 as in descriptors. Prints the number of bytes of the body, and their SHA-256. The first
hop gets CREATE_FAST. When its socket is readable, torpy reads 4,094 bytes. The rest of a TLS
record then stays in the TLS library, so that the end of a download may never arrive.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from types import SimpleNamespace
from urllib.parse import urlsplit

from torpy.documents.network_status import Router
from torpy.guard import TorGuard


class Hop(Router):
    """A relay given on the command line, without a consensus."""

    def __init__(self, text: str):
        """Parses ``text``, a hop as on the command line."""
        at, fingerprint, key = text.split(",")
        address, port = at.split(":")
        super().__init__(fingerprint[:8], bytes.fromhex(fingerprint), address, int(port), 0, [])
        padded = key + "=" * (-len(key) % 4)
        self._keys = SimpleNamespace(ntor_key=base64.b64decode(padded))

    @property
    def descriptor(self) -> SimpleNamespace:
        """Returns the parts of the relay's descriptor that a handshake needs."""
        return self._keys


def main(url: str, *hops: str) -> None:
    """Downloads ``url`` over these hops."""
    parts = urlsplit(url)
    first, *further = map(Hop, hops)
    request = f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n"
    with TorGuard(first, purpose="fetch") as guard:
        circuit = guard.create_circuit(1, further)
        with circuit.create_stream((parts.hostname, parts.port)) as stream:
            stream.send(request.encode())
            came = bytearray()
            while piece := stream.recv(65536):
                came += piece
    body = bytes(came).partition(b"\r\n\r\n")[2]
    print(len(body), hashlib.sha256(body).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
