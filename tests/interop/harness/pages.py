"""Page loads as in one link of tor: requests and pages inside TLS.

As a program, this module runs one session. It reads a line of JSON from standard input, ``{"at":
[ADDRESS, PORT], "socks": null or [USER, ADDRESS, PORT], "pages": [[BYTES, …], …], "thinks":
[SECONDS, …]}``. The session requests the first object of a page alone, then the others together;
each request has the length of a cell. With the keys ``sessions`` N and ``together`` M it runs N
sessions, M at a time.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CELL = 514
PATIENCE = 60.0

# A server that responds to each request (a length in 4 bytes, and padding) with that number of
# bytes.
SERVER = f"""\
import os, socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", int(sys.argv[3])), backlog=512)
block = os.urandom(1 << 20)
def serve(near):
    try:
        with context.wrap_socket(near, server_side=True) as link:
            whole = link.makefile("rb")
            while len(asked := whole.read({CELL})) == {CELL}:
                left = int.from_bytes(asked[:4], "big")
                while left > 0:
                    link.sendall(block[:left])
                    left -= len(block)
    except OSError:
        near.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@dataclass(frozen=True)
class Way:
    """A program's route to the server: a port, or SOCKS5 with a user and a destination."""

    at: tuple[str, int]
    socks: tuple[str, str, int] | None = None

    def connect(self) -> socket.socket:
        """Connects to the far server."""
        link = socket.create_connection(self.at, PATIENCE)
        if self.socks is not None:
            user, address, port = self.socks
            _socks(link, user.encode(), socket.inet_aton(address) + struct.pack(">H", port))
        return link


def _socks(link: socket.socket, user: bytes, to: bytes) -> None:
    """Performs a SOCKS5 handshake (RFC 1928, RFC 1929). Bytes that exceed the user field go into
    the password (pt-spec).
    """
    name, rest = user[:255], user[255:] or b"\0"
    for said, wanted in (
        (b"\x05\x01\x02", b"\x05\x02"),
        (b"\x01" + bytes([len(name)]) + name + bytes([len(rest)]) + rest, b"\x01\x00"),
        (b"\x05\x01\x00\x01" + to, b"\x05\x00"),
    ):
        link.sendall(said)
        got = link.recv(2, socket.MSG_WAITALL)
        if got != wanted:
            raise ConnectionError(f"SOCKS: {got!r}")
    link.recv(8, socket.MSG_WAITALL)


def session(way: Way, pages: Sequence[Sequence[int]], thinks: Sequence[float]) -> None:
    """Loads the pages one after the other over one connection, with a pause after each."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(way.connect()) as link:
        for page, think in zip(pages, thinks, strict=True):
            for objects in (page[:1], page[1:]):
                _fetch(link, objects)
            time.sleep(think)


def _fetch(link: ssl.SSLSocket, objects: Sequence[int]) -> None:
    for length in objects:
        link.sendall(length.to_bytes(4, "big") + os.urandom(CELL - 4))
    left = sum(objects)
    while left > 0:
        piece = link.recv(min(left, 1 << 16))
        if not piece:
            raise ConnectionError(f"{left} bytes are missing")
        left -= len(piece)


def certificate(folder: Path, openssl: str) -> list[str]:
    """Returns a command that writes ``tls.pem`` (for 198.51.100.1) and ``tls.key`` to
    ``folder``.
    """
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    command += ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.pem")]
    return [*command, "-subj", "/CN=www.example.net", "-addext", "subjectAltName=IP:198.51.100.1"]


def main() -> None:
    """Runs the sessions that the module's docstring describes."""
    wish = json.loads(sys.stdin.readline())
    socks = tuple(wish["socks"]) if wish["socks"] else None
    way = Way(tuple(wish["at"]), socks)
    with ThreadPoolExecutor(wish.get("together", 1)) as pool:
        done = [pool.submit(session, way, wish["pages"], wish["thinks"])
                for _ in range(wish.get("sessions", 1))]  # fmt: skip
        for each in done:
            each.result()


if __name__ == "__main__":
    main()
