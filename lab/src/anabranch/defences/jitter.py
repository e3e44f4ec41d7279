"""A random delay of each packet before the split, with the code of the splitter's `--jitter`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anabranch import _core
from anabranch.defences.base import Defence, DefenceError, Shaped, stream
from anabranch.traces import Facts, Floats, Sizes

ENDS = ("both", "client")
"""Ends that delay packets: splitter and far end, or only the splitter (unmodified server)."""


@dataclass(frozen=True, slots=True)
class Jitter(Defence):
    """Random delays at each end, drawn uniformly from a range; each direction keeps its order.

    No packets are added. A packet sent in response to a delayed packet is not delayed with it,
    because the trace is a recording. Thus a load takes longer only by the delay of its last
    packet, whereas with a real splitter each round trip takes longer.

    Attributes:
        delay: range of the delays, in the syntax of the splitter's `--jitter`.
        ends: `both`; or `client`, which delays only packets from client to server.

    Raises:
        DefenceError: if the range or the ends are invalid.
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
        """Mean in seconds of the delay drawn for a packet, up and down.

        Packets in a burst are delayed by more than this, since each waits for those before it: a
        long burst by nearly the maximum delay.
        """
        mean = _core.mean_delay(self.delay)
        return mean, mean if self.ends == "both" else 0.0

    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Delays each direction with a seed of its own, then sorts by the new times."""
        up = sizes > 0
        stamps = times.copy()
        for own, name in ((up, "up"), (~up, "down")):
            if name == "up" or self.ends == "both":
                dice = stream(seed, f"jitter {name}")
                stamps[own] = _core.delayed(self.delay, dice, times[own], sizes[own])
        order = np.argsort(stamps, kind="stable")
        return Shaped(stamps[order], sizes[order], order)
