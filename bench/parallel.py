"""Parallel downloads over connections of TCP or of the kernel's Multipath TCP.

As a program, this module is one end: `serve tcp|mptcp ADDRESS PORT`, or `fetch tcp|mptcp ADDRESS
PORT COUNT LENGTH`, which downloads `LENGTH` bytes over each of `COUNT` connections at once and
prints the seconds until the last download is complete.
"""

from __future__ import annotations

import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import mptcp

PORT = 5203
PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "mptcp": mptcp.MPTCP}
# Length of a request: a decimal number, padded with spaces.
REQUEST = 16


def serve(protocol: str, address: str, port: int) -> None:
    """Answers each connection with as many bytes as it asks for."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOLS[protocol]) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(128)
        while True:
            connection, _ = listener.accept()
            Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """Sends the bytes that the request on ``connection`` asks for."""
    with connection:
        request = connection.recv(REQUEST, socket.MSG_WAITALL)
        if len(request) == REQUEST:
            connection.sendall(bytes(int(request)))


def fetch(protocol: str, address: str, port: int, count: int, length: int) -> float:
    """Returns the seconds until ``count`` parallel downloads of ``length`` bytes are complete.

    Raises:
        EOFError: if a connection ended before its last byte.
    """

    def download(_: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOLS[protocol]) as connection:
            connection.connect((address, port))
            connection.sendall(str(length).encode().ljust(REQUEST))
            missing = length
            while missing:
                received = len(connection.recv(1 << 20))
                if not received:
                    raise EOFError(f"{missing} of {length} bytes are missing")
                missing -= received

    start = time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(download, range(count)))
    return time.monotonic() - start


def command(*words: object) -> list[str]:
    """Returns the command of one end."""
    return [sys.executable, "-B", str(Path(__file__).resolve()), *map(str, words)]


if __name__ == "__main__":
    what, protocol, address, port, *amounts = sys.argv[1:]
    if what == "serve":
        serve(protocol, address, int(port))
    else:
        print(fetch(protocol, address, int(port), *map(int, amounts)))
