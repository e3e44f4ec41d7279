"""Long headers of QUIC versions 1 and 2, as an observer can read them (RFC 9000, RFC 9369)."""

from __future__ import annotations

from dataclasses import dataclass

VERSION_1 = 1
VERSION_2 = 0x6B3343CF
# The two type bits mean different things in the two versions (RFC 9369, section 3.2).
TYPES = {
    VERSION_1: ("initial", "0-rtt", "handshake", "retry"),
    VERSION_2: ("retry", "initial", "0-rtt", "handshake"),
}
HANDSHAKE_TYPES = frozenset({"initial", "handshake"})


@dataclass(frozen=True)
class LongHeader:
    """The long header of one packet inside a datagram."""

    version: int
    kind: str  # of TYPES, or "negotiation", or "unknown"


def long_headers(datagram: bytes) -> list[LongHeader]:
    """Returns all packets with long headers in a UDP payload, also coalesced ones, in order.

    If a datagram ends in the middle of a header, returns the headers before it.
    """
    found: list[LongHeader] = []
    at = 0
    try:
        while at < len(datagram) and datagram[at] & 0x80:
            header, at = _read(datagram, at)
            found.append(header)
    except IndexError:
        pass
    return found


def _read(data: bytes, start: int) -> tuple[LongHeader, int]:
    """Returns the header at ``start`` and the offset of the next packet."""
    version = int.from_bytes(data[start + 1 : start + 5], "big")
    at = start + 5
    for _ in range(2):  # destination and source connection ID
        at += 1 + data[at]
    if version not in TYPES:
        return LongHeader(version, "unknown" if version else "negotiation"), len(data)
    kind = TYPES[version][(data[start] >> 4) & 0b11]
    if kind == "retry":
        return LongHeader(version, kind), len(data)
    if kind == "initial":
        length, at = _varint(data, at)
        at += length  # the token
    length, at = _varint(data, at)
    return LongHeader(version, kind), at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a variable-length integer (RFC 9000, section 16) and the offset after it."""
    size = 1 << (data[at] >> 6)
    value = int.from_bytes(data[at : at + size], "big") & ((1 << (8 * size - 2)) - 1)
    return value, at + size


def is_handshake(datagram: bytes) -> bool:
    """Returns whether a datagram contains an Initial or a Handshake packet."""
    return any(header.kind in HANDSHAKE_TYPES for header in long_headers(datagram))
