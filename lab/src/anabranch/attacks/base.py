"""What every attack has in common: the form of its input, and the estimator's contract.

An attack takes `Sequences` (packets of many loads, in flat arrays) and labels, and answers with
one row of class probabilities for each sequence. It follows scikit-learn's conventions: parameters
are only stored in `__init__`, learnt state ends in `_`, `clone` and `get_params` work.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from anabranch.io import draft
from anabranch.ragged import offsets_of, select
from anabranch.unfinished import Unfinished

from .ranges import SEED, Ranges, alike

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Labels: TypeAlias = NDArray[Any]

FILE_FORMAT = 1
"""Version of what `Attack.save` writes."""

UNKNOWN = -1
"""Code of a label that the training set does not have: no prediction ever equals it."""


class AttackError(ValueError):
    """The input or a file given to an attack cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """The packets of `n` observed loads, as flat arrays.

    Attributes:
        times: float64 (packets,), seconds, ascending within a sequence; any origin.
        sizes: int32 (packets,), signed bytes: + client to server, - server to client, never 0.
        offsets: int64 (n + 1,): sequence `i` is `[offsets[i], offsets[i + 1])`; it may be empty.
        counts: int64 (packets,), how many packets of its direction all paths have carried up to
            and including each packet, as a counter in clear tells; never below 0, never descending
            in a direction of a sequence. None where packets show no counter.

    Raises:
        AttackError: if the arrays do not fit together.
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
                raise AttackError(f"counts {self.counts.shape} for {self.times.size} packets")
            if (self.increments < 0).any():
                raise AttackError("counts descend")

    @classmethod
    def from_lists(cls, times: Iterable[ArrayLike], sizes: Iterable[ArrayLike]) -> Self:
        """Builds from one array of times [s] and one of signed sizes for each sequence."""
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
        """The sequences of all `parts`, one after the other."""
        counts = [part.counts for part in parts if part.counts is not None]
        if len(counts) not in (0, len(parts)):
            raise AttackError("counts: some sequences have them, others not")
        return cls(
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            offsets_of(np.concatenate([part.lengths for part in parts])),
            counts=np.concatenate(counts) if counts else None,
        )

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, index: slice | ArrayLike) -> Sequences:
        """The sequences that a slice, a boolean mask or an array of positions selects."""
        _, offsets, packets = select(self.offsets, index)
        counts = None if self.counts is None else self.counts[packets]
        return Sequences(self.times[packets], self.sizes[packets], offsets, counts=counts)

    @property
    def lengths(self) -> Ints:
        """int64 (n,): packets of each sequence."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Ints:
        """int64 (packets,): the sequence that each packet belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def positions(self) -> Ints:
        """int64 (packets,): the place of each packet in its sequence, from 0."""
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
        """int64 (packets,): the packets of all paths that each packet's counter newly tells of.

        Their sum up to a moment is the count of that moment, carried forward.
        """
        assert self.counts is not None, "asked for only where there are counters"
        told = np.zeros(self.times.size, np.int64)
        owners = self.owners
        for way in (self.sizes > 0, self.sizes < 0):
            own, of = self.counts[way], owners[way]
            before = np.where(np.diff(of, prepend=-1) == 0, np.concatenate([[0], own[:-1]]), 0)
            told[way] = own - before
        return told


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What a network's training tells after each epoch."""

    member: str
    """Which network of an ensemble; `network` where there is one."""
    epoch: int
    """From 1."""
    epochs: int
    """The most there will be."""
    loss: float
    """Mean cross entropy of the epoch's mini-batches [nats], with dropout."""
    validation_accuracy: float | None
    """Share of the validation set that is labelled rightly; None without one."""
    learning_rate: float
    """The rate that the epoch ended with."""


OnEpoch: TypeAlias = Callable[[EpochReport], None]
Validation: TypeAlias = tuple[Sequences, ArrayLike]


@dataclass(frozen=True, slots=True)
class Task:
    """A checked training set; labels are codes into `classes_`."""

    X: Sequences
    codes: Ints
    groups: Labels | None
    validation: tuple[Sequences, Ints] | None
    on_epoch: OnEpoch | None
    unfinished: Unfinished | None = None


class Attack(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of all attacks: checks the input, keeps the classes, saves and loads.

    A subclass implements `_fit(task)` and `predict_proba(X)`, and states the range of each of its
    parameters and whether it looks at times.
    """

    ranges: ClassVar[Ranges] = {"seed": SEED}
    """What each parameter may be, but for those that are true or false."""
    needs_times: ClassVar[bool]
    """Whether it looks at times: on traces that have none it would be another, weaker attack."""
    uses_counter: ClassVar[bool] = False
    """Whether it looks at counters in clear (`Sequences.counts`); others refuse to be given any."""
    revision: ClassVar[int] = 0
    """Raised when the same parameters begin to give other predictions: results of the one before
    are then found no more."""

    classes_: Labels
    counted_: bool = False
    """Whether the training set had counters."""

    def fit(
        self,
        X: Sequences,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        validation: Validation | None = None,
        on_epoch: OnEpoch | None = None,
        unfinished: Unfinished | None = None,
    ) -> Self:
        """Learns to tell the labels apart.

        Args:
            X: the training set.
            y: (n,) labels of any type that sorts.
            groups: (n,) load ids; an inner division never puts one load on both sides.
            validation: traces and labels that choose epochs or parameters, and nothing else.
            on_epoch: called after each epoch of a network; other attacks never call it.
            unfinished: where a network's state is kept after each epoch, and gone on from if the
                same call was cut.

        Raises:
            AttackError: if a parameter is out of its range, lengths differ, the validation set is
                empty, or there are fewer than two classes.
        """
        self.check_parameters()
        labels = _labels_for(X, y, "y")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if self.classes_.size < 2:
            raise AttackError(f"an attack needs two classes or more, not {self.classes_.size}")
        if validation is not None and len(validation[0]) == 0:
            raise AttackError("the validation set is empty")
        if X.counts is not None and not self.uses_counter:
            raise AttackError(f"{type(self).__name__} cannot use counters")
        self.counted_ = X.counts is not None
        grouping = None if groups is None else _labels_for(X, groups, "groups")
        held_out = None if validation is None else (validation[0], self._codes(*validation))
        self._fit(Task(X, codes.astype(np.int64), grouping, held_out, on_epoch, unfinished))
        return self

    def check_parameters(self) -> None:
        """Refuses parameters out of their range, which construction only stores.

        Raises:
            AttackError: with the parameter's name, its value and what it may be.
        """
        defaults = type(self)().get_params(deep=False)
        for name, value in self.get_params(deep=False).items():
            if not alike(value, defaults[name]):
                raise AttackError(f"{name} = {value!r} is not like its default, {defaults[name]!r}")
            if name in self.ranges and value not in self.ranges[name]:
                raise AttackError(f"{name} = {value!r} is not {self.ranges[name]}")

    def _check_counts(self, X: Sequences) -> None:
        """Refuses sequences that have counters where the training set had none, or the reverse."""
        if (X.counts is not None) != self.counted_:
            trained, given = ("with", "without") if self.counted_ else ("without", "with")
            raise AttackError(f"trained {trained} counters, asked about sequences {given} them")

    @abstractmethod
    def _fit(self, task: Task) -> None:
        """Learns from a checked training set."""

    @abstractmethod
    def predict_proba(self, X: Sequences) -> Floats:
        """Class probabilities (n, classes), columns in the order of `classes_`."""

    def predict(self, X: Sequences) -> Labels:
        """The most probable label of each sequence (n,); of equals, the first in `classes_`."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes parameters and learnt state to one file (joblib).

        Raises:
            NotFittedError: before `fit`.
        """
        check_is_fitted(self, "classes_")
        learnt = {name: value for name, value in vars(self).items() if _is_learnt(name)}
        content = {"format": FILE_FORMAT, "attack": type(self).__name__}
        content |= {"parameters": self.get_params(deep=False), "learnt": learnt}
        with draft.file(Path(path)) as part:
            joblib.dump(content, part, compress=3)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what `save` wrote. The file is a pickle: load only files that you trust.

        Raises:
            AttackError: if the file is none of ours, or another attack's.
        """
        content = _read(path)
        if content.get("attack") != cls.__name__:
            raise AttackError(f"{path}: holds {content.get('attack')}, not {cls.__name__}")
        attack = cls(**content["parameters"])
        for name, value in content["learnt"].items():
            setattr(attack, name, value)
        return attack

    def _codes(self, X: Sequences, y: ArrayLike) -> Ints:
        """Codes (n,) of labels, `UNKNOWN` for one that `classes_` lacks."""
        labels = _labels_for(X, y, "validation labels")
        places = np.searchsorted(self.classes_, labels).clip(max=self.classes_.size - 1)
        return np.where(self.classes_[places] == labels, places, UNKNOWN).astype(np.int64)


def random_state(seed: int) -> int:
    """A seed as scikit-learn takes it: those from 2^32 on are mixed into 32 bits."""
    return seed if seed < 2**32 else int(np.random.SeedSequence(seed).generate_state(1)[0])


def _labels_for(X: Sequences, y: ArrayLike, name: str) -> Labels:
    labels = np.asarray(y)
    if labels.shape != (len(X),):
        raise AttackError(f"{name}: shape {labels.shape} for {len(X)} sequences")
    return labels


def _is_learnt(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        content = joblib.load(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # unpickling garbage raises almost anything
        raise AttackError(f"{path}: not a saved attack ({error})") from error
    parts = {"attack", "parameters", "learnt"}
    if not isinstance(content, dict) or content.get("format") != FILE_FORMAT or parts - {*content}:
        raise AttackError(f"{path}: not a saved attack of format {FILE_FORMAT}")
    return content


def _check_shapes(times: Floats, sizes: NDArray[np.int32], offsets: Ints) -> None:
    if times.ndim != 1 or times.shape != sizes.shape:
        raise AttackError(f"times {times.shape} and sizes {sizes.shape} must be equal and flat")
    if offsets.ndim != 1 or offsets.size == 0 or offsets[0] != 0 or offsets[-1] != times.size:
        raise AttackError(f"offsets must run from 0 to the {times.size} packets")
    if (np.diff(offsets) < 0).any():
        raise AttackError("offsets must not descend")


def _check_values(times: Floats, sizes: NDArray[np.int32], offsets: Ints) -> None:
    if not np.isfinite(times).all():
        raise AttackError("a time is not finite")
    if (sizes == 0).any():
        raise AttackError("a packet of size 0 has no direction")
    backwards = np.diff(times) < 0
    starts = offsets[1:-1]
    backwards[starts[(starts > 0) & (starts < times.size)] - 1] = False
    if backwards.any():
        raise AttackError(f"times go backwards at packet {int(backwards.argmax()) + 1}")
