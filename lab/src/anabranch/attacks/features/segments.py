"""Statistics of many runs (lists of numbers in one flat array), without a loop over the runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anabranch.attacks.base import Floats, Ints, Sequences
from anabranch.jagged import keep, offsets_of


@dataclass(frozen=True)
class Segments:
    """Runs of numbers, end to end. Every statistic has shape (n,) and is 0 for an empty run.

    Attributes:
        values: float64 (elements,).
        offsets: int64 (n + 1,), as in `Sequences`.
    """

    values: Floats
    offsets: Ints

    @classmethod
    def counted(cls, buckets: Ints, widths: Ints, weights: NDArray[Any] | None = None) -> Segments:
        """Counts events in buckets. Run `i` has `widths[i]` elements, the counts of its buckets.

        `buckets` has, for each event, the index of its bucket among the buckets of all runs.
        `weights` are the events' weights; None counts each event as 1.
        """
        offsets = offsets_of(widths)
        counts = np.bincount(buckets, weights, minlength=int(offsets[-1]))
        return cls(counts.astype(np.float64), offsets)

    def where(self, mask: NDArray[np.bool_]) -> Segments:
        """Returns only the elements that `mask` (elements,) keeps; the runs stay separate."""
        return Segments(self.values[mask], keep(self.offsets, mask))

    @cached_property
    def counts(self) -> Ints:
        """Number of elements in each run."""
        return np.diff(self.offsets)

    @cached_property
    def owners(self) -> Ints:
        """Index of each element's run (elements,)."""
        return np.repeat(np.arange(self.counts.size), self.counts)

    @cached_property
    def positions(self) -> Ints:
        """Position of each element in its run (elements,), from 0."""
        return np.arange(self.values.size) - np.repeat(self.offsets[:-1], self.counts)

    @cached_property
    def sum(self) -> Floats:
        """Sum of each run's elements."""
        return self._total(self.values)

    @cached_property
    def mean(self) -> Floats:
        """Arithmetic mean of each run's elements."""
        return self.sum / np.maximum(self.counts, 1)

    @cached_property
    def variance(self) -> Floats:
        """Population variance of each run's elements, computed in two passes."""
        centred = self.values - self.mean[self.owners]
        return self._total(centred * centred) / np.maximum(self.counts, 1)

    @cached_property
    def deviation(self) -> Floats:
        """Population standard deviation of each run's elements."""
        return np.sqrt(self.variance)

    @cached_property
    def max(self) -> Floats:
        """Greatest element of each run."""
        return self._reduced(np.maximum)

    @cached_property
    def min(self) -> Floats:
        """Least element of each run."""
        return self._reduced(np.minimum)

    def quantile(self, share: float) -> Floats:
        """Returns a quantile, interpolated linearly between neighbours (NumPy's default)."""
        result = np.zeros(self.counts.size)
        full = self.counts > 0
        place = (self.counts[full] - 1) * share
        low = self.offsets[:-1][full] + np.floor(place).astype(np.int64)
        high = self.offsets[:-1][full] + np.ceil(place).astype(np.int64)
        lower = self._sorted[low]
        result[full] = lower + (self._sorted[high] - lower) * (place - np.floor(place))
        return result

    def differences(self) -> Segments:
        """Returns each element minus the previous one of its run; a run loses one element."""
        steps = np.diff(self.values, prepend=0.0)
        return Segments(steps, self.offsets).where(self.positions > 0)

    def in_parts(self, parts: int) -> Floats:
        """Returns (n, parts): sums over `parts` pieces of each run, of almost equal length.

        Divides as `numpy.array_split`: the first pieces take the remainder.
        """
        size, over = np.divmod(self.counts, parts)
        size, over = size[self.owners], over[self.owners]
        long = over * (size + 1)
        in_long = self.positions // (size + 1)
        in_short = over + (self.positions - long) // np.maximum(size, 1)
        part = np.where(self.positions < long, in_long, in_short)
        flat = np.bincount(self.owners * parts + part, self.values, self.counts.size * parts)
        return flat.astype(np.float64).reshape(-1, parts)

    def padded(self, length: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Returns (n, length): the first elements of each run, then zeros."""
        table = np.zeros((self.counts.size, length), dtype=dtype)
        kept = self.positions < length
        table[self.owners[kept], self.positions[kept]] = self.values[kept]
        return table

    @cached_property
    def _sorted(self) -> Floats:
        return self.values[np.lexsort((self.values, self.owners))]

    def _total(self, values: Floats) -> Floats:
        return np.bincount(self.owners, values, self.counts.size).astype(np.float64)

    def _reduced(self, operation: np.ufunc) -> Floats:
        """Reduces each run; 0 for empty runs, for which `reduceat` gives wrong results."""
        result = np.zeros(self.counts.size)
        full = self.counts > 0
        if full.any():
            result[full] = operation.reduceat(self.values, self.offsets[:-1][full])
        return result


def segments_of(X: Sequences, values: NDArray[Any]) -> Segments:
    """Returns `values` (packets,) as runs: run `i` has the values of sequence `i` of `X`."""
    return Segments(values.astype(np.float64), X.offsets)
