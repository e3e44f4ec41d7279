"""Recorded loads in memory: a short table of loads, and flat arrays of their packets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch import jagged, validate
from anabranch.validate import TraceError

Floats: TypeAlias = NDArray[np.float64]
Sizes: TypeAlias = NDArray[np.int32]

WHOLE = -1
"""The path of the packets of a load that was not split."""


_COLUMN = "column"


def _optional(column: str, dtype: type) -> dict[str, Any]:
    """Returns the dataclass metadata of a field for an optional column; the field may be None.

    Args:
        column: name of the column in files.
        dtype: type of its values, one for each packet.
    """
    return {_COLUMN: column, "dtype": dtype}


@dataclass(frozen=True, slots=True)
class Facts:
    """Metadata of a trace file, valid for all page loads in it (docs/formats.md, "Metadata")."""

    size: str = "ip-packet"
    """Unit of sizes: `ip-packet`, `cell` or `direction` (±1; such files may have no times)."""
    paths: tuple[str, ...] = ()
    """Names of paths 0, 1, ..."""
    schedule: str | None = None
    """The split with which the traces were recorded, as on a command line."""
    seed: int | None = None
    """The seed of the split."""


@dataclass(frozen=True, slots=True)
class Traces:
    """The packets of `n` loads; load `k` has the packets `offsets[k]` to `offsets[k + 1] - 1`.

    Attributes:
        load: int64 (n,), the number of each load, unique within its run.
        run: int32 (n,), the repetition of the experiment.
        label: int32 (n,), the page: an index into `names`.
        names: the labels.
        monitored: bool (n,), whether the load's page is monitored.
        offsets: int64 (n + 1,), from 0, never decreasing; a load may be empty.
        times: float64 (packets,), seconds, ascending within a load.
        sizes: int32 (packets,), + from client to server, - from server to client, never 0.
        paths: int16 (packets,), the path of each packet; None if nothing is split.
        counters: int64 (packets,), each packet's cleartext counter, as its position from 1 among
            the packets of its load and direction, on all paths; 0 for a packet without a counter.
            None if the file has no counters; `counted` then simulates them.
        facts: metadata of all loads.

    Raises:
        TraceError: if the arrays do not fit together or break a rule of the schema.
    """

    load: NDArray[np.int64]
    run: NDArray[np.int32]
    label: NDArray[np.int32]
    names: tuple[str, ...]
    monitored: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    times: Floats
    sizes: Sizes
    paths: NDArray[np.int16] | None = None
    counters: NDArray[np.int64] | None = field(
        default=None, metadata=_optional("counter", np.int64)
    )
    facts: Facts = field(default_factory=Facts)

    def __post_init__(self) -> None:
        validate.structure(self)

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, index: slice | ArrayLike) -> Traces:
        """Selects loads by a slice, a boolean mask or an array of indices; `names` is kept."""
        chosen, offsets, packets = jagged.select(self.offsets, index)
        return replace(
            self,
            load=self.load[chosen],
            run=self.run[chosen],
            label=self.label[chosen],
            monitored=self.monitored[chosen],
            offsets=offsets,
            times=self.times[packets],
            sizes=self.sizes[packets],
            paths=None if self.paths is None else self.paths[packets],
            **self.optional(packets),
        )

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Names of the optional columns that these traces have."""
        return tuple(name for name, each in OPTIONAL.items() if getattr(self, each) is not None)

    def optional(self, packets: NDArray[Any]) -> dict[str, Any]:
        """Returns the fields of all optional columns, for an index or a mask of packets."""
        values = {name: getattr(self, name) for name in OPTIONAL.values()}
        return {name: each if each is None else each[packets] for name, each in values.items()}

    @property
    def shape(self) -> tuple[int]:
        """The shape (n,), by which scikit-learn recognises an object to index and shuffle."""
        return (len(self),)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64 (n,): the packets of each load."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> NDArray[np.int64]:
        """int64 (packets,): the load that each packet belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def labels(self) -> NDArray[np.str_]:
        """The label of each load, str (n,)."""
        return np.array(self.names, dtype=np.str_)[self.label]

    @property
    def timeless(self) -> bool:
        """Whether no packet has a time, as in recordings of directions only."""
        return self.times.size > 0 and not self.times.any()

    def packets(self, k: int) -> slice:
        """Returns the slice of load `k` in the flat arrays."""
        return slice(int(self.offsets[k]), int(self.offsets[k + 1]))

    def on_paths(self, paths: Sequence[int]) -> Traces:
        """Returns the packets on `paths`, as their observer sees them. Loads without packets stay.

        Times count from the start of the load. The observer does not know it, so an attack must
        subtract the first time.
        """
        if self.paths is None:
            raise TraceError(
                "the traces are not split, so there are no paths to observe", column="path"
            )
        return self.only(np.isin(self.paths, np.asarray(paths)))

    def only(self, kept: NDArray[np.bool_]) -> Traces:
        """Returns the packets that the mask `kept` (packets,) selects. All loads stay."""
        return replace(
            self,
            offsets=jagged.keep(self.offsets, kept),
            times=self.times[kept],
            sizes=self.sizes[kept],
            paths=None if self.paths is None else self.paths[kept],
            **self.optional(kept),
        )

    def counted(self) -> Traces:
        """Returns the traces with counters: recorded counters, or else simulated ones.

        A simulated counter is the packet's position among all packets of its load and direction,
        on all paths, including dummies. WireGuard and Mosh count in this way, with two exceptions:
        handshake messages have no counter, and rekeying restarts it. Most loads contain neither,
        and an observer recognises both.
        """
        if self.counters is not None:
            return self
        return replace(self, counters=_places(self.offsets, self.sizes))

    def shares(self, paths: int) -> Floats:
        """Returns float64 (n, paths): the share of a load's packets on each path; 0 if empty."""
        if self.paths is None:
            raise TraceError(
                "the traces are not split, so there are no shares of paths", column="path"
            )
        if self.paths.size and not 0 <= self.paths.min() <= self.paths.max() < paths:
            raise TraceError(f"has path numbers outside 0 to {paths - 1}", column="path")
        cells = self.owners * paths + self.paths
        counts = np.bincount(cells, minlength=len(self) * paths).reshape(len(self), paths)
        shares: Floats = counts / np.maximum(self.lengths, 1)[:, None]
        return shares


OPTIONAL: Mapping[str, str] = MappingProxyType(
    {each.metadata[_COLUMN]: each.name for each in fields(Traces) if _COLUMN in each.metadata}
)
"""The field of `Traces` for each optional column of a file, by the column's name."""


class Builder:
    """Builder of `Traces` from loads that are added one by one."""

    def __init__(self, facts: Facts | None = None) -> None:
        self.facts = facts or Facts()
        self._names: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, bool]] = []
        self._times: list[Floats] = []
        self._sizes: list[Sizes] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        label: str,
        times: ArrayLike,
        sizes: ArrayLike,
        *,
        load: int | None = None,
        run: int = 0,
        monitored: bool = True,
    ) -> Self:
        """Adds a load with `times` [s] and signed `sizes`; `load` defaults to the next number."""
        code = self._names.setdefault(label, len(self._names))
        number = len(self._rows) if load is None else load
        self._rows.append((number, run, code, monitored))
        self._times.append(np.asarray(times, dtype=np.float64))
        self._sizes.append(sizes_of(sizes))
        return self

    def build(self) -> Traces:
        """Returns all loads added so far, with sorted names.

        Raises:
            TraceError: as `Traces` does.
        """
        names = tuple(sorted(self._names))
        place = {name: number for number, name in enumerate(names)}
        places = np.array([place[name] for name in self._names], dtype=np.int32)
        load, run, code, monitored = zip(*self._rows, strict=True) if self._rows else ((),) * 4
        return Traces(
            load=np.array(load, dtype=np.int64),
            run=_int32(run, "run"),
            label=places[np.array(code, dtype=np.int64)],
            names=names,
            monitored=np.array(monitored, dtype=np.bool_),
            offsets=jagged.offsets_of([times.size for times in self._times]),
            times=np.concatenate([np.zeros(0), *self._times]),
            sizes=np.concatenate([np.zeros(0, dtype=np.int32), *self._sizes]),
            facts=self.facts,
        )


def sizes_of(values: ArrayLike) -> Sizes:
    """Returns sizes as int32.

    Raises:
        TraceError: if a value is not an integer of 32 bits.
    """
    return _int32(values, "size")


def _int32(values: ArrayLike, column: str) -> NDArray[np.int32]:
    array: NDArray[Any] = np.asarray(values)
    with np.errstate(invalid="ignore"):  # Values such as NaN change in the cast, and are rejected.
        whole = array.astype(np.int32)
    if not np.array_equal(whole, array):
        raise TraceError("holds values that are not whole numbers of 32 bits", column=column)
    return whole


def _places(offsets: NDArray[np.int64], sizes: Sizes) -> NDArray[np.int64]:
    """Returns int64 (packets,): each packet's position, from 1, in its load and direction."""
    up = jagged.offsets_of(sizes > 0)
    down = np.arange(up.size) - up
    first = np.repeat(offsets[:-1], np.diff(offsets))
    places = np.where(sizes > 0, up[1:] - up[first], down[1:] - down[first])
    return places.astype(np.int64)


def loads(traces: Traces) -> Iterator[tuple[str, Floats, Sizes]]:
    """Yields the label, times and sizes of each load; the arrays are views."""
    for k, code in enumerate(traces.label):
        packets = traces.packets(k)
        yield traces.names[code], traces.times[packets], traces.sizes[packets]
