"""FRONT: dummies at the start of a load (Gong and Wang, USENIX Security 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from anabranch.defences.base import Defence, DefenceError, Shaped, check_size, dummy_size, padded
from anabranch.traces import Facts, Floats, Sizes

MOST_DUMMIES = 1_000_000
"""Maximum number of dummies of one end, about a gigabyte of padding in one load."""


@dataclass(frozen=True, slots=True)
class Front(Defence):
    """FRONT: each end draws a number of dummies, a window, and Rayleigh-distributed send times.

    The client's times start at the load's first packet, the server's at the first packet that it
    sends. Dummies that are due after the load's last packet are not sent. Nothing is delayed. The
    defaults are the paper's FT-1; FT-2 has 2,500 dummies at each end.

    Attributes:
        client: maximum number of dummies of the client, which draws from 1 to this; 0 for none.
        server: maximum number of dummies of the server, which draws from 1 to this; 0 for none.
        w_min: shortest window in seconds. The window is the mode of the Rayleigh distribution.
        w_max: longest window in seconds.
        size: bytes of a dummy; None is the default for the traces (1500, a cell of 514, or 1).

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
                raise DefenceError(
                    f"front: {end}={budget}: expected 0 to {MOST_DUMMIES} dummy packets"
                )
        if not 0 < self.w_min <= self.w_max < math.inf:
            windows = f"w_min={self.w_min:g},w_max={self.w_max:g}"
            raise DefenceError(f"front: {windows}: expected seconds above 0, the longest last")

    def __str__(self) -> str:
        size = "" if self.size is None else f",size={self.size}"
        windows = f"w_min={self.w_min:g},w_max={self.w_max:g}"
        return f"front:client={self.client},server={self.server},{windows}{size}"

    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Adds dummies between the first and the last packet."""
        chance = Random(seed)
        end = float(times[-1])
        up = self._dummies(self.client, float(times[0]), end, chance)
        down = np.zeros(0)
        if (sizes < 0).any():
            down = self._dummies(self.server, float(times[np.argmax(sizes < 0)]), end, chance)
        return padded(times, sizes, up, down, dummy_size(self.size, facts))

    def _dummies(self, budget: int, start: float, end: float, chance: Random) -> Floats:
        """Draws the times of the dummies of one end; those after `end` are left out."""
        if budget == 0:
            return np.zeros(0)
        number = chance.randint(1, budget)
        window = chance.uniform(self.w_min, self.w_max)
        uniform = np.array([chance.random() for _ in range(number)])
        stamps: Floats = start + rayleigh(uniform, window)
        return stamps[stamps <= end]


def rayleigh(uniform: Floats, scale: float) -> Floats:
    """Converts uniform numbers in [0, 1) to Rayleigh numbers of mode `scale`, by inverse CDF."""
    numbers: Floats = scale * np.sqrt(-2.0 * np.log1p(-uniform))
    return numbers
