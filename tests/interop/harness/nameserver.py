"""A name server on loopback (RFC 1035), which exits query for the destinations of clients."""

from __future__ import annotations

import ipaddress
import socketserver
import struct
import threading
from collections.abc import Mapping

from harness.closing import Closing

ADDRESS, NAME = 1, 12  # types of records: A, PTR
NO_ERROR, NO_SUCH_NAME = 0, 3
ANSWER, AUTHORITATIVE, RECURSIVE = 0x8000, 0x0400, 0x0180


class _Server(socketserver.ThreadingUDPServer):
    daemon_threads = True

    def __init__(self, names: Mapping[str, str]):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.names = names
        self.asked: list[str] = []


class _Handler(socketserver.BaseRequestHandler):
    """Handler that answers one query, and ignores malformed ones."""

    def handle(self) -> None:
        """Sends the answer."""
        server = self.server
        assert isinstance(server, _Server)
        query, socket = self.request
        if len(query) < 17:
            return
        labels, end = _labels(query)
        (kind,) = struct.unpack_from(">H", query, end)
        name = ".".join(labels).lower()
        server.asked.append(name)
        found = _record(server.names, name, kind)
        known = found is not None or name in server.names
        flags = ANSWER | AUTHORITATIVE | RECURSIVE | (NO_ERROR if known else NO_SUCH_NAME)
        counts = (1, 1 if found is not None else 0, 0, 0)
        reply = query[:2] + struct.pack(">H4H", flags, *counts) + query[12 : end + 4]
        if found is not None:
            # The name again, as a pointer to the question; class IN, for a minute.
            reply += struct.pack(">HHHIH", 0xC00C, kind, 1, 60, len(found)) + found
        socket.sendto(reply, self.client_address)


class NameServer(Closing):
    """A name server with the addresses of some names, and their reverse entries."""

    def __init__(self, names: Mapping[str, str]):
        """Serves ``names``: IPv4 addresses by name."""
        back = {ipaddress.ip_address(at).reverse_pointer: name for name, at in names.items()}
        self._server = _Server({**names, **back})
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """The server's port on 127.0.0.1."""
        return self._server.server_address[1]

    @property
    def asked(self) -> list[str]:
        """Returns the names queried so far, in lower case."""
        return list(self._server.asked)

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()


def _labels(query: bytes) -> tuple[list[str], int]:
    """Returns the labels of the question, and the offset of its type."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("latin-1"))
        at += 1 + length
    return labels, at + 1


def _record(names: Mapping[str, str], name: str, kind: int) -> bytes | None:
    """Returns the data of the resource record; ``None`` if the name has none of this type."""
    found = names.get(name)
    if found is None:
        return None
    if kind == ADDRESS and not name.endswith(".in-addr.arpa"):
        return ipaddress.IPv4Address(found).packed
    if kind == NAME and name.endswith(".in-addr.arpa"):
        return b"".join(bytes([len(part)]) + part.encode() for part in found.split(".")) + b"\0"
    return None
