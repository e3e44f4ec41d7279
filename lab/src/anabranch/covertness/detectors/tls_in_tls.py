"""Detector of a TLS handshake inside a connection, by sizes and directions of packets.

Based on Xue et al., "Fingerprinting Obfuscated Proxy Traffic with Encapsulated TLS Handshakes",
USENIX Security 2024. They examine three bursts: the client's hello, the server's response with
certificates, and the client's end of the handshake. Their weights are learnt; this module has
fixed bounds of its own, for TLS 1.3 in a layer that adds up to 100 B. The detector is similar to
deployed ones, not the same: it also matches HTTP requests that happen to have these sizes.

A transport sends the end of the handshake and the client's first request in one packet or in two,
by chance. Therefore the detector also accepts a packet that contains both, if the request is as
long as tor's first cell. Otherwise it would miss half of webtunnel's connections.
"""

from __future__ import annotations

import numpy as np

from anabranch.covertness.flows import Flow

SEEN = 24
"""Number of packets with payload to check."""
HELLO = (180, 900)
"""Bounds of the client's burst with its hello, in bytes."""
CERTIFICATES = (700, 12_000)
"""Bounds of the server's burst, in bytes."""
FINISHED = (58, 180)
"""Bounds of the client's next packet, in bytes: ChangeCipherSpec and Finished take 64 to 80."""
WITH_CELL = (600, 716)
"""Bounds of the packet of Finished, in bytes, if it also contains tor's first cell.

The cell has 514 B, in a TLS record of 536 B.
"""
_RECORD = b"\x16\x03"


def tls_in_tls(flow: Flow) -> bool:
    """Returns whether a connection carries a TLS handshake, after an outer one if any."""
    bursts = _bursts(flow)
    first = 2 if flow.first[:2] == _RECORD else 0  # the outer hello and its response
    return any(
        _within(bursts[at][1], HELLO)
        and _within(-bursts[at + 1][1], CERTIFICATES)
        and any(_within(bursts[at + 2][0], bounds) for bounds in (FINISHED, WITH_CELL))
        for at in range(first, len(bursts) - 2)
        if bursts[at][1] > 0
    )


def _bursts(flow: Flow) -> list[tuple[int, int]]:
    """Returns the signed size of the first packet of each burst, and the sum of the burst's sizes.

    A burst consists of consecutive packets in one direction, among the first `SEEN` packets.
    Sizes are positive from the client.
    """
    bursts: list[tuple[int, int]] = []
    for size in flow.sizes[:SEEN].tolist():
        if bursts and np.sign(bursts[-1][0]) == np.sign(size):
            bursts[-1] = (bursts[-1][0], bursts[-1][1] + size)
        else:
            bursts.append((size, size))
    return bursts


def _within(size: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= size <= bounds[1]
