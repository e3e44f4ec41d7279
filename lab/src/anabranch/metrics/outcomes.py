"""An attack's predictions, with a row for each observed load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

UNMONITORED = -1
"""The class of all unmonitored pages."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """An attack's predictions for `n` observed loads. All attributes are of shape (n,).

    Attributes:
        run: int32, run of the load.
        load: int64, number of the load within the run.
        path: int16, the path watched, or -1 for several or all.
        page: int32, code of the page that was loaded.
        monitored: bool, whether the page is monitored.
        packets: int64, number of packets seen; without any there is no prediction.
        share: float64, the part of the load's packets that was seen.
        guess: int32, the most probable monitored page.
        score: float64, the probability of `guess`; -1 if nothing was seen, below every threshold.
        rest: float64, the probability of `UNMONITORED`; 0 in a closed world.
        fold: int16, the fold (round of cross-validation) whose attack made the prediction.
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
        """Selects rows by a boolean mask or an array of indices."""
        chosen = np.asarray(index)
        return Outcomes(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @classmethod
    def concatenate(cls, parts: Sequence[Outcomes]) -> Self:
        """Returns the rows of all `parts`, one after the other."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    @property
    def right(self) -> Bools:
        """Whether the load is monitored and its page predicted; False if nothing was seen."""
        right: Bools = self.monitored & (self.packets > 0) & (self.guess == self.page)
        return right

    def of_any(self) -> Outcomes:
        """Combines the rows of several observers to one row for each load, in the order of loads.

        A load is recognised if one observer names its page. The result is the right prediction
        with the highest score; without a right one, the prediction with the highest score.
        """
        order = np.lexsort((self.score, self.right, self.load, self.run))
        run, load = self.run[order], self.load[order]
        last = np.append((run[1:] != run[:-1]) | (load[1:] != load[:-1]), True)
        return self[order[last[: order.size]]]
