"""Features of all connections of one client to one server, as totals of a session."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.covertness import http
from anabranch.covertness.flows import Flow

NAMES = (
    "connections", "most at a time", "span", "bytes up", "bytes down", "up by down",
    "packets up", "packets down", "bytes of the largest", "median duration", "requests",
    "silence, longest", "connections without payload",
)  # fmt: skip
"""Names of the totals: bytes of payload, and seconds. `span` is from first SYN to last packet."""


def totals(sessions: Sequence[Sequence[Flow]]) -> NDArray[np.float64]:
    """Returns float64 (sessions, `NAMES`); no session is empty."""
    return np.array([_row(flows) for flows in sessions], np.float64).reshape(-1, len(NAMES))


def _row(flows: Sequence[Flow]) -> list[float]:
    began = np.array([flow.began for flow in flows])
    ended = np.array([flow.ended for flow in flows])
    sizes = np.concatenate([flow.sizes for flow in flows])
    times = np.sort(np.concatenate([flow.times + flow.began for flow in flows]))
    up, down = float(sizes[sizes > 0].sum()), float(-sizes[sizes < 0].sum())
    together = (began[None] <= began[:, None]) & (ended[None] >= began[:, None])
    return [
        len(flows),
        float(together.sum(axis=1).max()),
        float(ended.max() - began.min()),
        up,
        down,
        up / max(down, 1.0),
        float((sizes > 0).sum()),
        float((sizes < 0).sum()),
        max(float(abs(flow.sizes).sum()) for flow in flows),
        float(np.median(ended - began)),
        float(sum(len(http.requests(flow.up)) for flow in flows)),
        float(np.diff(times).max(initial=0.0)),
        float(sum(flow.sizes.size == 0 for flow in flows)),
    ]
