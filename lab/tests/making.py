"""Synthetic traces, and comparable parts of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.traces import Builder, Facts, Traces


def made(
    loads: int = 12,
    *,
    labels: int = 3,
    unmonitored: int = 1,
    seed: int = 1,
    facts: Facts | None = None,
) -> Traces:
    """Returns loads of 40 to 400 packets with exact, strictly increasing times; the last labels are
    unmonitored.
    """
    chance = np.random.default_rng(seed)
    builder = Builder(facts)
    for number in range(loads):
        packets = int(chance.integers(40, 400))
        gaps = chance.integers(1, 1 << 14, packets) / 2.0**20
        sizes = np.where(chance.random(packets) < 0.25, 1, -1) * chance.integers(60, 1500, packets)
        label = f"page {number % labels}"
        run = number // 6
        monitored = number % labels < labels - unmonitored
        builder.add(label, np.cumsum(gaps) - gaps[0], sizes, run=run, monitored=monitored)
    return builder.build()


def packets(traces: Traces) -> list[tuple[str, list[float], list[int]]]:
    """Returns label, times and sizes of each load, in an order that no format changes."""
    labels = traces.labels.tolist()
    places = [traces.packets(k) for k in range(len(traces))]
    loads = [
        (label, traces.times[place].tolist(), traces.sizes[place].tolist())
        for label, place in zip(labels, places, strict=True)
    ]
    return sorted(loads)


def signs(traces: Traces) -> Traces:
    """Returns the traces with directions in place of sizes."""
    return replace(traces, sizes=np.sign(traces.sizes), facts=Facts(size="direction"))
