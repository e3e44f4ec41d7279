#!/bin/sh
# A relay may put up to 16 KiB of cells into one TLS record (RFC 8446, section 5.1; tor-spec leaves
# records to TLS). A competent reader expects a client to take every cell of a record that has
# arrived whole. torpy waits for its socket with a selector and then reads 4,094 bytes once. The rest
# of the record is already in OpenSSL's buffer, where no selector sees it: 13 of 20 cells wait until
# the relay sends again: the end of a download comes late.
# The relay here is a Python TLS server that says what tor-spec's link handshake asks for.
# Exit status: 0 as found, 1 if that changes, 2 if it cannot be run.
set -eu
torpy=1.1.6
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -c 'import sys; sys.exit(sys.version_info >= (3, 12))' ||
    { echo "torpy $torpy calls ssl.wrap_socket, which Python 3.12 removed: needs 3.11"; exit 2; }
python3 -m venv venv
timeout 200 venv/bin/pip install --quiet --disable-pip-version-check "torpy==$torpy" \
    "cryptography==50.0.2" >log 2>&1 || { tail -3 log; exit 2; }
openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out certificate -days 2 \
    -subj /CN=relay.example >log 2>&1 || { tail -3 log; exit 2; }
timeout 60 venv/bin/python -W ignore >found <<'PYTHON'
import logging
import os
import socket
import ssl
import struct
import sys
import threading
import time
from types import SimpleNamespace

from torpy.cell_socket import TorCellSocket
from torpy.cells import CellRelay
from torpy.circuit import CellHandlerManager, TorReceiver

logging.disable(logging.CRITICAL)


def exactly(stream: ssl.SSLSocket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += stream.recv(count - len(data))
    return data


def variable(command: int, body: bytes, circuit: str = "!I") -> bytes:
    return struct.pack(circuit + "BH", 0, command, len(body)) + body


def fixed(command: int, circuit: int, body: bytes) -> bytes:
    return struct.pack("!IB", circuit, command) + body.ljust(509, b"\0")


listener = socket.create_server(("127.0.0.1", 0))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("certificate", "key")
burst = threading.Semaphore(0)


def relay() -> None:
    stream = context.wrap_socket(listener.accept()[0], server_side=True)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    (size,) = struct.unpack("!H", exactly(stream, 5)[3:])
    exactly(stream, size)  # VERSIONS
    address = b"\x04\x04\x7f\x00\x00\x01"
    challenge = bytes(32) + struct.pack("!HH", 1, 3)
    stream.sendall(
        variable(7, struct.pack("!HH", 3, 4), "!H")  # VERSIONS
        + variable(129, b"\0")  # CERTS, of which torpy reads the length only
        + variable(130, challenge)  # AUTH_CHALLENGE
        + fixed(8, 0, struct.pack("!I", int(time.time())) + address + b"\x01" + address)  # NETINFO
    )
    exactly(stream, 514)  # NETINFO
    for cells in (4, 20, 1):
        burst.acquire()
        stream.sendall(b"".join(fixed(3, 1, os.urandom(509)) for _ in range(cells)))  # RELAY
    burst.acquire()


threading.Thread(target=relay, daemon=True).start()
link = TorCellSocket(SimpleNamespace(ip="127.0.0.1", or_port=listener.getsockname()[1]))
link.connect()
seen = []
handlers = CellHandlerManager()
handlers.subscribe_for(CellRelay, lambda cell: seen.append(cell))
receiver = TorReceiver(link, handlers)
receiver.start()
for cells in (4, 20, 1):
    before = len(seen)
    burst.release()
    time.sleep(3)
    print(f"{cells} cell(s) in one record: torpy saw {len(seen) - before} within 3 s")
sys.stdout.flush()
os._exit(0)  # the threads of torpy and of the relay wait for ever
PYTHON
echo "torpy $torpy, $(python3 --version)"
echo "guess: 4, 20 and 1; outcome:"
cat found
cat >wanted <<'TEXT'
4 cell(s) in one record: torpy saw 4 within 3 s
20 cell(s) in one record: torpy saw 7 within 3 s
1 cell(s) in one record: torpy saw 14 within 3 s
TEXT
cmp -s found wanted
