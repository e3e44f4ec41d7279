"""The interface of all defences, which pad or delay packets and mark those that they add."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch.jagged import offsets_of
from anabranch.traces import OPTIONAL, WHOLE, Facts, Floats, Sizes, Traces
from anabranch.validate import TraceError

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

PADDING = -1
"""Origin of a packet that a defence added."""

DUMMY_BYTES = {"ip-packet": 1500, "cell": 514, "direction": 1}
"""Default size of a dummy packet, by the unit of the sizes in the traces (docs/formats.md)."""


MOST_BYTES = 65_535
"""Maximum bytes of an IP packet."""


class DefenceError(ValueError):
    """A defence cannot be made or applied; the message names the setting."""


@dataclass(frozen=True, slots=True)
class Defended(Traces):
    """Traces with padding, and marks that show which packets are padding.

    Observers cannot see the marks, so `on_paths` returns plain `Traces`. Use a `Pipeline` to split
    these traces: it keeps the marks aligned. Any other split that changes times is rejected,
    because it cannot update the marks.

    Attributes:
        padding: bool (packets,), whether a defence added the packet.
        marked: `times` at the moment of marking, to detect later changes.
    """

    padding: Bools = field(kw_only=True)
    marked: Floats = field(kw_only=True, repr=False)

    def __post_init__(self) -> None:
        Traces.__post_init__(self)
        if self.padding.shape != self.times.shape or self.padding.dtype != np.bool_:
            raise TraceError("expected one bool for each packet", column="padding")
        if self.times is not self.marked and not np.array_equal(self.times, self.marked):
            problem = "times have changed since padding: use a Pipeline to split padded traces"
            raise TraceError(problem, column="padding")

    def __getitem__(self, index: slice | ArrayLike) -> Defended:
        """Returns the loads that a slice, a boolean mask or an array of indices selects."""
        return self.carried(lambda traces: traces[index])

    def on_paths(self, paths: Any) -> Traces:
        """Returns the view of an observer of `paths`: packets without marks."""
        return Traces.on_paths(self.bare(), paths)

    def bare(self) -> Traces:
        """Returns the same packets without the marks."""
        return Traces(**{each.name: getattr(self, each.name) for each in fields(Traces)})

    def carried(self, change: Callable[[Traces], Traces]) -> Defended:
        """Applies `change` to the packets, and keeps their marks aligned.

        `change` may drop and reorder packets and change their times, but must not change sizes. It
        receives traces whose sizes are replaced by signed packet numbers. In its result, these
        numbers show which real size and mark each packet gets.
        """
        bare = self.bare()
        numbered = np.where(self.sizes > 0, 1, -1) * np.arange(1, self.sizes.size + 1)
        changed = change(_with(bare, sizes=numbered.astype(np.int32)))
        places = np.abs(changed.sizes.astype(np.int64)) - 1
        return marked(_with(changed, sizes=self.sizes[places]), self.padding[places])


def marked(traces: Traces, padding: Bools | None = None) -> Defended:
    """Returns traces with marks.

    Without `padding`, existing marks stay; in traces without marks, no packet is padding.
    """
    if padding is None:
        if isinstance(traces, Defended):
            return traces
        padding = np.zeros(traces.times.size, dtype=np.bool_)
    own = {each.name: getattr(traces, each.name) for each in fields(Traces)}
    return Defended(**own, padding=padding, marked=traces.times)


@dataclass(frozen=True, slots=True)
class Shaped:
    """The packets of one path of a load after a defence, sorted by time.

    Attributes:
        times: float64 (packets,), seconds.
        sizes: int32 (packets,), signed bytes.
        origin: int64 (packets,), index of the packet before the defence; `PADDING` if it was added.
    """

    times: Floats
    sizes: Sizes
    origin: Ints


class Defence(ABC):
    """Base class of defences, applied to a whole load or to each path of a split load separately.

    The result for a load depends on its packets, its `load` and `run`, the path, the seed and the
    replica, not on other loads. Padding of an earlier defence counts as real traffic.
    """

    name: ClassVar[str]
    """Name in settings; the defence's seeds are also derived from it."""

    __slots__ = ()

    @abstractmethod
    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Applies the defence to the packets of one path of a load, at least one packet."""

    def apply(self, traces: Traces, seed: int, replica: int = 0) -> Defended:
        """Returns the traces with padding; each `replica` has its own random draws for every load.

        Raises:
            TraceError: if the traces have no times.
            DefenceError: if the seed or a setting is invalid.
        """
        if traces.timeless:
            raise TraceError("these traces have no times, which this defence needs", column="time")
        before = marked(traces)
        loads = [self._load(before, k, (seed, replica)) for k in range(len(before))]
        return _joined(before, loads)

    def _load(self, traces: Defended, k: int, dice: tuple[int, int]) -> Load:
        """Returns load `k` after the defence, applied to each path separately, sorted by time."""
        load = Load.empty()
        start = int(traces.offsets[k])
        for path, places in _subtraces(traces, k):
            packets = places + start
            names = (int(traces.load[k]), int(traces.run[k]), path)
            key = stream(dice[0], self.name, *names, dice[1])
            sub = (traces.times[packets], traces.sizes[packets], key, traces.facts)
            try:
                load = load.joined(self.shape(*sub), places, path)
            except DefenceError as error:
                raise DefenceError(f"load {names[0]} of run {names[1]}: {error}") from error
        return load.sorted()


def stream(seed: int, purpose: str, *entity: int) -> int:
    """Derives a 64-bit seed from a seed, a purpose and numbers.

    `entity` identifies the object that the seed is for, such as load, run, path and replica.

    Raises:
        DefenceError: if a number is out of range.
    """
    if not 0 <= seed < 1 << 64:
        raise DefenceError(f"seed: {seed} is not a number from 0 to 2^64 - 1")
    try:
        key = struct.pack(f"<Q{len(entity)}q", seed, *entity)
    except struct.error:
        numbers = ", ".join(map(str, entity))
        raise DefenceError(
            f"{numbers}: numbers of loads, runs, paths and replicas must be below 2^63"
        ) from None
    digest = blake2b(key + purpose.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def dummy_size(size: int | None, facts: Facts) -> int:
    """Returns the bytes of a dummy: `size`, or the default for these traces if it is None."""
    return DUMMY_BYTES.get(facts.size, DUMMY_BYTES["ip-packet"]) if size is None else size


def check_size(size: int | None) -> None:
    """Rejects sizes that no packet has.

    Raises:
        DefenceError: if `size` is neither None nor from 1 to 65,535.
    """
    if size is not None and not 1 <= size <= MOST_BYTES:
        raise DefenceError(f"size={size}: a packet has 1 to {MOST_BYTES} bytes")


def padded(times: Floats, sizes: Sizes, up: ArrayLike, down: ArrayLike, size: int) -> Shaped:
    """Adds dummies of `size` bytes at times `up` and `down`, after real packets of equal time."""
    added = np.concatenate([np.asarray(up, dtype=np.float64), np.asarray(down, dtype=np.float64)])
    signs = np.repeat([size, -size], [np.size(up), np.size(down)]).astype(np.int32)
    stamps = np.concatenate([times, added])
    order = np.argsort(stamps, kind="stable")
    origin = np.concatenate([np.arange(times.size), np.full(added.size, PADDING)])
    return Shaped(stamps[order], np.concatenate([sizes, signs])[order], origin[order])


@dataclass(frozen=True, slots=True)
class Load:
    """One load after a defence. `origin` is an index from the load's first packet."""

    times: Floats
    sizes: Sizes
    origin: Ints
    paths: NDArray[np.int16]

    @classmethod
    def empty(cls) -> Load:
        """Returns a load without packets."""
        none = np.zeros(0)
        return cls(none, none.astype(np.int32), none.astype(np.int64), none.astype(np.int16))

    def joined(self, shaped: Shaped, places: Ints, path: int) -> Load:
        """Returns the load with the packets of another path appended.

        `places` has the index in the original load of each packet that the path had before the
        defence.
        """
        origin = np.where(shaped.origin == PADDING, PADDING, places[shaped.origin])
        paths = np.full(origin.size, path, dtype=np.int16)
        return Load(
            np.concatenate([self.times, shaped.times]),
            np.concatenate([self.sizes, shaped.sizes]),
            np.concatenate([self.origin, origin]),
            np.concatenate([self.paths, paths]),
        )

    def sorted(self) -> Load:
        """Returns the load sorted by time; at equal times, original packets go first, in order."""
        order = np.lexsort((self.origin, self.origin == PADDING, self.times))
        return Load(self.times[order], self.sizes[order], self.origin[order], self.paths[order])

    @classmethod
    def beside(
        cls, traces: Traces, k: int, times: Floats, sizes: Sizes, paths: NDArray[np.int16]
    ) -> Load:
        """Returns the split load `k` with additional packets on its paths."""
        assert traces.paths is not None, "callers check that the traces are split"
        own = traces.packets(k)
        there = np.arange(own.stop - own.start)
        load = cls(
            np.concatenate([traces.times[own], times]),
            np.concatenate([traces.sizes[own], sizes]),
            np.concatenate([there, np.full(times.size, PADDING)]),
            np.concatenate([traces.paths[own], paths]),
        )
        return load.sorted()


def _subtraces(traces: Traces, k: int) -> Iterator[tuple[int, Ints]]:
    """Yields each path of load `k` and the indices of its packets in the load."""
    packets = traces.packets(k)
    if traces.paths is None:
        if packets.stop > packets.start:
            yield WHOLE, np.arange(packets.stop - packets.start)
        return
    paths = traces.paths[packets]
    for path in np.unique(paths).tolist():
        yield path, np.flatnonzero(paths == path)


def _joined(before: Defended, loads: list[Load]) -> Defended:
    parts = loads or [Load.empty()]
    offsets = offsets_of([load.origin.size for load in loads])
    origin = np.concatenate([load.origin for load in parts])
    first = np.repeat(before.offsets[:-1], np.diff(offsets))
    added = origin == PADDING
    padding = added.copy()
    padding[~added] = before.padding[(origin + first)[~added]]
    paths = None
    if before.paths is not None:
        paths = np.concatenate([load.paths for load in parts])
    traces = _with(
        before.bare(),
        offsets=offsets,
        times=np.concatenate([load.times for load in parts]),
        sizes=np.concatenate([load.sizes for load in parts]),
        paths=paths,
        **dict.fromkeys(OPTIONAL.values()),  # dummies lack them, and shift a tunnel's counter
    )
    return marked(traces, padding)


def _with(traces: Traces, **changes: Any) -> Traces:
    own = {each.name: getattr(traces, each.name) for each in fields(Traces)}
    return Traces(**(own | changes))
