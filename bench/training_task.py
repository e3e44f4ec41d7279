"""Synthetic traces for `bench/networks.py`, and the clock of a training.

The programs of all frameworks import this module, which needs only NumPy.
"""

from __future__ import annotations

import importlib
import json
import time
from typing import Any

np: Any = importlib.import_module("numpy")

CLASSES = 95
SHAPES = {"df": (5000,), "rf": (2, 1800)}
"""Shape of one trace for each network, as published."""
BATCH = {"df": 128, "rf": 200}
FLIPPED = 0.2
"""Share of a trace's elements whose sign is flipped against the pattern of its class."""


def traces(name: str, batches: int) -> tuple[Any, Any]:
    """Returns traces and classes. A trace is its class's random signs, some of them flipped.

    The number of traces is a multiple of the batch size, so that all frameworks train on the same
    number.
    """
    rng = np.random.default_rng(0)
    count, shape = batches * BATCH[name], SHAPES[name]
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), (CLASSES, *shape))
    codes = np.arange(count) % CLASSES
    flips = np.where(rng.random((count, *shape)) < FLIPPED, -1, 1).astype(np.float32)
    return signs[codes] * flips, codes


class Clock:
    """Clock of CPU seconds per epoch. The first epoch, which includes compiling, is left out."""

    def __init__(self, traces: int) -> None:
        self.traces = traces
        self.ends: list[float] = []
        self.losses: list[float] = []

    def epoch(self, loss: float) -> None:
        """Records the end of an epoch, and its mean loss."""
        self.ends.append(time.process_time())
        self.losses.append(loss)

    def report(self, **facts: Any) -> None:
        """Prints one JSON object with CPU seconds for each 1,000 traces of an epoch."""
        scale = 1000 / self.traces
        seconds = [scale * float(step) for step in np.diff(self.ends)]
        print(json.dumps({"cpu_s": seconds, "loss": self.losses[-1], **facts}))
