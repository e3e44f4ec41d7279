"""Input of the attacks: packets of many loads in flat arrays, and conversions to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch.jagged import offsets_of, select
from anabranch.traces import Traces
from anabranch.validate import TraceError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

Observed: TypeAlias = "Sequences | Traces | Sequence[Any] | NDArray[Any]"
"""Input types of `Attack.fit` and its other methods; see `sequences_of` and `from_rows`."""


class AttackError(ValueError):
    """Unusable input, parameter or file of an attack; the message names it and the reason."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """The packets of `n` observed loads, as flat arrays.

    Attributes:
        times: float64 (packets,), seconds, ascending within a sequence; any origin.
        sizes: int32 (packets,), signed bytes: + client to server, - server to client, never 0.
        offsets: int64 (n + 1,): sequence `i` is `[offsets[i], offsets[i + 1])`; it may be empty.
        counts: int64 (packets,), for each packet the number of packets of its direction on all
            paths so far, including itself, as a cleartext counter shows it. Never negative, and
            never descending within a direction of a sequence. None if packets show no counter.

    Raises:
        AttackError: if the arrays are not consistent.
    """

    times: Floats
    sizes: NDArray[np.int32]
    offsets: Ints
    counts: Ints | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_shapes(self.times, self.sizes, self.offsets)
        _check_values(self.times, self.sizes, self.offsets)
        if self.counts is not None:
            if self.counts.shape != self.times.shape:
                raise AttackError(
                    f"counts: the shape is {self.counts.shape}, but there are "
                    f"{self.times.size} packets"
                )
            if (self.increments < 0).any():
                raise AttackError("counts: a count is lower than an earlier one of its direction")

    @classmethod
    def from_lists(cls, times: Iterable[ArrayLike], sizes: Iterable[ArrayLike]) -> Self:
        """Builds sequences from one array of times [s] and one of signed sizes for each."""
        stamps = [np.asarray(t, dtype=np.float64) for t in times]
        signed = [np.asarray(s, dtype=np.int32) for s in sizes]
        if [t.shape for t in stamps] != [s.shape for s in signed]:
            raise AttackError("times and sizes differ in length")
        counts = np.array([t.size for t in stamps], dtype=np.int64)
        return cls(
            np.concatenate([np.zeros(0), *stamps]),
            np.concatenate([np.zeros(0, dtype=np.int32), *signed]),
            offsets_of(counts),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Sequences]) -> Self:
        """Returns the sequences of all `parts`, in order."""
        counts = [part.counts for part in parts if part.counts is not None]
        if len(counts) not in (0, len(parts)):
            raise AttackError(
                "counts: some sequences have counts and others do not: give counts for all, or "
                "for none"
            )
        return cls(
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            offsets_of(np.concatenate([part.lengths for part in parts])),
            counts=np.concatenate(counts) if counts else None,
        )

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, index: slice | ArrayLike) -> Sequences:
        """Returns the sequences that a slice, a boolean mask or an array of positions selects."""
        _, offsets, packets = select(self.offsets, index)
        counts = None if self.counts is None else self.counts[packets]
        return Sequences(self.times[packets], self.sizes[packets], offsets, counts=counts)

    @property
    def shape(self) -> tuple[int]:
        """(n,). scikit-learn needs it to recognise an indexable object, to split and shuffle it."""
        return (len(self),)

    @property
    def lengths(self) -> Ints:
        """int64 (n,): number of packets of each sequence."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Ints:
        """int64 (packets,): the sequence that each packet belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def positions(self) -> Ints:
        """int64 (packets,): the position of each packet in its sequence, from 0."""
        return np.arange(self.times.size) - np.repeat(self.offsets[:-1], self.lengths)

    @property
    def elapsed(self) -> Floats:
        """float64 (packets,): seconds since the first packet *of the sequence*.

        An observer of one path cannot know when the load began on another one.
        """
        full = self.lengths > 0
        return self.times - np.repeat(self.times[self.offsets[:-1][full]], self.lengths[full])

    @property
    def directions(self) -> NDArray[np.int8]:
        """int8 (packets,): +1 client to server, -1 server to client."""
        return np.sign(self.sizes).astype(np.int8)

    @property
    def increments(self) -> Ints:
        """int64 (packets,): the increase of the counter since the previous packet of the direction.

        It is the number of packets that all paths carried since then, including this packet. The
        sum of the increases up to a moment is the greatest count seen so far in the direction.
        """
        assert self.counts is not None, "asked for only where there are counters"
        increments = np.zeros(self.times.size, np.int64)
        owners = self.owners
        for way in (self.sizes > 0, self.sizes < 0):
            own, of = self.counts[way], owners[way]
            before = np.where(np.diff(of, prepend=-1) == 0, np.concatenate([[0], own[:-1]]), 0)
            increments[way] = own - before
        return increments


@dataclass(frozen=True, slots=True)
class PathSequences(Sequences):
    """Sequences with the path on which each packet was seen.

    An attack that does not use `paths` treats them as plain `Sequences`.

    Attributes:
        paths: int16 (packets,), the path of each packet; -1 in loads that are not split.
    """

    paths: NDArray[np.int16]

    def __post_init__(self) -> None:
        Sequences.__post_init__(self)
        if self.paths.shape != self.times.shape:
            raise TraceError(f"has {self.paths.size} packets, not {self.times.size}", column="path")

    def __getitem__(self, index: slice | ArrayLike) -> PathSequences:
        """Returns the sequences that a slice, a boolean mask or an array of positions selects."""
        plain = Sequences.__getitem__(self, index)
        _, _, packets = select(self.offsets, index)
        own = self.paths[packets]
        return PathSequences(plain.times, plain.sizes, plain.offsets, own, counts=plain.counts)

    @classmethod
    def joined(cls, parts: Sequence[PathSequences]) -> Self:
        """Returns the sequences of all `parts`, one after the other."""
        plain = Sequences.concatenate(parts)
        paths = np.concatenate([part.paths for part in parts])
        return cls(plain.times, plain.sizes, plain.offsets, paths, counts=plain.counts)


def sequences_of(X: Any) -> Sequences | None:
    """Converts an input to sequences; returns None for a table of numbers or an unknown type.

    Args:
        X: `Sequences`; `Traces`, whose paths and counters are ignored; or a list of traces. Each
            trace is a pair of arrays (times [s], signed sizes), an array (packets, 2) with the same
            columns, or one array of directions multiplied by times [s], as in `from_rows`. A list
            of such arrays of equal length is a table.

    Raises:
        AttackError: if a trace has none of these forms; the message gives its index.
    """
    if isinstance(X, Sequences):
        return X
    if isinstance(X, Traces):
        return Sequences(X.times, X.sizes, X.offsets)
    return _from_list(X) if _is_list(X) and not _is_table(X) else None


def from_rows(X: Floats) -> Sequences:
    """Converts a table in WFlib's form: directions multiplied by times [s], padded with 0.

    The result is sorted by time. The product of a packet at time 0 does not contain its direction.
    Zeros at the start of a row count as packets of the client, which sends first.

    Args:
        X: float64 (n, packets), finite.
    """
    there = X != 0
    begin = np.logical_or.accumulate(there, axis=1)
    there |= ~begin & there.any(axis=1, keepdims=True)
    owners, _ = np.nonzero(there)
    signed = X[there]
    times = np.abs(signed)
    order = np.lexsort((times, owners))
    sizes = np.where(signed < 0, -1, 1).astype(np.int32)
    return Sequences(times[order], sizes[order], offsets_of(there.sum(axis=1)))


def _is_list(X: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(X, list | tuple) or (
        isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1
    )


def _is_table(X: Sequence[Any]) -> bool:
    """Returns whether all elements are numbers, or rows of numbers of equal length."""
    widths = {np.size(each) if _is_row(each) else -1 for each in X}
    alike = len(widths) <= 1 and -1 not in widths
    return alike or not any(map(_is_trace, X))


def _is_trace(trace: Any) -> bool:
    return isinstance(trace, list | tuple | np.ndarray)


def _is_row(trace: Any) -> bool:
    """Returns whether `trace` is an array of numbers, not of pairs."""
    if isinstance(trace, np.ndarray):
        return trace.ndim == 1
    return _is_trace(trace) and all(np.ndim(each) == 0 for each in trace[:1])


def _from_list(X: Sequence[Any]) -> Sequences:
    parts = [_one(trace, number) for number, trace in enumerate(X)]
    return Sequences.from_lists([times for times, _ in parts], [sizes for _, sizes in parts])


def _one(trace: Any, number: int) -> tuple[Floats, NDArray[np.int32]]:
    """Returns times and sizes of one trace; `number` is its index, for error messages."""
    try:
        if isinstance(trace, tuple) and len(trace) == 2 and np.ndim(trace[0]) == 1:
            times, sizes = (np.asarray(part, np.float64) for part in trace)
        else:
            table = np.asarray(trace, np.float64)
            if table.ndim == 1:
                row = from_rows(table[None, :])
                return row.times, row.sizes
            if table.ndim != 2 or table.shape[1] != 2:
                raise AttackError(f"the array has the shape {table.shape}")
            times, sizes = table.T
    except (TypeError, ValueError) as error:
        problem = (
            "give a pair (times, sizes), an array of shape (packets, 2), or an array of "
            "direction × time [s]"
        )
        raise AttackError(f"trace {number}: {error}; {problem}") from error
    if times.shape != sizes.shape:
        raise AttackError(f"trace {number} has {times.size} times but {sizes.size} sizes")
    whole = sizes.astype(np.int32)
    if (whole != sizes).any():
        raise AttackError(f"trace {number}: a size is not a whole number")
    return times, whole


def _check_shapes(times: Floats, sizes: NDArray[np.int32], offsets: Ints) -> None:
    if times.ndim != 1 or times.shape != sizes.shape:
        raise AttackError(
            f"times and sizes have the shapes {times.shape} and {sizes.shape}: "
            "give two flat arrays of one length"
        )
    if offsets.ndim != 1 or offsets.size == 0 or offsets[0] != 0 or offsets[-1] != times.size:
        raise AttackError(
            f"offsets must begin with 0 and end with the number of packets, {times.size}"
        )
    if (np.diff(offsets) < 0).any():
        raise AttackError("offsets must be in ascending order")


def _check_values(times: Floats, sizes: NDArray[np.int32], offsets: Ints) -> None:
    if not np.isfinite(times).all():
        raise AttackError("a time is not a finite number")
    if (sizes == 0).any():
        raise AttackError("a packet of size 0 has no direction")
    backwards = np.diff(times) < 0
    starts = offsets[1:-1]
    backwards[starts[(starts > 0) & (starts < times.size)] - 1] = False
    if backwards.any():
        raise AttackError(
            "times are not in order: a packet is earlier than the one before, "
            f"at packet {int(backwards.argmax()) + 1}"
        )
