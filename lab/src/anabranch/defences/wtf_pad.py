"""WTF-PAD: adaptive padding at both ends (Juarez et al., ESORICS 2016).

An end (client or relay) has three states:

* *Idle*: The end waits until it has a packet to send.
* *Burst*: Real packets are being sent. The end has drawn a time from its burst histogram. If it
  sends nothing until then, it sends a dummy and enters *gap*. If it has drawn infinity, it becomes
  idle.
* *Gap*: Dummies are being sent, each after a time from the gap histogram. If the end sends a real
  packet, it returns to burst at once. If it draws infinity, the fake burst ends: the end returns to
  burst, where its draw may begin another fake burst.

An end has histograms for packets that it sends and for packets that it receives. An end that is
not idle also draws a time when it receives a packet, even a dummy, to imitate a server's response
to a request. Its timer is the earliest of the times drawn since it last sent. Every packet that it
sends ends all of these draws: for each, a token of the time that actually passed is removed.

The authors' simulation has the same parts, but looks ahead in the trace. There, an end in the gap
state becomes idle after a real packet, and a draw of infinity does not end a burst. This module
follows the paper's state machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias

from anabranch.defences.base import Defence, DefenceError, Shaped, check_size, dummy_size, padded
from anabranch.defences.histogram import Fit, Histogram, Tokens
from anabranch.traces import Facts, Floats, Sizes

Kind: TypeAlias = Literal["snd", "rcv"]
Mode: TypeAlias = Literal["burst", "gap"]
Drawer: TypeAlias = tuple[Kind, Mode]
"""The key of a histogram: the event before the draw (sent or received), and the end's state."""

End: TypeAlias = Mapping[Drawer, Fit]
"""Histograms of an end. An event without a histogram draws nothing."""

_CLIENT: End = MappingProxyType(
    {
        ("snd", "burst"): Fit(9, 0.001564159, 0.052329599),
        ("snd", "gap"): Fit(21, 0.06129599, 0.03995375),
    }
)
_SERVER: End = MappingProxyType(
    {
        ("snd", "burst"): Fit(19, 0.00003600121, 0.02753485),
        ("snd", "gap"): Fit(34, 0.01325997, 0.0973761),
    }
)
_CLIENT_RCV: End = MappingProxyType(
    {
        ("rcv", "burst"): Fit(9, 0.0000128746, 0.0009227229),
        ("rcv", "gap"): Fit(21, 0.0001368523, 0.0009233190),
    }
)
_SERVER_RCV: End = MappingProxyType(
    {
        ("rcv", "burst"): Fit(19, 0.000004053116, 0.01264329),
        ("rcv", "gap"): Fit(34, 0.01325997, 0.0126454036),
    }
)

CONFIGURATIONS: Mapping[str, tuple[End, End]] = MappingProxyType(
    {
        "normal": (_CLIENT, _SERVER),
        "normal_rcv": ({**_CLIENT, **_CLIENT_RCV}, {**_SERVER, **_SERVER_RCV}),
    }
)
"""The authors' configurations for client and server; their experiments use `normal_rcv`."""


@dataclass(frozen=True, slots=True)
class WtfPad(Defence):
    """Adaptive padding at the client and at the relay that serves it.

    Both ends see a packet at its time in the trace: the delay between them is zero, as in the
    authors' simulation. Real packets are never delayed. Padding ends with the load's last real
    packet, because a recorded load has no later one; in live traffic, padding would end by itself.

    Attributes:
        config: a name in `CONFIGURATIONS`, all fitted to the link of the authors' data.
        ends: histograms of client and server, instead of those of `config`.
        size: bytes of a dummy; None is the default for the traces (1500, a cell of 514, or 1).

    Raises:
        DefenceError: if there is no such configuration, or the size is invalid.
    """

    name: ClassVar[str] = "wtf-pad"

    config: str = "normal_rcv"
    ends: tuple[End, End] | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        check_size(self.size)
        if self.config not in CONFIGURATIONS:
            known = ", ".join(CONFIGURATIONS)
            raise DefenceError(f"wtf-pad: config={self.config} is unknown; expected one of {known}")

    def __str__(self) -> str:
        size = "" if self.size is None else f",size={self.size}"
        return f"wtf-pad:config={self.config if self.ends is None else 'own'}{size}"

    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Adds the dummies of both ends until the last packet."""
        chance = Random(seed)
        pair = CONFIGURATIONS[self.config] if self.ends is None else self.ends
        client, server = (_End(_filled(end), chance) for end in pair)
        for now, up in zip(times.tolist(), (sizes > 0).tolist(), strict=True):
            _pad_until(now, client, server)
            sender, receiver = (client, server) if up else (server, client)
            sender.sends(now, "burst")
            receiver.receives(now)
        return padded(times, sizes, client.dummies, server.dummies, dummy_size(self.size, facts))


def _pad_until(now: float, client: _End, server: _End) -> None:
    """Sends the dummies of both ends that are due before `now`."""
    while min(client.due, server.due) < now:
        first, other = (client, server) if client.due <= server.due else (server, client)
        due = first.due
        first.dummies.append(due)
        first.sends(due, "gap")
        other.receives(due)


class _End:
    """State of one end during a load. Its histograms start full."""

    __slots__ = ("_chance", "_drawn", "_histograms", "_state", "due", "dummies")

    def __init__(self, histograms: Mapping[Drawer, Tokens], chance: Random) -> None:
        self._histograms = {drawer: Histogram(full) for drawer, full in histograms.items()}
        self._chance = chance
        self._state: Mode | None = None
        self._drawn: list[tuple[Histogram, float]] = []
        self.due = math.inf
        self.dummies: list[float] = []

    def sends(self, now: float, state: Mode) -> None:
        """Handles an outgoing packet: real (`burst`) or dummy (`gap`)."""
        for histogram, since in self._drawn:
            histogram.remove(now - since)
        self._drawn.clear()
        self.due = math.inf
        self._state = state
        if self._draws("snd", state, now) or state == "burst":
            return
        self._state = "burst"
        self._draws("snd", "burst", now)

    def receives(self, now: float) -> None:
        """Handles an incoming packet."""
        if self._state is not None:
            self._draws("rcv", self._state, now)

    def _draws(self, kind: Kind, state: Mode, now: float) -> bool:
        """Draws a time, and sets the timer to it if it is earlier. Returns False for infinity."""
        histogram = self._histograms.get((kind, state))
        if histogram is None:
            return True
        wait = histogram.draw(self._chance)
        self._drawn.append((histogram, now))
        self.due = min(self.due, now + wait)
        if wait == math.inf and (kind, state) == ("snd", "burst"):
            self._state = None
        return wait < math.inf


@cache
def _full(fit: Fit, mode: Mode) -> Tokens:
    """Returns a full histogram, which is cached because it is the same for every load."""
    return fit.tokens(mode)


def _filled(end: End) -> dict[Drawer, Tokens]:
    return {drawer: _full(fit, drawer[1]) for drawer, fit in end.items()}
