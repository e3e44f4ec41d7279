"""The interface that all attacks share.

`fit` takes labels and `Sequences` (packets of many loads, in flat arrays), or an input that
`sequences_of` or `from_rows` converts to them. `predict_proba` returns one row of class
probabilities for each sequence. Attacks follow scikit-learn's conventions: `__init__` only stores
parameters, and names of learnt state end in `_`. Therefore `clone`, `get_params`,
cross-validation, searches, pipelines and voting work.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from anabranch.io import draft
from anabranch.unfinished import Unfinished

from .ranges import SEED, Ranges, alike
from .sequences import AttackError, Floats, Ints, Observed, Sequences, from_rows, sequences_of

__all__ = [
    "Attack",
    "AttackError",
    "EpochReport",
    "Floats",
    "Ints",
    "Labels",
    "Observed",
    "OnEpoch",
    "Sequences",
    "Task",
    "Validation",
    "random_state",
]

Labels: TypeAlias = NDArray[Any]

FILE_FORMAT = 1
"""Version of the files that `Attack.save` writes."""

UNKNOWN = -1
"""Code of a validation label that the training set lacks; no prediction ever equals it."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Progress of a network's training after one epoch."""

    member: str
    """Name of the network within an ensemble; `network` if there is only one."""
    epoch: int
    """Number of the epoch, from 1."""
    epochs: int
    """Maximum number of epochs."""
    loss: float
    """Mean cross entropy of the epoch's mini-batches [nats], with dropout."""
    validation_accuracy: float | None
    """Accuracy on the validation set; None without one."""
    learning_rate: float
    """Learning rate at the end of the epoch."""


OnEpoch: TypeAlias = Callable[[EpochReport], None]
Validation: TypeAlias = tuple[Observed, ArrayLike]


@dataclass(frozen=True, slots=True)
class Task:
    """A checked training set of `n` samples; labels are stored as indices into `classes_`.

    Attributes:
        X: the samples.
        codes: int64 (n,), the class of each sample.
        groups: (n,), the load of each sample; None if not given.
        validation: samples and codes, used only to choose epochs or parameters; the code is
            `UNKNOWN` for labels that the training set lacks. None if not given.
        on_epoch: called after each epoch of a network.
        unfinished: where a network's training state is saved.
    """

    X: Sequences
    codes: Ints
    groups: Labels | None
    validation: tuple[Sequences, Ints] | None
    on_epoch: OnEpoch | None
    unfinished: Unfinished | None = None


class Attack(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class of all attacks: checks the input, stores the classes, saves and loads.

    A subclass implements `_fit(task)` and `_probabilities(X)`. It declares the range of each of its
    parameters (`ranges`) and whether it uses times (`needs_times`).
    """

    ranges: ClassVar[Ranges] = {"seed": SEED}
    """Valid values of each parameter; boolean parameters are left out."""
    needs_times: ClassVar[bool]
    """Whether the attack uses times. Without times it would be a different, weaker attack."""
    uses_counter: ClassVar[bool] = False
    """Whether the attack uses cleartext counters (`Sequences.counts`); others reject them."""
    revision: ClassVar[int] = 0
    """Version of the attack's predictions, part of the name of a stored result.

    It is increased when the same parameters begin to give other predictions; results of the
    previous revision are then no longer found.
    """

    classes_: Labels
    counted_: bool = False
    """Whether the training set had counters."""

    def fit(
        self,
        X: Observed,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        validation: Validation | None = None,
        on_epoch: OnEpoch | None = None,
        unfinished: Unfinished | None = None,
    ) -> Self:
        """Trains the attack.

        Args:
            X: the training set: `Sequences`, `Traces`, a list of traces (`sequences_of`), or a
                table (n, packets) in WFlib's form (`from_rows`).
            y: (n,) labels of any sortable type; numeric labels must be whole numbers.
            groups: (n,) load IDs. If the attack divides the training set, for validation or
                cross-validation, all samples of a load stay in the same part.
            validation: traces and labels used only to choose epochs or parameters.
            on_epoch: called after each epoch of a network; other attacks never call it.
            unfinished: where a network's training state is saved regularly. If the same call was
                interrupted before, training resumes from the saved state.

        Raises:
            AttackError: if a parameter is out of its range, lengths differ, the validation set is
                empty, there are fewer than two classes, or `X` has counters that the attack cannot
                use.
            ValueError: from scikit-learn, if a table contains anything but finite numbers.
        """
        self.check_parameters()
        if y is None:
            # scikit-learn's estimator checks look for this wording.
            problem = "requires y to be passed, but the target y is None"
            raise AttackError(f"{type(self).__name__} {problem}")
        seen = self._taken(X, learning=True)
        self.classes_, codes = np.unique(_targets(seen, y), return_inverse=True)
        if self.classes_.size < 2:
            found = "1 class" if self.classes_.size else "none"
            raise AttackError(f"an attack needs two classes or more, and y has {found}")
        if seen.counts is not None and not self.uses_counter:
            raise AttackError(
                f"{type(self).__name__} cannot use packet counters: leave counts out of X, or "
                "use another attack"
            )
        self.counted_ = seen.counts is not None
        grouping = None if groups is None else _labels_for(seen, groups, "groups")
        held_out = None if validation is None else self._held_out(*validation)
        self._fit(Task(seen, codes.astype(np.int64), grouping, held_out, on_epoch, unfinished))
        return self

    def check_parameters(self) -> None:
        """Rejects parameters of the wrong type or out of their range.

        Construction only stores parameters, as scikit-learn requires.

        Raises:
            AttackError: with the parameter's name, its value and the values that are valid.
        """
        defaults = type(self)().get_params(deep=False)
        for name, value in self.get_params(deep=False).items():
            if not alike(value, defaults[name]):
                raise AttackError(
                    f"{name} = {value!r} has the wrong type: expected a value like its default, "
                    f"{defaults[name]!r}"
                )
            if name in self.ranges and value not in self.ranges[name]:
                raise AttackError(f"{name} = {value!r} is not {self.ranges[name]}")

    def _check_counts(self, X: Sequences) -> None:
        """Rejects `X` if it has packet counters and the training set had none, or the reverse."""
        if (X.counts is not None) != self.counted_:
            trained, given = ("with", "without") if self.counted_ else ("without", "with")
            raise AttackError(
                f"the attack was trained {trained} packet counters, but these sequences come "
                f"{given} them"
            )

    @abstractmethod
    def _fit(self, task: Task) -> None:
        """Learns from a checked training set."""

    @abstractmethod
    def _probabilities(self, X: Sequences) -> Floats:
        """Returns class probabilities (n, classes) of checked sequences; called after `_fit`."""

    def predict_proba(self, X: Observed) -> Floats:
        """Returns class probabilities (n, classes), columns in the order of `classes_`.

        Raises:
            NotFittedError: before `fit`.
            AttackError: if `X` cannot be used; or if it has counters and the training set had
                none, or the reverse.
        """
        check_is_fitted(self, "classes_")
        seen = self._taken(X, learning=False)
        self._check_counts(seen)
        return self._probabilities(seen)

    def predict(self, X: Observed) -> Labels:
        """Returns the most probable labels (n,); ties go to the first in `classes_`."""
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
        """Reads a file that `save` wrote. The file is a pickle: load only files that you trust.

        Raises:
            AttackError: if the file is not a saved attack, or holds another attack.
        """
        content = _read(path)
        if content.get("attack") != cls.__name__:
            raise AttackError(
                f"{path}: this file contains the attack {content.get('attack')}, not {cls.__name__}"
            )
        attack = cls(**content["parameters"])
        for name, value in content["learnt"].items():
            setattr(attack, name, value)
        return attack

    def _taken(self, X: Observed, *, learning: bool) -> Sequences:
        """Converts `X` to sequences.

        If `X` is a table, its width is stored with `learning`; otherwise it must have this width.
        """
        if learning:
            self.__dict__.pop("n_features_in_", None)
        seen = sequences_of(X)
        if seen is None:
            seen = from_rows(validate_data(self, X, reset=learning, dtype=np.float64))
        return seen

    def _held_out(self, X: Observed, y: ArrayLike) -> tuple[Sequences, Ints]:
        seen = self._taken(X, learning=False) if len(X) else None
        if seen is None or len(seen) == 0:
            raise AttackError("the validation set is empty: give it at least one load")
        return seen, self._codes(seen, y)

    def _codes(self, X: Sequences, y: ArrayLike) -> Ints:
        """Returns the code of each label (n,), `UNKNOWN` for labels that `classes_` lacks."""
        labels = _labels_for(X, y, "validation labels")
        places = np.searchsorted(self.classes_, labels).clip(max=self.classes_.size - 1)
        return np.where(self.classes_[places] == labels, places, UNKNOWN).astype(np.int64)


def random_state(seed: int) -> int:
    """Converts a seed to scikit-learn's range: seeds from 2^32 on are mixed into 32 bits."""
    return seed if seed < 2**32 else int(np.random.SeedSequence(seed).generate_state(1)[0])


def _targets(X: Sequences, y: ArrayLike) -> Labels:
    """Returns the checked class labels (n,). A column (n, 1) is flattened, with a warning."""
    given = np.asarray(y)
    labels = _labels_for(X, column_or_1d(given, warn=True) if given.ndim == 2 else given, "y")
    try:
        assert_all_finite(labels, input_name="y")
    except ValueError as error:
        raise AttackError(str(error)) from error
    if labels.dtype.kind == "f" and (labels != np.floor(labels)).any():
        raise AttackError("y: Unknown label type: continuous; classes are whole numbers or texts")
    return labels


def _labels_for(X: Sequences, y: ArrayLike, name: str) -> Labels:
    labels = np.asarray(y)
    if labels.shape != (len(X),):
        raise AttackError(f"{name}: the shape is {labels.shape}, but there are {len(X)} sequences")
    return labels


def _is_learnt(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        content = joblib.load(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # damaged pickles can raise almost anything
        raise AttackError(f"{path}: not a saved attack ({error})") from error
    parts = {"attack", "parameters", "learnt"}
    if not isinstance(content, dict) or content.get("format") != FILE_FORMAT or parts - {*content}:
        raise AttackError(f"{path}: not a saved attack of format {FILE_FORMAT}")
    return content
