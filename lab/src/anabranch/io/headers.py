"""Parses a captured frame to its UDP datagram or TCP segment: link layer, IP, UDP or TCP."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias

from anabranch.validate import TraceError

RAW_IP, ETHERNET = 101, 1
_SKIPPED = {RAW_IP: 0, 12: 0, 14: 0, 228: 0, 229: 0, 0: 4, 108: 4, ETHERNET: 14, 113: 16, 276: 20}
"""Bytes before the IP header, by link type (tcpdump.org/linktypes.html): raw IP, loopback,
Ethernet, Linux cooked captures v1 and v2.
"""
_TAGGED = (b"\x81\x00", b"\x88\xa8")
_TCP, _UDP = 6, 17
_LEAST_TCP = 20

End: TypeAlias = tuple[bytes, int]
"""Address (4 or 16 bytes) and port."""


class Datagram(NamedTuple):
    """The UDP datagram of a frame."""

    size: int
    """Bytes of the IP packet."""
    sender: End
    receiver: End
    payload: bytes
    """The captured part of the payload."""
    length: int
    """Bytes of the whole payload."""


class Segment(NamedTuple):
    """A TCP segment (RFC 9293, section 3.1)."""

    sender: End
    receiver: End
    number: int
    """The segment's sequence number, 32 bits: of the SYN, or of the payload's first byte."""
    flags: int
    """`FIN`, `SYN`, `RST` and others."""
    payload: bytes
    """The captured part of the payload."""
    length: int
    """Bytes of the whole payload."""
    size: int
    """Bytes of the IP packet."""


FIN, SYN, RST, ACK = 1, 2, 4, 16


def check_link(link: int) -> None:
    """Refuses unknown link types.

    Raises:
        TraceError: if the type is unknown; the message contains it.
    """
    if link not in _SKIPPED:
        raise TraceError(
            f"the link type {link} is unknown: expected raw IP, loopback, Ethernet or Linux cooked"
        )


def datagram(link: int, frame: bytes) -> Datagram | None:
    """Returns the UDP datagram in a frame; None for others, fragments and truncated headers."""
    found = _packet(link, frame, _UDP)
    if found is None:
        return None
    packet, size, header, addresses = found
    if len(packet) < header + 8 or size < header + 8:
        return None
    source, target, length = struct.unpack_from(">HHH", packet, header)
    ends = ((addresses[0], source), (addresses[1], target))
    return Datagram(size, *ends, packet[header + 8 : size], max(length - 8, 0))


def segment(link: int, frame: bytes) -> Segment | None:
    """Returns the TCP segment in a frame; None for others, fragments and truncated headers."""
    found = _packet(link, frame, _TCP)
    if found is None:
        return None
    packet, size, header, addresses = found
    if len(packet) < header + _LEAST_TCP:
        return None
    source, target, number, offset, flags = struct.unpack_from(">HHI4xBB", packet, header)
    begin = header + (offset >> 4) * 4
    if begin < header + _LEAST_TCP or size < begin:
        return None
    ends = ((addresses[0], source), (addresses[1], target))
    return Segment(*ends, number, flags, packet[begin:size], size - begin, size)


def end(text: str) -> End:
    """Parses `192.0.2.1:51820` or `[2001:db8::1]:51820`.

    Raises:
        ValueError: if it is not an address with a port.
    """
    address, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(
            f"'{text}' is not an address with a port: expected a form such as 192.0.2.1:51820"
        )
    bare = address[1:-1] if address[:1] == "[" and address[-1:] == "]" else address
    if (bare == address) == (":" in bare):
        raise ValueError(
            f"'{text}' is not an address with a port: expected a form such as [2001:db8::1]:51820"
        )
    return ip_address(bare).packed, int(port)


def _packet(
    link: int, frame: bytes, protocol: int
) -> tuple[bytes, int, int, tuple[bytes, bytes]] | None:
    """Returns the IP packet in a frame, its length, its header's length and both addresses."""
    at = _SKIPPED[link]
    if link == ETHERNET:
        while frame[at - 2 : at] in _TAGGED:
            at += 4
    packet = frame[at:]
    version = packet[0] >> 4 if packet else 0
    read = {4: _ipv4, 6: _ipv6}.get(version)
    found = None if read is None else read(packet, protocol)
    return None if found is None else (packet, *found)


def _ipv4(packet: bytes, protocol: int) -> tuple[int, int, tuple[bytes, bytes]] | None:
    """Returns the packet's length, the header's length and both addresses."""
    if len(packet) < 20:
        return None
    header, size, fragment = (packet[0] & 15) * 4, *struct.unpack_from(">H2xH", packet, 2)
    if header < 20 or packet[9] != protocol or fragment & 0x3FFF:
        return None
    return size, header, (packet[12:16], packet[16:20])


def _ipv6(packet: bytes, protocol: int) -> tuple[int, int, tuple[bytes, bytes]] | None:
    """Returns the packet's length, the header's length and both addresses.

    Extension headers are not supported.
    """
    if len(packet) < 40 or packet[6] != protocol:
        return None
    return struct.unpack_from(">H", packet, 4)[0] + 40, 40, (packet[8:24], packet[24:40])
