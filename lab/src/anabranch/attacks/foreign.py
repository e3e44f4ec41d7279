"""Adapter that turns a third-party estimator into an attack."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from anabranch.plugins import describe

from .base import Attack, AttackError, Floats, Labels, Sequences, Task, random_state
from .ranges import Ranges

SEEDS = ("seed", "random_state")
"""Names of parameters that an evaluation sets to its seed, unless the user gives them."""


def attack_class(thing: Any, name: str) -> type[Attack]:
    """Returns a class of attacks that use an estimator; returns a subclass of `Attack` unchanged.

    Args:
        thing: a class of estimators, a function without required arguments that creates an
            estimator, or an estimator. The parameters of an estimator become the defaults. The
            estimator's `fit` receives `Sequences` as `X`, and also `groups` and `validation` if it
            has these parameters. Its attributes `needs_times` (default True), `uses_counter`
            (default False) and `revision` (default 0) mean the same as in `Attack`.
        name: name of the estimator in error messages.

    Raises:
        AttackError: if `thing` is none of these, or cannot be created.
    """
    if isinstance(thing, type) and issubclass(thing, Attack):
        return thing
    if isinstance(thing, type) or not callable(thing):
        _check(thing, name)
    make = thing if callable(thing) else lambda: clone(thing)
    try:
        usual = make()
    except Exception as error:
        raise AttackError(f"{name}: it cannot be created without parameters: {error}") from error
    _check(usual, name)
    own = {
        "make": staticmethod(make),
        "name": name,
        "needs_times": bool(getattr(usual, "needs_times", True)),
        "uses_counter": bool(getattr(usual, "uses_counter", False)),
        "revision": int(getattr(usual, "revision", 0)),
    }
    return type("ForeignAttack", (_Foreign,), own)


def _check(thing: Any, name: str) -> None:
    for wanted in ("fit", "predict", "get_params"):
        if not hasattr(thing, wanted):
            raise AttackError(f"{name}: it is not a scikit-learn estimator: it has no {wanted}")


class _Foreign(Attack):
    """Adapter that passes calls on to an estimator and checks its results.

    Attributes:
        estimator_: the fitted estimator.
    """

    ranges: ClassVar[Ranges] = {}
    make: ClassVar[Callable[[], Any]]
    name: ClassVar[str]

    estimator_: Any

    def __init__(self, **parameters: Any) -> None:
        self.estimator = type(self).make()
        self.set_params(**parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters of the estimator."""
        found: dict[str, Any] = self.estimator.get_params(deep=deep)
        return found

    def set_params(self, **parameters: Any) -> Self:
        """Sets parameters of the estimator.

        Raises:
            AttackError: if the estimator rejects a parameter.
        """
        for key in SEEDS:
            if isinstance(parameters.get(key), int):
                parameters[key] = random_state(parameters[key])
        try:
            self.estimator.set_params(**parameters)
        except (TypeError, ValueError) as error:
            raise AttackError(f"{self.name}: {error}") from error
        return self

    def check_parameters(self) -> None:
        """Does nothing: the `fit` of the estimator checks its parameters."""

    def _fit(self, task: Task) -> None:
        labels, takes = self.classes_[task.codes], self._takes()
        further: dict[str, Any] = {}
        if "groups" in takes:
            further["groups"] = task.groups
        if "validation" in takes and task.validation is not None:
            held_out, codes = task.validation
            known = codes >= 0
            further["validation"] = (held_out[known], self.classes_[codes[known]])
        fitted = clone(self.estimator)
        self._own(lambda: fitted.fit(task.X, labels, **further))
        self.estimator_ = fitted

    def _takes(self) -> set[str]:
        return set(inspect.signature(self.estimator.fit).parameters)

    def _probabilities(self, X: Sequences) -> Floats:
        if not len(X):
            return np.zeros((0, self.classes_.size))
        if not hasattr(self.estimator_, "predict_proba"):
            guesses = np.asarray(self._own(lambda: self.estimator_.predict(X)))
            return np.asarray(guesses[:, None] == self.classes_[None, :], np.float64)
        rows = np.asarray(self._own(lambda: self.estimator_.predict_proba(X)), np.float64)
        own: Labels = np.asarray(getattr(self.estimator_, "classes_", self.classes_))
        if not np.array_equal(own, self.classes_):
            raise AttackError(
                f"{self.name}: classes_ are not the sorted labels of the training set"
            )
        if rows.shape != (len(X), own.size):
            wanted = (len(X), own.size)
            raise AttackError(
                f"{self.name}: predict_proba returned the shape {rows.shape}; expected {wanted}"
            )
        if not np.isfinite(rows).all():
            raise AttackError(
                f"{self.name}: predict_proba returned values that are not finite numbers"
            )
        return rows

    def _own(self, call: Callable[[], Any]) -> Any:
        """Runs code of the third-party estimator; converts its exceptions to `AttackError`."""
        try:
            return call()
        except Exception as error:
            file = inspect.getsourcefile(type(self.estimator))
            where = describe(error, None if file is None else Path(file))
            raise AttackError(f"{self.name}: {where}") from error
