"""Requests of cleartext HTTP: their lengths, their number, and the responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.covertness import http
from anabranch.covertness.flows import Flow

PERCENTILES = (0, 5, 50, 95, 100)
"""Percentiles of a GET's length to report; 0 and 100 are the minimum and the maximum."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The HTTP requests of a class. Only `up` and `down` include the bytes of bodies.

    Attributes:
        name: name of the class, or of classes counted together.
        gets: bytes of a GET's head at each of `PERCENTILES`; empty if there is no GET.
        least, most: minimum and maximum, over connections with requests. The value of a connection
            is the mean length of its requests' heads, in bytes.
        requests: mean number per connection that has requests.
        posts: mean number of POSTs per session.
        up, down: mean bytes of payload per session, of any protocol.
        etags: number of connections whose first response has an ETag, which servers send for
            files.
        connections: number of all connections, including those without requests.
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
    """Counts the cleartext requests of a class over all sessions; None if there are none."""
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
