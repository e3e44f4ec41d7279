"""One connection of the kernel's Multipath TCP (RFC 8684) over all links of an emulated network.

As a program, this module is one end of the connection: `serve ADDRESS PORT`, or `run ADDRESS PORT
up|down SECONDS SKIP`, which prints Mbit/s of payload at the receiver.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

# Python 3.11 lacks the name; its value is Linux's.
MPTCP = getattr(socket, "IPPROTO_MPTCP", 262)
PORT = 5202
CHUNK = bytes(1 << 16)


def missing() -> str:
    """Returns the reason why this machine cannot run Multipath TCP; empty if it can."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP).close()
    except OSError as error:
        return f"no Multipath TCP: {error}"
    done = subprocess.run(["ip", "mptcp", "limits"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no `ip mptcp`"


def serve(address: str, port: int) -> None:
    """Serves one connection after another; the client's first byte is the direction, d or u."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if connection.recv(1) == b"d":
                    send(connection)
                else:
                    seconds, skip = (float(word) for word in connection.recv(64).split())
                    connection.sendall(f"{receive(connection, seconds, skip)}".encode())


def run(address: str, port: int, direction: str, seconds: float, skip: float) -> float:
    """Returns the Mbit/s that arrive in `seconds`, after `skip` seconds."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as connection:
        connection.connect((address, port))
        if direction == "down":
            connection.sendall(b"d")
            return receive(connection, seconds, skip)
        connection.sendall(b"u")
        time.sleep(0.3)
        connection.sendall(f"{seconds} {skip}".ljust(64).encode())
        end = time.monotonic() + seconds + skip + 0.5
        while time.monotonic() < end:
            connection.sendall(CHUNK)
        connection.shutdown(socket.SHUT_WR)
        return float(connection.recv(64))


def send(connection: socket.socket) -> None:
    """Sends until the other end closes."""
    try:
        while True:
            connection.sendall(CHUNK)
    except OSError:
        return


def receive(connection: socket.socket, seconds: float, skip: float) -> float:
    """Returns the Mbit/s that arrive in `seconds`, after `skip` seconds.

    It then reads until the other end closes, at most 1.5 s.
    """
    start = time.monotonic()
    while time.monotonic() < start + skip:
        connection.recv(1 << 20)
    counted, start = 0, time.monotonic()
    while (now := time.monotonic()) < start + seconds:
        counted += len(connection.recv(1 << 20))
    rate = counted * 8 / 1e6 / (now - start)
    connection.settimeout(0.5)
    try:
        while connection.recv(1 << 20):
            if time.monotonic() > now + 1.5:
                break
    except TimeoutError:
        pass
    return rate


def command(*words: object) -> list[str]:
    """Returns the command of one end."""
    return [sys.executable, "-B", str(Path(__file__).resolve()), *map(str, words)]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        print(
            run(
                sys.argv[2],
                int(sys.argv[3]),
                sys.argv[4],
                float(sys.argv[5]),
                float(sys.argv[6]),
            )
        )
