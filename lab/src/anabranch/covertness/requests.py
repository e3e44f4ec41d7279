"""Requests of cleartext HTTP: their lengths, their number, and the responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.covertness import http
from anabranch.covertness.flows import Flow

PERCENTILES = (0, 5, 50, 95, 100)
"""Percentiles of a GET's length, from the least to the greatest."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of a class; bytes of bodies count in `up` and `down` only.

    Attributes:
        name: name of the class, or of classes counted together.
        gets: bytes of a GET's head at each of `PERCENTILES`; empty if there is no GET.
        least, most: bytes of a request's head: extremes of the means of connections with requests.
        requests: per connection with any, on average.
        posts: POSTs per session, on average.
        up, down: bytes of payload per session, on average, of any protocol.
        etags: connections whose first response has an ETag, which servers send for files.
        connections: all, including those without requests.
    """

    name: str
    gets: tuple[float, ...]
    least: float
    most: float
    requests: float
    posts: float
    up: float
    down: float
    etags: int
    connections: int


def count(name: str, sessions: Sequence[Sequence[Flow]]) -> Requests | None:
    """Counts over all sessions of a class; None if no connection has a cleartext request."""
    flows = [flow for session in sessions for flow in session]
    heads = [_heads(flow) for flow in flows]
    means = [float(np.mean([length for _, length in each])) for each in heads if each]
    if not means:
        return None
    every = [head for each in heads for head in each]
    gets = [length for method, length in every if method == "GET"]
    sizes = np.concatenate([flow.sizes for flow in flows]).astype(np.int64)
    return Requests(
        name=name,
        gets=tuple(map(float, np.percentile(gets, PERCENTILES))) if gets else (),
        least=min(means),
        most=max(means),
        requests=len(every) / len(means),
        posts=sum(method == "POST" for method, _ in every) / len(sessions),
        up=float(sizes[sizes > 0].sum()) / len(sessions),
        down=float(-sizes[sizes < 0].sum()) / len(sessions),
        etags=sum(map(_has_etag, flows)),
        connections=len(flows),
    )


def _heads(flow: Flow) -> list[tuple[str, int]]:
    """Returns method and bytes of each request's head."""
    return [(each.start, each.head) for each in http.requests(flow.up)]


def _has_etag(flow: Flow) -> bool:
    """Returns whether the first response has an ETag."""
    return any("etag" in map(str.lower, each.names) for each in http.answers(flow.down)[:1])
