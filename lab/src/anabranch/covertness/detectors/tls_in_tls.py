"""The sizes and directions of a TLS handshake inside a connection.

After Xue et al., "Fingerprinting Obfuscated Proxy Traffic with Encapsulated TLS Handshakes", USENIX
Security 2024, who look at three bursts: the client's hello, the server's answer with certificates,
the client's end of the handshake. They weigh sizes by what they learnt; the bounds here are fixed
and ours, made for TLS 1.3 in a layer that adds up to 100 B. It is of the kind that is used in the
field, not the same: requests of HTTP that happen to have these sizes are hit, too.

A transport reads the end of the handshake and the client's first request together or apart, as
chance has it, and sends them in one packet or in two. So a first request of tor's length has to be
known as well: by the end of the handshake alone half of webtunnel's connections pass.
"""

from __future__ import annotations

import numpy as np

from anabranch.covertness.flows import Flow

SEEN = 24
"""Packets with payload that are looked at."""
HELLO = (180, 900)
"""Bytes of the client's burst with its hello."""
CERTIFICATES = (700, 12_000)
"""Bytes of the server's burst."""
FINISHED = (58, 180)
"""Bytes of the client's first packet after it: change of cipher and Finished take 64 to 80."""
WITH_CELL = (600, 716)
"""The same with the first cell of tor's behind them: 514 B, in a record of 536."""
_RECORD = b"\x16\x03"


def tls_in_tls(flow: Flow) -> bool:
    """Whether such bursts come, behind the handshake of the connection's own TLS if it has one."""
    bursts = _bursts(flow)
    first = 2 if flow.first[:2] == _RECORD else 0  # its own hello and answer
    return any(
        _within(bursts[at][1], HELLO)
        and _within(-bursts[at + 1][1], CERTIFICATES)
        and any(_within(bursts[at + 2][0], bounds) for bounds in (FINISHED, WITH_CELL))
        for at in range(first, len(bursts) - 2)
        if bursts[at][1] > 0
    )


def _bursts(flow: Flow) -> list[tuple[int, int]]:
    """Of each run of packets in one direction: the first packet's signed size, and all of it."""
    bursts: list[tuple[int, int]] = []
    for size in flow.sizes[:SEEN].tolist():
        if bursts and np.sign(bursts[-1][0]) == np.sign(size):
            bursts[-1] = (bursts[-1][0], bursts[-1][1] + size)
        else:
            bursts.append((size, size))
    return bursts


def _within(size: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= size <= bounds[1]
