"""One row for each prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

UNMONITORED = -1
"""The class of all pages that the attacker does not watch for."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What an attack said of `n` observed loads. All attributes are of shape (n,).

    Attributes:
        run: int32, of the load.
        load: int64, its number within the run.
        path: int16, the path watched, or -1 for several or all.
        page: int32, code of the page that was loaded.
        monitored: bool, whether the attacker watches for it.
        packets: int64, how many were seen; without any there is nothing to guess from.
        share: float64, the part of the load's packets that was seen.
        guess: int32, the most probable monitored page.
        score: float64, its probability; -1 where nothing was seen, below every threshold.
        rest: float64, the probability of `UNMONITORED`; 0 in a closed world.
        fold: int16, which of several trainings predicted it.
    """

    run: NDArray[np.int32]
    load: NDArray[np.int64]
    path: NDArray[np.int16]
    page: NDArray[np.int32]
    monitored: Bools
    packets: NDArray[np.int64]
    share: Floats
    guess: NDArray[np.int32]
    score: Floats
    rest: Floats
    fold: NDArray[np.int16]

    def __len__(self) -> int:
        return self.page.size

    def __getitem__(self, index: ArrayLike) -> Outcomes:
        """The rows that a boolean mask or an array of places selects."""
        chosen = np.asarray(index)
        return Outcomes(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @classmethod
    def concatenate(cls, parts: Sequence[Outcomes]) -> Self:
        """The rows of all `parts`, one after the other."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @property
    def right(self) -> Bools:
        """Whether a monitored load's page is the guess; never where nothing was seen."""
        right: Bools = self.monitored & (self.packets > 0) & (self.guess == self.page)
        return right

    def of_any(self) -> Outcomes:
        """One row for each load of those that several observers have said, in the order of loads.

        A load is lost if one of them names it: the surest right guess counts, and where there is
        none the surest one.
        """
        order = np.lexsort((self.score, self.right, self.load, self.run))
        run, load = self.run[order], self.load[order]
        last = np.append((run[1:] != run[:-1]) | (load[1:] != load[:-1]), True)
        return self[order[last[: order.size]]]
