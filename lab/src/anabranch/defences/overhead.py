"""Cost of a defence: bytes of padding, and the time that it adds to loads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.defences.base import Defended
from anabranch.traces import Floats, Traces
from anabranch.validate import TraceError


@dataclass(frozen=True, slots=True)
class Overhead:
    """Cost of a defence for each of `n` loads. Its properties are sums and medians over the loads.

    Attributes:
        real: float64 (n, 2), bytes of real packets, up and down.
        padding: float64 (n, 2), bytes of dummies, up and down.
        added: float64 (n,), seconds by which the defence delays the load's last real packet.
        duration: float64 (n,), seconds from the first to the last real packet before the defence.
    """

    real: Floats
    padding: Floats
    added: Floats
    duration: Floats

    @property
    def up(self) -> float:
        """Bytes of padding for each real byte from client to server, over all loads."""
        return _ratio(self.padding[:, 0], self.real[:, 0])

    @property
    def down(self) -> float:
        """Bytes of padding for each real byte from server to client, over all loads."""
        return _ratio(self.padding[:, 1], self.real[:, 1])

    @property
    def bandwidth(self) -> float:
        """Bytes of padding for each real byte in both directions (papers: bandwidth overhead)."""
        return _ratio(self.padding, self.real)

    @property
    def median_bandwidth(self) -> float:
        """Median over loads of bytes of padding for each real byte; all loads weigh the same."""
        return _median(self.padding.sum(axis=1), self.real.sum(axis=1))

    @property
    def time(self) -> float:
        """Seconds added for each second of load time, over all loads."""
        return _ratio(self.added, self.duration)

    @property
    def median_time(self) -> float:
        """Median over loads of the seconds added for each second of the load."""
        return _median(self.added, self.duration)

    def summary(self) -> dict[str, float | int | None]:
        """Returns the number of loads and all sums and medians by name; None if undefined."""
        names = ("up", "down", "bandwidth", "median_bandwidth", "time", "median_time")
        values = {name: float(getattr(self, name)) for name in names}
        known = {name: value if np.isfinite(value) else None for name, value in values.items()}
        return {"loads": self.added.size} | known


def overhead(before: Traces, after: Defended) -> Overhead:
    """Returns the cost of a defence, or of a pipeline, which may contain a split.

    `before` are the traces without it, `after` the traces with it. Padding that is already marked
    in `before` counts as padding.

    Raises:
        TraceError: if `before` and `after` are not the same loads.
    """
    if not (np.array_equal(before.load, after.load) and np.array_equal(before.run, after.run)):
        raise TraceError(
            "the traces before and after the defence have different loads", column="load"
        )
    real = ~after.padding
    earlier = ~before.padding if isinstance(before, Defended) else np.ones(before.times.size, bool)
    first, last = _ends(before, earlier)
    _, now = _ends(after, real)
    return Overhead(_bytes(after, real), _bytes(after, after.padding), now - last, last - first)


def _bytes(traces: Traces, chosen: np.ndarray) -> Floats:
    """Returns float64 (n, 2): bytes of the chosen packets of each load, up and down."""
    owners, sizes = traces.owners[chosen], traces.sizes[chosen].astype(np.float64)
    each = [np.bincount(owners, np.maximum(sign * sizes, 0), len(traces)) for sign in (1, -1)]
    return np.stack(each, axis=1)


def _ends(traces: Traces, chosen: np.ndarray) -> tuple[Floats, Floats]:
    """Returns float64 (n,) twice: times of the first and last chosen packet; 0 without any."""
    owners, times = traces.owners[chosen], traces.times[chosen]
    first, last = np.full(len(traces), np.inf), np.full(len(traces), -np.inf)
    np.minimum.at(first, owners, times)
    np.maximum.at(last, owners, times)
    none = np.isinf(first)
    return np.where(none, 0.0, first), np.where(none, 0.0, last)


def _ratio(part: Floats, whole: Floats) -> float:
    return float(part.sum() / whole.sum()) if whole.sum() > 0 else float("nan")


def _median(part: Floats, whole: Floats) -> float:
    some = whole > 0
    return float(np.median(part[some] / whole[some])) if some.any() else float("nan")
