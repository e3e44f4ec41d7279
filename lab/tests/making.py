"""Traces that tests make up."""

from __future__ import annotations

import numpy as np

from anabranch.traces import Builder, Facts, Traces


def made(loads: int = 12, *, labels: int = 3, seed: int = 1, facts: Facts | None = None) -> Traces:
    """Loads of 40 to 400 packets with exact, strictly rising times; the last label unmonitored."""
    chance = np.random.default_rng(seed)
    builder = Builder(facts)
    for number in range(loads):
        packets = int(chance.integers(40, 400))
        gaps = chance.integers(1, 1 << 14, packets) / 2.0**20
        sizes = np.where(chance.random(packets) < 0.25, 1, -1) * chance.integers(60, 1500, packets)
        label = f"page {number % labels}"
        run = number // 6
        builder.add(
            label, np.cumsum(gaps) - gaps[0], sizes, run=run, monitored=number % labels < labels - 1
        )
    return builder.build()
