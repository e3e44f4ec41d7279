"""Maybenot machines at both ends, run by Maybenot's own simulator (crates/py/src/maybenot.rs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from anabranch import _core
from anabranch.defences.base import Defence, DefenceError, Shaped, check_size, dummy_size
from anabranch.traces import Facts, Floats, Sizes

NAMED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        "none": ((), ()),
        "front": (("front 1700 1000000 14000000 50",), ("front 1700 1000000 14000000 50",)),
        "interspace": (("interspace_client",), ("interspace_server",)),
        "break-pad": (("break_pad_client",), ("break_pad_server",)),
        "regulator": (
            ("regulator_client 3.95 1.77",),
            ("regulator_server 277 0.94 3.55 3550 100",),
        ),
        "tamaraw": (("tamaraw 0.04 1000000",), ("tamaraw 0.012 1000000",)),
        "netflow": (("netflow",), ("netflow",)),
    }
)
"""Machines of client and server, by the name of their defence.

`front` has the budgets and windows of FT-1, and 50 steps for the Rayleigh density. `regulator` has
the parameters of RegulaTor-Heavy. `tamaraw` has the paper's intervals between packets. Its
machine stops when there was no real packet for 1 s (soft stop), but not before the end's second
packet. In this simulation every machine ends with the load's last real packet.
"""


@dataclass(frozen=True, slots=True)
class Maybenot(Defence):
    """Maybenot machines at both ends, which add padding and may delay real packets.

    Real packets are never reordered or lost.

    Attributes:
        machines: a name in `NAMED`, for the ends whose machines `client` or `server` does not give.
        client: the client's machines: serialised (`02eNp...`), or name and parameters of a machine
            in maybenot-machines (`front 1700 1000000 14000000 50`, with times in microseconds).
        server: the server's machines, in the same form.
        delay: one-way delay between client and server, in seconds; the trace is as seen at the
            client.
        pps: maximum packets per second in each direction; packets above it are delayed. None for
            no limit.
        size: bytes of a dummy; None is the default for the traces (1500, a cell of 514, or 1).
        most_events: maximum steps of the simulator for a load; more raise an error.

    Raises:
        DefenceError: if a machine cannot be made, or a number is out of range.
    """

    name: ClassVar[str] = "maybenot"

    machines: str = "none"
    client: tuple[str, ...] | None = None
    server: tuple[str, ...] | None = None
    delay: float = 0.01
    pps: int | None = None
    size: int | None = None
    most_events: int = 2_000_000

    def __post_init__(self) -> None:
        check_size(self.size)
        if self.pps is not None and not 1 <= self.pps < 1 << 32:
            raise DefenceError(f"maybenot: pps={self.pps} is not from 1 to {(1 << 32) - 1}")
        if self.machines not in NAMED:
            known = ", ".join(NAMED)
            raise DefenceError(
                f"maybenot: machines={self.machines} is unknown; expected one of {known}"
            )
        try:
            for end in self.ends:
                _core.maybenot_check(list(end))
            self._seen(np.zeros(0), np.zeros(0, dtype=np.int32), 0)
        except (ValueError, OverflowError) as error:
            raise DefenceError(f"maybenot: {error}") from error

    @property
    def ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Machines of client and server."""
        client, server = NAMED[self.machines]
        return (
            client if self.client is None else self.client,
            server if self.server is None else self.server,
        )

    def __str__(self) -> str:
        ends = {"client": self.client, "server": self.server}
        own = "".join(
            f",{end}={';'.join(texts)}" for end, texts in ends.items() if texts is not None
        )
        pps = "" if self.pps is None else f",pps={self.pps}"
        size = "" if self.size is None else f",size={self.size}"
        return f"maybenot:machines={self.machines}{own},delay={self.delay:g}{pps}{size}"

    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Runs the machines until the last real packet has arrived."""
        try:
            stamps, origin, up = self._seen(times, sizes, seed)
        except ValueError as error:
            raise DefenceError(f"maybenot: {error}") from error
        dummy = dummy_size(self.size, facts)
        added = np.where(up, dummy, -dummy).astype(np.int32)
        return Shaped(stamps, np.where(origin < 0, added, sizes[origin]), origin)

    def _seen(self, times: Floats, sizes: Sizes, seed: int) -> _core.Seen:
        client, server = map(list, self.ends)
        up = np.ascontiguousarray(sizes > 0)
        return _core.maybenot_defend(
            np.ascontiguousarray(times),
            up,
            client,
            server,
            seed,
            self.delay,
            self.pps,
            self.most_events,
        )
