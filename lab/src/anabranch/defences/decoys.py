"""Decoy runs on idle paths, made by the code of `anabranch split --decoys` and `merge --decoys`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anabranch import _core
from anabranch.defences.base import Defence, DefenceError, Defended, Load, Shaped, stream
from anabranch.traces import Facts, Floats, Sizes, Traces


@dataclass(frozen=True, slots=True)
class Decoys(Defence):
    """Decoy runs that each end sends on paths that its schedule does not use, within a budget.

    This defence is applied after the split, and uses all paths of a load. A decoy run copies the
    packet sizes and gaps of a run that the same end has sent in this load.

    Differences from the two ends of a tunnel:

    * The ends of a tunnel keep earlier runs and unused budget from load to load. Here each load
      starts with neither, so short loads have fewer decoys than the budget allows.
    * Decoys do not delay a recorded load. Over saturated paths, they would.
    * Times of both ends are those at the recorder: the server's decoys begin when its runs arrive
      there.

    Attributes:
        budget: maximum bytes of decoys for each byte that the end has carried, such as `10%`.

    Raises:
        DefenceError: if the budget is not valid.
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
        """Raises `DefenceError`: decoys need all paths of a load, since they use idle ones."""
        raise DefenceError(
            "decoys: the traces are not split, but decoys use idle paths: split the traces first"
        )

    def apply(self, traces: Traces, seed: int, replica: int = 0) -> Defended:
        """Returns the traces with decoys; each `replica` has its own random draws for every load.

        Raises:
            TraceError: if the traces have no times.
            DefenceError: if they are not split.
        """
        if traces.paths is None:
            raise DefenceError(
                "decoys: the traces are not split, but decoys use idle paths: split the traces "
                "first"
            )
        return Defence.apply(self, traces, seed, replica)

    def _load(self, traces: Defended, k: int, dice: tuple[int, int]) -> Load:
        """Returns load `k` with the decoys of both ends."""
        assert traces.paths is not None, "`apply` checks that the traces are split"
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
