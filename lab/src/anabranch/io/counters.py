"""Cleartext counters of tunnels, read from UDP payloads.

WireGuard (white paper, 5.4.6): a data message begins with type 4, three zero bytes, the receiver's
index (4 bytes) and a counter (8 bytes), both little endian. The counter counts the messages of its
direction since the key agreement, including keepalives. Handshake messages have no counter. New
keys have a new index, and their counter begins at 0.

Mosh (`crypto.cc`): a datagram begins with a nonce of 8 bytes, big endian. Its top bit is the
direction (1 is to the client); the other bits count the datagrams of this direction.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch.validate import MOST_COUNTED

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

NEITHER, WIREGUARD, MOSH = 0, 1, 2
"""Kinds of datagrams."""

_HANDSHAKES = {1: 148, 2: 92, 3: 64}
"""Lengths in bytes of WireGuard's handshake messages, which have no counter, by type."""
_LEAST_DATA = 32
"""Length in bytes of WireGuard's shortest data message, a keepalive."""
_LEAST_MOSH = 28
"""Minimum length in bytes of Mosh's datagrams: nonce, two timestamps and the tag."""
_TO_CLIENT = 1 << 63


class Clear(NamedTuple):
    """The cleartext fields of one datagram."""

    kind: int
    """`NEITHER`, `WIREGUARD` or `MOSH`."""
    session: int = 0
    """WireGuard's receiver index; a new index restarts the counter."""
    number: int = -1
    """The counter, or -1 if there is none."""


def clear(payload: bytes, length: int, outward: bool) -> Clear:
    """Reads a datagram's cleartext fields.

    Args:
        payload: the captured first bytes of the datagram's payload.
        length: bytes of the whole payload.
        outward: whether the client sent it.
    """
    if len(payload) < 16:
        return Clear(NEITHER)
    kind = payload[0]
    if payload[1:4] == b"\0\0\0" and _HANDSHAKES.get(kind) == length:
        return Clear(WIREGUARD)
    if payload[:4] == b"\4\0\0\0" and length >= _LEAST_DATA:
        index, number = struct.unpack_from("<IQ", payload, 4)
        return Clear(WIREGUARD, index, number) if number < MOST_COUNTED else Clear(NEITHER)
    nonce = int.from_bytes(payload[:8])
    number = nonce & ~_TO_CLIENT
    if length >= _LEAST_MOSH and number < MOST_COUNTED and bool(nonce & _TO_CLIENT) != outward:
        return Clear(MOSH, 0, number)
    return Clear(NEITHER)


def counters(outward: Bools, shown: Ints) -> Ints | None:
    """Returns int64 (packets,): each packet's position in its direction, from 1, by its counter.

    Packets without a counter have position 0. Counting begins with the least counter of the first
    session, on any path. A later session continues from the greatest position of the previous
    session.

    Args:
        outward: (packets,), whether the client sent the packet, in the order of time.
        shown: (packets, 3), `Clear` of each packet.

    Returns:
        None unless all packets are of one known kind, and at least one has a counter.
    """
    kinds = np.unique(shown[:, 0])
    if kinds.tolist() not in ([WIREGUARD], [MOSH]) or (shown[:, 2] < 0).all():
        return None
    places = np.zeros(len(shown), np.int64)
    for way in (outward, ~outward):
        base = 0
        counted = way & (shown[:, 2] >= 0)
        for session in dict.fromkeys(shown[counted, 1].tolist()):
            own = counted & (shown[:, 1] == session)
            first = int(shown[own, 2].min()) if base == 0 else 0
            places[own] = base + shown[own, 2] - first + 1
            base = int(places[own].max())
    return places
