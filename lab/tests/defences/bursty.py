"""Synthetic page loads: requests, each with a burst of responses."""

from __future__ import annotations

import numpy as np

from anabranch.defences import Defended
from anabranch.traces import Builder, Facts, Traces


def bursty(
    loads: int = 8,
    *,
    bursts: int = 80,
    answers: int = 29,
    pause: float = 0.3,
    seed: int = 5,
) -> Traces:
    """Returns loads of `bursts` times 2 cells up and about `answers` down, at 0.5 ms, `pause` s
    apart.
    """
    chance = np.random.default_rng(seed)
    builder = Builder(Facts(size="cell"))
    for number in range(loads):
        counts = chance.poisson(answers, bursts) + 2
        gaps = chance.exponential(0.0005, counts.sum())
        begins = np.cumsum(counts) - counts
        gaps[begins] += chance.exponential(pause, bursts)
        up = np.zeros(counts.sum(), dtype=bool)
        up[begins] = up[begins + 1] = True
        times = np.cumsum(gaps) - gaps[0]
        builder.add(f"page {number % 4}", times, np.where(up, 514, -514), run=number // 4)
    return builder.build()


def real(traces: Defended, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns times and sizes of the real packets of load `k`."""
    packets = traces.packets(k)
    kept = ~traces.padding[packets]
    return traces.times[packets][kept], traces.sizes[packets][kept]


def equal(left: Defended, right: Defended) -> bool:
    """Returns whether packets, paths and marks are the same."""
    names = ("load", "run", "offsets", "times", "sizes", "padding")
    same = all(np.array_equal(getattr(left, name), getattr(right, name)) for name in names)
    if left.paths is None or right.paths is None:
        return same and left.paths is right.paths
    return same and np.array_equal(left.paths, right.paths)
