"""Jagged arrays: runs of elements, such as the packets of many loads, in flat arrays.

`offsets`, int64 (n + 1,), contains the start of each of `n` runs, and the end of the last one.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints: TypeAlias = NDArray[np.int64]


class Selection(NamedTuple):
    """A selection of `k` runs: their indices (k,), offsets (k + 1,), and all their elements."""

    runs: Ints
    offsets: Ints
    elements: Ints


def offsets_of(counts: ArrayLike) -> Ints:
    """Returns the offsets of runs of `counts` (n,) elements."""
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))]).astype(np.int64)


def select(offsets: Ints, index: slice | ArrayLike | tuple[Any, ...]) -> Selection:
    """Selects runs by a slice, a boolean mask, an array of indices or one index.

    `(index, ...)`, as scikit-learn writes it, is the same as `index`.
    """
    if isinstance(index, tuple) and index[-1:] == (...,):
        index = index[0]
    chosen = index if isinstance(index, slice) else np.atleast_1d(np.asarray(index))
    runs = np.arange(offsets.size - 1)[chosen]
    counts = np.diff(offsets)[runs]
    begins = offsets_of(counts)
    elements = np.arange(begins[-1]) + np.repeat(offsets[runs] - begins[:-1], counts)
    return Selection(runs, begins, elements)


def keep(offsets: Ints, kept: NDArray[np.bool_]) -> Ints:
    """Returns the offsets of all runs after removal of the elements that are not `kept`."""
    return offsets_of(kept)[offsets]
