"""FRONT: dummies where a load begins (Gong and Wang, USENIX Security 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from anabranch.defences.base import Defence, DefenceError, Shaped, check_size, dummy_size, padded
from anabranch.traces import Facts, Floats, Sizes

MOST_DUMMIES = 1_000_000
"""The largest budget: one load with a gigabyte of padding."""


@dataclass(frozen=True, slots=True)
class Front(Defence):
    """Each end draws a number of dummies, a window, and a Rayleigh time for each dummy.

    The client counts times from the load's first packet, the server from the first that it
    sends. What would come after the last packet of the load is not sent. Nothing is delayed.
    The defaults are the paper's FT-1; FT-2 has 2,500 dummies at each end.

    Attributes:
        client: the largest number of dummies that the client draws, at least 1; 0 is none.
        server: the same at the server.
        w_min: the shortest window in seconds. A window is where the Rayleigh density is highest.
        w_max: the longest window in seconds.
        size: bytes of a dummy; None is usual for the traces (1500, a cell of 514, or 1).

    Raises:
        DefenceError: if a number is out of range.
    """

    name: ClassVar[str] = "front"

    client: int = 1700
    server: int = 1700
    w_min: float = 1.0
    w_max: float = 14.0
    size: int | None = None

    def __post_init__(self) -> None:
        check_size(self.size)
        for end, budget in (("client", self.client), ("server", self.server)):
            if not 0 <= budget <= MOST_DUMMIES:
                raise DefenceError(f"front: {end}={budget}: expected 0 to {MOST_DUMMIES} dummies")
        if not 0 < self.w_min <= self.w_max < math.inf:
            windows = f"w_min={self.w_min:g},w_max={self.w_max:g}"
            raise DefenceError(f"front: {windows}: expected seconds above 0, the longest last")

    def __str__(self) -> str:
        size = "" if self.size is None else f",size={self.size}"
        windows = f"w_min={self.w_min:g},w_max={self.w_max:g}"
        return f"front:client={self.client},server={self.server},{windows}{size}"

    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Pads from the first packet to the last."""
        chance = Random(seed)
        end = float(times[-1])
        up = self._dummies(self.client, float(times[0]), end, chance)
        down = np.zeros(0)
        if (sizes < 0).any():
            down = self._dummies(self.server, float(times[np.argmax(sizes < 0)]), end, chance)
        return padded(times, sizes, up, down, dummy_size(self.size, facts))

    def _dummies(self, budget: int, start: float, end: float, chance: Random) -> Floats:
        """Times of the dummies of one end, those after `end` left out."""
        if budget == 0:
            return np.zeros(0)
        number = chance.randint(1, budget)
        window = chance.uniform(self.w_min, self.w_max)
        uniform = np.array([chance.random() for _ in range(number)])
        stamps: Floats = start + rayleigh(uniform, window)
        return stamps[stamps <= end]


def rayleigh(uniform: Floats, scale: float) -> Floats:
    """Rayleigh numbers of mode `scale`, from uniform ones in [0, 1): the inverse distribution."""
    numbers: Floats = scale * np.sqrt(-2.0 * np.log1p(-uniform))
    return numbers
