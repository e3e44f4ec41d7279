"""A decoder for PNGs as Chromium writes them: eight bits a channel, not interlaced (RFC 2083)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from harness.chromium import Picture

CHANNELS = {2: 3, 6: 4}  # colour type: red, green, blue; the same with opacity


def picture(data: bytes) -> Picture:
    """Decodes a PNG and drops its alpha channel.

    Raises:
        ValueError: if ``data`` is not a PNG, or of a kind that Chromium does not write.
    """
    chunks = list(_chunks(data))
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or colour not in CHANNELS or interlaced:
        raise ValueError(f"a PNG of depth {depth}, colour type {colour}, interlaced {interlaced}")
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    size = CHANNELS[colour]
    pixels = []
    for line in _lines(raw, width * size, size):
        pixels += list(zip(line[0::size], line[1::size], line[2::size], strict=True))
    return Picture(width, height, pixels)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("not a PNG")
    at = 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def _lines(raw: bytes, width: int, size: int) -> Iterator[bytearray]:
    """Yields rows with their filters undone: each byte is a difference to earlier bytes."""
    above = bytearray(width)
    for start in range(0, len(raw), width + 1):
        kind, line = raw[start], bytearray(raw[start + 1 : start + 1 + width])
        for at in range(width):
            left = line[at - size] if at >= size else 0
            corner = above[at - size] if at >= size else 0
            line[at] = (line[at] + _predicted(kind, left, above[at], corner)) & 0xFF
        above = line
        yield line


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:  # Paeth: the neighbour that is nearest to left + up - corner
        guess = left + up - corner
        return min((left, up, corner), key=lambda each: abs(guess - each))
    return (0, left, up, (left + up) // 2)[kind]
