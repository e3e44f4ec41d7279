"""The classic capture format, as `tcpdump -w` writes it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from anabranch.io.headers import check_link
from anabranch.validate import TraceError


class CutError(TraceError):
    """Error of a capture that ends within a packet; the packets before it are complete."""

    def __init__(self, what: str, at: int, size: int) -> None:
        super().__init__(f"{what} at byte {at} is damaged or incomplete")
        self.missing = (
            f"{what} at byte {at} is incomplete, so the last {size - at} bytes are ignored"
        )


_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1_000),
    b"\xa1\xb2\xc3\xd4": (">", 1_000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
"""Byte order and nanoseconds per tick, by the first bytes of a file."""
_FILE_HEADER, _PACKET_HEADER = 24, 16


class Record(NamedTuple):
    """One captured packet."""

    time: int
    """Nanoseconds since 1970."""
    length: int
    """Bytes of the whole frame."""
    frame: bytes
    """The captured part of the frame."""
    outward: bool | None
    """Whether the client sent it; None if the capture has no direction."""
    link: int
    """The link type."""
    at: int
    """The packet's offset in the file."""


def matches(data: bytes) -> bool:
    """Returns whether `data` begins like a file of this format."""
    return data[:4] in _MAGICS


def records(data: bytes) -> Iterator[Record]:
    """Yields the packets of a file that `matches`.

    Raises:
        CutError: after the last complete packet.
        TraceError: if the link type is unknown, or the file's header is truncated.
    """
    order, tick = _MAGICS[data[:4]]
    if len(data) < _FILE_HEADER:
        raise TraceError("the header of the file is incomplete")
    link = struct.unpack_from(f"{order}I", data, 20)[0] & 0xFFFF
    check_link(link)
    at = _FILE_HEADER
    while at < len(data):
        if at + _PACKET_HEADER > len(data):
            raise CutError("the packet", at, len(data))
        seconds, ticks, kept, length = struct.unpack_from(f"{order}IIII", data, at)
        frame = data[at + _PACKET_HEADER : at + _PACKET_HEADER + kept]
        if len(frame) < kept:
            raise CutError("the packet", at, len(data))
        yield Record(seconds * 1_000_000_000 + ticks * tick, length, frame, None, link, at)
        at += _PACKET_HEADER + kept
