"""Checks of traces, with errors that name the file and the column.

The rules are those of docs/formats.md, "Validity". Structure is checked whenever traces are made.
Labels are checked only before training (`labels`), because a user's own capture has none.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch import _core

if TYPE_CHECKING:
    from anabranch.traces import Traces

Source: TypeAlias = str | PathLike[str]


class TraceError(ValueError):
    """Error of traces, or of a file of traces, that cannot be used.

    Attributes:
        problem: the problem, as printed after file and column.
        column: the wrong column or array; None if no single column is wrong.
        file: the file; None if it is not known.
    """

    def __init__(
        self, problem: str, *, column: str | None = None, file: Source | None = None
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.column = column
        self.file = file

    def __str__(self) -> str:
        parts = [str(self.file)] if self.file is not None else []
        parts += [f"column '{self.column}'"] if self.column is not None else []
        return ": ".join([*parts, self.problem])


class TraceWarning(UserWarning):
    """Warning about traces that are accepted although a part of their file is doubtful."""


def doubt(problem: str, file: Source) -> None:
    """Warns of a doubtful part of `file`."""
    warnings.warn(f"{file}: {problem}", TraceWarning, stacklevel=3)


@contextmanager
def source(file: Source) -> Iterator[None]:
    """Adds `file` to every `TraceError` raised within its context, unless the error names a file.

    A missing, damaged or unreadable file becomes a `TraceError` too.
    """
    try:
        yield
    except TraceError as error:
        error.file = file if error.file is None else error.file
        raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceError(reason, file=file) from error


def structure(traces: Traces) -> None:
    """Refuses arrays that do not fit together, or break a rule of the schema.

    Raises:
        TraceError: with the column, the load and the packet.
    """
    _lengths(traces)
    _offsets(traces)
    _load_names(traces)
    _refuse_packet(traces, "time", ~(np.isfinite(traces.times) & (traces.times >= 0)), _BAD_TIME)
    _refuse_packet(traces, "time", traces.times > _core.LATEST, _TOO_LATE)
    _refuse_packet(traces, "time", _earlier_than_before(traces), "is earlier than the one before")
    _refuse_packet(traces, "size", traces.sizes == 0, "is 0: it has no direction")
    if traces.paths is not None:
        _refuse_packet(traces, "path", traces.paths < -1, "is below -1")
    if traces.counters is not None:
        _refuse_packet(traces, "counter", traces.counters < 0, "is below 0")
        _refuse_packet(traces, "counter", traces.counters > MOST_COUNTED, _COUNTED_TOO_FAR)


def filled(traces: Traces, form: str) -> None:
    """Refuses a load without packets, because the format `form` cannot contain it.

    Raises:
        TraceError: with the load.
    """
    empty = np.flatnonzero(traces.lengths == 0)
    if empty.size:
        where = f"load {traces.load[empty[0]]} in run {traces.run[empty[0]]}"
        raise TraceError(f"{where} has no packets: {form} cannot contain empty loads")


def labels(traces: Traces, codes: NDArray[np.int64] | None = None) -> None:
    """Refuses a label with a single load, which cannot be both learnt and tested.

    Args:
        traces: the loads.
        codes: codes of the labels to learn; None means the monitored ones.

    Raises:
        TraceError: with the label.
    """
    chosen = traces.monitored if codes is None else np.isin(traces.label, codes)
    counts = np.bincount(traces.label[chosen], minlength=len(traces.names))
    lonely = np.flatnonzero(counts == 1)
    if lonely.size:
        others = f", and so have {lonely.size - 1} other labels" if lonely.size > 1 else ""
        raise TraceError(
            f"'{traces.names[lonely[0]]}' has only one load{others}: a label needs two loads, one "
            "to learn and one to test",
            column="label",
        )


def watched(traces: Traces) -> None:
    """Refuses a label that is monitored in only some of its loads.

    Raises:
        TraceError: with the label.
    """
    loads = np.bincount(traces.label, minlength=len(traces.names))
    monitored = np.bincount(traces.label[traces.monitored], minlength=len(traces.names))
    mixed = np.flatnonzero((monitored > 0) & (monitored < loads))
    if mixed.size:
        k = mixed[0]
        raise TraceError(
            f"is true for {monitored[k]} of the {loads[k]} loads of '{traces.names[k]}': a label "
            "must be monitored in all of its loads or in none",
            column="monitored",
        )


MOST_COUNTED = 2**40
"""Maximum counter within a load: far more packets than any load has."""

_COUNTED_TOO_FAR = "is above 2^40: the counter must begin with the load's first packet"
_BAD_TIME = "is negative or not a finite number"
_TOO_LATE = f"is after {_core.LATEST:g} s: times must be in seconds"

_DTYPES = {
    "load": np.int64,
    "run": np.int32,
    "label": np.int32,
    "monitored": np.bool_,
    "offsets": np.int64,
    "times": np.float64,
    "sizes": np.int32,
    "paths": np.int16,
}


def _lengths(traces: Traces) -> None:
    loads, packets = traces.offsets.size - 1, traces.times.size
    wanted = dict.fromkeys(["load", "run", "label", "monitored"], loads)
    wanted |= {"offsets": loads + 1}
    metadata = {each.name: each.metadata for each in fields(traces)}
    dtypes = _DTYPES | {name: own["dtype"] for name, own in metadata.items() if "dtype" in own}
    optional = dtypes.keys() - _DTYPES.keys()
    wanted |= dict.fromkeys(["times", "sizes", "paths", *optional], packets)
    for name, length in wanted.items():
        array: NDArray[Any] | None = getattr(traces, name)
        if array is None:
            continue
        if array.shape != (length,):
            raise TraceError(f"has the shape {array.shape}, not ({length},)", column=name)
        if array.dtype != dtypes[name]:
            kind = np.dtype(dtypes[name])
            raise TraceError(f"holds {array.dtype}, not {kind}", column=name)


def _offsets(traces: Traces) -> None:
    offsets = traces.offsets
    if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != traces.times.size:
        raise TraceError("must begin with 0 and end with the number of packets", column="offsets")
    if (np.diff(offsets) < 0).any():
        raise TraceError("must never decrease", column="offsets")


def _load_names(traces: Traces) -> None:
    order = np.lexsort((traces.load, traces.run))
    load, run = traces.load[order], traces.run[order]
    twice = np.flatnonzero((np.diff(load) == 0) & (np.diff(run) == 0))
    if twice.size:
        raise TraceError(f"{load[twice[0]]} is in run {run[twice[0]]} twice", column="load")
    if traces.label.size and not 0 <= traces.label.min() <= traces.label.max() < len(traces.names):
        problem = f"has codes without a name: there are {len(traces.names)} names"
        raise TraceError(problem, column="label")


def _earlier_than_before(traces: Traces) -> NDArray[np.bool_]:
    """Returns bool (packets,): whether a packet is earlier than the previous one of its load."""
    earlier = np.zeros(traces.times.size, dtype=np.bool_)
    earlier[1:] = np.diff(traces.times) < 0
    starts = traces.offsets[:-1]
    earlier[starts[starts < traces.times.size]] = False
    return earlier


def _refuse_packet(traces: Traces, column: str, bad: NDArray[np.bool_], problem: str) -> None:
    if not bad.any():
        return
    packet = int(np.argmax(bad))
    k = int(np.searchsorted(traces.offsets, packet, side="right")) - 1
    where = f"packet {packet - traces.offsets[k]} of load {traces.load[k]} in run {traces.run[k]}"
    raise TraceError(f"{where} {problem}", column=column)
