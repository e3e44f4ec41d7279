"""A random delay of each packet before the split, by the code of the splitter's `--jitter`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anabranch import _core
from anabranch.defences.base import Defence, DefenceError, Shaped, stream
from anabranch.traces import Facts, Floats, Sizes

ENDS = ("both", "client")
"""Who delays: a splitter and its far end, or a splitter before an unaltered server."""


@dataclass(frozen=True, slots=True)
class Jitter(Defence):
    """Each end delays its packets by times drawn evenly from a range; none overtakes another.

    Nothing is added, and nothing that follows from a packet is delayed with it: the trace is what
    it was, so that a load takes no longer than its last packet is late. Over a real splitter each
    round trip is.

    Attributes:
        delay: the range, as the splitter's `--jitter` has it.
        ends: `both`, or `client`: only what goes up is delayed.

    Raises:
        DefenceError: if the range is none, or there are no such ends.
    """

    name: ClassVar[str] = "jitter"

    delay: str = "0-20ms"
    ends: str = "both"

    def __post_init__(self) -> None:
        if self.ends not in ENDS:
            raise DefenceError(
                f"jitter: ends={self.ends} is unknown; expected one of {', '.join(ENDS)}"
            )
        try:
            _core.mean_delay(self.delay)
        except ValueError as error:
            raise DefenceError(f"jitter: {error}") from error

    def __str__(self) -> str:
        return f"jitter:{self.delay}" + ("" if self.ends == "both" else f",ends={self.ends}")

    @property
    def drawn(self) -> tuple[float, float]:
        """Seconds that a packet's own delay has in the mean, up and down.

        It is late by more where packets come densely: each waits for those before it, so that a
        long burst is late by nearly the longest delay.
        """
        mean = _core.mean_delay(self.delay)
        return mean, mean if self.ends == "both" else 0.0

    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Delays each direction with dice of its own, then sorts by the new times."""
        up = sizes > 0
        stamps = times.copy()
        for own, name in ((up, "up"), (~up, "down")):
            if name == "up" or self.ends == "both":
                dice = stream(seed, f"jitter {name}")
                stamps[own] = _core.delayed(self.delay, dice, times[own], sizes[own])
        order = np.argsort(stamps, kind="stable")
        return Shaped(stamps[order], sizes[order], order)
