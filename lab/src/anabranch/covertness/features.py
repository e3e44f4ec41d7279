"""Features of one connection, as an observer can compute them.

The features in `PAPER` are those of Weinberg et al. (CCS 2012, section 5.3, Figure 4). The others
proved useful in later work: sizes and directions of first packets, gaps, simultaneous connections,
requests, bytes that are too random, and responses slower than the round trip (Xue et al., NDSS
2025). Values of HTTP headers are not used, because a headless browser identifies itself in them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.covertness import http
from anabranch.covertness import uniformity as look
from anabranch.covertness.flows import Flow

Floats = NDArray[np.float64]

FIRST = 20
"""Number of packets at the start of a connection whose sizes and gaps are separate features."""
LOOKED_AT = 1 << 16
"""Maximum bytes of a direction, or of bodies of one kind, used to compute byte frequencies."""
KINDS = ("image", "video", "text", "application")
"""Kinds of HTTP bodies, by the first word of Content-Type."""

PAPER = ("duration", "bytes up", "bytes down", "payload a packet, up", "payload a packet, down")
"""Duration [s] from SYN to the last packet; bytes of payload; mean payload of non-empty packets."""
_GAPS = ("shortest", "median", "mean", "longest", "deviation")
_LOOKS = ("entropy", "chi-square", "printable")
NAMES = (
    *PAPER,
    *(f"size {place}" for place in range(1, FIRST + 1)),
    *(f"gap {place}" for place in range(1, FIRST + 1)),
    "packets up", "packets down", "repeated",
    *(f"{which} gap {way}" for way in ("up", "down") for which in _GAPS),
    "others at its start", "others at a time", "since the one before",
    "turns", "requests", "posts", "headers of a request", "order of headers",
    "headers of an answer", "order of an answer's headers", "length of a request",
    *(f"{name} of the first packet" for name in _LOOKS),
    *(f"{name} {way}" for way in ("up", "down") for name in _LOOKS),
    *(f"{name} of {kind} bodies" for kind in KINDS for name in ("entropy", "chi-square")),
    "answer's delay without the RTT, shortest", "answer's delay without the RTT, median",
    "answer's delay without the RTT, longest",
)  # fmt: skip
"""All features; the first five are `PAPER`'s."""


def matrix(sessions: Sequence[Sequence[Flow]]) -> Floats:
    """Returns float64 (flows, `NAMES`): one row per connection, NaN for features that it lacks.

    Each sequence of `sessions` has the connections of one client to one server.
    """
    rows = [_row(flow, context) for flows in sessions
            for flow, context in zip(flows, _contexts(flows), strict=True)]  # fmt: skip
    return np.array(rows, np.float64).reshape(-1, len(NAMES))


def _row(flow: Flow, context: list[float]) -> list[float]:
    up, down = flow.sizes[flow.sizes > 0], -flow.sizes[flow.sizes < 0]
    row = [flow.ended - flow.began, up.sum(), down.sum(), _mean(up), _mean(down)]
    row += _first(flow.sizes)
    row += _first(np.diff(flow.times, prepend=0.0))
    row += [up.size, down.size, flow.repeated]
    for side in (flow.sizes > 0, flow.sizes < 0):
        row += _spread(np.diff(flow.times[side]))
    row += context
    row += _talk(flow)
    row += _looks(flow.first)
    row += [each for side in (flow.up, flow.down) for each in _looks(side)]
    row += _bodies(http.answers(flow.down))
    row += _delays(flow)
    return [float(each) for each in row]


def _mean(values: NDArray[np.int32]) -> float:
    return float(values.mean()) if values.size else float("nan")


def _first(values: NDArray[np.int32] | Floats) -> list[float]:
    """Returns the first `FIRST` values, padded with NaN."""
    given = [float(each) for each in values[:FIRST]]
    return given + [float("nan")] * (FIRST - len(given))


def _spread(gaps: Floats) -> list[float]:
    if not gaps.size:
        return [float("nan")] * len(_GAPS)
    return [gaps.min(), float(np.median(gaps)), gaps.mean(), gaps.max(), gaps.std()]


def _contexts(flows: Sequence[Flow]) -> list[list[float]]:
    """Returns three features of each connection that depend on the client's other connections.

    They are the number of others open at its start, the maximum of this number while it is open,
    and the seconds since the previous connection began (NaN for the first).
    """
    began = np.array([flow.began for flow in flows])
    ended = np.array([flow.ended for flow in flows])
    rows = []
    for place, flow in enumerate(flows):
        others = (began <= flow.began) & (ended >= flow.began)
        concurrent = (began[None] <= began[:, None]) & (ended[None] >= began[:, None])
        inside = (began >= flow.began) & (began <= flow.ended)
        most = int((concurrent.sum(axis=1) - 1)[inside].max())
        before = began[:place][began[:place] <= flow.began]
        since = float(flow.began - before.max()) if before.size else float("nan")
        rows.append([float(others.sum() - 1), float(most), since])
    return rows


def _talk(flow: Flow) -> list[float]:
    """Returns the number of bursts from the client, and features of cleartext HTTP, if any."""
    sides = np.sign(flow.sizes)
    turns = int(((sides[1:] > 0) & (sides[:-1] < 0)).sum() + (sides[:1] > 0).sum())
    asked, got = http.requests(flow.up), http.answers(flow.down)
    posts = sum(each.start == "POST" for each in asked)
    row: list[float] = [turns, len(asked), posts, *_heads(asked), *_heads(got)]
    heads = len(flow.up) - sum(len(each.body) for each in asked)
    return [*row, heads / len(asked) if asked else float("nan")]


def _heads(messages: Sequence[http.Message]) -> list[float]:
    """Returns the first message's number of headers, and a CRC-32 of their names in order."""
    if not messages:
        return [float("nan")] * 2
    names = messages[0].names
    return [float(len(names)), float(zlib.crc32("\n".join(names).encode()))]


def _looks(message: bytes) -> list[float]:
    part = message[:LOOKED_AT]
    return [look.entropy(part), look.chi_square(part), look.printable(part)]


def _bodies(messages: Sequence[http.Message]) -> list[float]:
    row = []
    for kind in KINDS:
        bodies = b"".join(each.body for each in messages if each.kind.split("/")[0] == kind)
        row += _looks(bodies)[:2]
    return row


def _delays(flow: Flow) -> list[float]:
    """Returns seconds from a client's last packet to the response's first, minus the RTT."""
    sides = np.sign(flow.sizes)
    answers = np.flatnonzero((sides[1:] < 0) & (sides[:-1] > 0))
    delays = flow.times[answers + 1] - flow.times[answers] - flow.rtt
    if not delays.size:
        return [float("nan")] * 3
    return [delays.min(), float(np.median(delays)), delays.max()]
