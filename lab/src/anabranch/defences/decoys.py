"""Decoy runs on paths that rest, by the code of `anabranch split --decoys` and `merge --decoys`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anabranch import _core
from anabranch.defences.base import Defence, DefenceError, Defended, Load, Shaped, stream
from anabranch.traces import Facts, Floats, Sizes, Traces


@dataclass(frozen=True, slots=True)
class Decoys(Defence):
    """Each end sends decoy runs by paths that its schedule does not use, within a budget.

    It stands behind the split, and sees all paths of a load. A decoy run has the lengths and
    distances of a run that the same end has sent in this load. What differs from a tunnel's two
    ends: these go on from load to load, so that a load's first runs have decoys of earlier ones,
    and what was saved; here each load begins with nothing, so that short loads have fewer decoys
    than the budget has. A recorded load does not slow down for them, as one does over paths that
    are full. And both ends' packets count where the recorder stood: the server's decoys begin when
    its runs came to the recorder.

    Attributes:
        budget: bytes of decoys for each byte that the end has carried, at most: `10%`.

    Raises:
        DefenceError: if the budget is none.
    """

    name: ClassVar[str] = "decoys"

    budget: str = "10%"

    def __post_init__(self) -> None:
        try:
            none = (np.zeros(0), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int16))
            _core.decoys(self.budget, 0, 1, *none)
        except ValueError as error:
            raise DefenceError(f"decoys: {error}") from error

    def __str__(self) -> str:
        return f"decoys:{self.budget}"

    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Refuses: one path by itself does not tell when others rest."""
        raise DefenceError("decoys: they need a split, because they use idle paths")

    def apply(self, traces: Traces, seed: int, replica: int = 0) -> Defended:
        """The traces with decoys, as draw number `replica` of each load.

        Raises:
            TraceError: if the traces have no times.
            DefenceError: if they are not split.
        """
        if traces.paths is None:
            raise DefenceError("decoys: they need a split, because they use idle paths")
        return Defence.apply(self, traces, seed, replica)

    def _load(self, traces: Defended, k: int, dice: tuple[int, int]) -> Load:
        """Load `k` with the decoys of both ends."""
        assert traces.paths is not None, "`apply` has looked"
        own = traces.packets(k)
        times, sizes, paths = traces.times[own], traces.sizes[own], traces.paths[own]
        count = max(len(traces.facts.paths), int(traces.paths.max(initial=0)) + 1)
        entity = (int(traces.load[k]), int(traces.run[k]), dice[1])
        parts = []
        for name, sign in (("up", 1), ("down", -1)):
            one = np.flatnonzero(np.sign(sizes) == sign)
            key = stream(dice[0], f"decoys {name}", *entity)
            sent = _core.decoys(self.budget, key, count, times[one], sizes[one], paths[one])
            parts.append((sent[0], sign * sent[1], sent[2]))
        joined = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return Load.beside(traces, k, *joined)
