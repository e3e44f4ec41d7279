"""The attack CUMUL (Panchenko et al., NDSS 2016)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC

from .base import Attack, AttackError, Floats, Sequences, Task, random_state
from .features import cumul_features
from .ranges import COUNT, Range, Ranges

COSTS = tuple(2.0**i for i in range(11, 18, 2))
WIDTHS = tuple(2.0**i for i in range(-3, 4, 2))
FOLDS = 3
AT_ONCE = 1 << 22
"""Maximum number of decision values in memory, one for each sample and pair of classes."""


class Cumul(Attack):
    """CUMUL (Panchenko et al., NDSS 2016): a support vector machine over cumulated sizes.

    It uses 104 features, scaled to [-1, 1], and an RBF kernel. The paper searches cost and width in
    2^11..2^17 and 2^-3..2^3 by cross-validation. `search=True` does this in steps of a factor of 4:
    on `validation` if it is given, else in three folds. If `groups` are given, all samples of a
    load are in one fold. Without a search, `cost` and `width` are used as given.

    Departures: Probabilities are vote shares. For a sample within the margin of a pairwise
    classifier, both classes get a part of the vote, so that loads can be ranked in an open world.
    Predicted labels and the search follow these shares, whereas libsvm counts whole votes. Platt
    scaling is not used, because its inner folds would put sub-traces of one load on both sides.

    Attributes:
        machine_: the fitted pipeline.
        cost_, width_: the parameters used, as given or chosen by the search.

    Args:
        points: number of samples of the cumulated sizes.
        cost: penalty C of the support vector machine.
        width: gamma of the kernel.
        search: whether `fit` chooses `cost` and `width`.
    """

    ranges: ClassVar[Ranges] = Attack.ranges | {
        "points": COUNT,
        "cost": Range(1e-9, 1e9),
        "width": Range(1e-9, 1e9),
    }
    needs_times = False
    revision = 1  # earlier, probabilities were a softmax

    machine_: Pipeline
    cost_: float
    width_: float

    def __init__(
        self,
        *,
        points: int = 100,
        cost: float = 2.0**13,
        width: float = 2.0**-3,
        search: bool = False,
        seed: int = 0,
    ) -> None:
        self.points = points
        self.cost = cost
        self.width = width
        self.search = search
        self.seed = seed

    def _probabilities(self, X: Sequences) -> Floats:
        """Returns class probabilities (n, classes)."""
        if len(X) == 0:
            return np.zeros((0, self.classes_.size))
        return _shares(self.machine_, cumul_features(X, self.points))

    def _fit(self, task: Task) -> None:
        features = cumul_features(task.X, self.points)
        self.cost_, self.width_ = self.cost, self.width
        if self.search:
            pairs = [(cost, width) for cost in COSTS for width in WIDTHS]
            scores = [self._score(task, features, *pair) for pair in pairs]
            self.cost_, self.width_ = pairs[int(np.argmax(scores))]
        self.machine_ = _machine(self.cost_, self.width_).fit(features, task.codes)

    def _score(self, task: Task, features: Floats, cost: float, width: float) -> float:
        """Returns the accuracy of one pair of parameters on data that it was not trained on."""
        machine = _machine(cost, width)
        if task.validation is not None:
            held_out, codes = task.validation
            machine.fit(features, task.codes)
            return _accuracy(machine, cumul_features(held_out, self.points), codes)
        found = []
        for train, test in self._folds(task):
            machine.fit(features[train], task.codes[train])
            found.append(_accuracy(machine, features[test], task.codes[test]))
        return float(np.mean(found))

    def _folds(self, task: Task) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Returns training and test indices of the inner folds, by load if `groups` are given."""
        state = random_state(self.seed)
        folds: Any = StratifiedKFold(FOLDS, shuffle=True, random_state=state)
        if task.groups is not None:
            folds = GroupKFold(FOLDS, shuffle=True, random_state=state)
        try:
            divided = list(folds.split(task.codes, task.codes, task.groups))
        except ValueError as error:
            raise AttackError(
                f"search: too few page loads to divide them into {FOLDS} inner folds: give more "
                "loads, or cost and width without a search"
            ) from error
        if any(np.unique(task.codes[train]).size < 2 for train, _ in divided):
            raise AttackError(
                f"search: one of {FOLDS} inner folds would train on loads of only one class: give "
                "more loads, or cost and width without a search"
            )
        return divided


def votes(values: Floats, classes: int) -> Floats:
    """Returns class probabilities: the share of each class in the votes of all pairs.

    Each pair of classes has one vote. It goes to the first class if the decision value is at
    least 1, and to the second if it is at most -1. In between, within the margin, both classes get
    a part. Whole votes could not rank loads: among many classes, one nearly always wins all of its
    pairs.

    Args:
        values: float64 (n, pairs), decision values of classes 0 and 1, 0 and 2, ..., 1 and 2, ...
        classes: number of classes.

    Returns:
        float64 (n, classes).
    """
    for_first = (1 + np.clip(values, -1, 1)) / 2
    shares = np.zeros((len(values), classes))
    begin = 0
    for first in range(classes - 1):
        own = for_first[:, begin : begin + classes - 1 - first]
        shares[:, first] += own.sum(axis=1)
        shares[:, first + 1 :] += 1 - own
        begin += own.shape[1]
    return np.asarray(shares / values.shape[1])


def _shares(machine: Pipeline, features: Floats) -> Floats:
    """Returns class probabilities (n, classes that `machine` has learnt), computed in batches."""
    classes = machine.classes_.size
    rows = max(1, AT_ONCE // (classes * (classes - 1) // 2))
    parts = [np.zeros((0, classes))]
    for begin in range(0, len(features), rows):
        values = machine.decision_function(features[begin : begin + rows])
        # For exactly two classes, positive values mean the second; for more, the first of a pair.
        parts.append(votes(-values[:, None] if values.ndim == 1 else values, classes))
    return np.concatenate(parts)


def _accuracy(machine: Pipeline, features: Floats, codes: NDArray[np.int64]) -> float:
    guesses = machine.classes_[_shares(machine, features).argmax(axis=1)]
    return float((guesses == codes).mean())


def _machine(cost: float, width: float) -> Pipeline:
    return make_pipeline(
        MinMaxScaler((-1, 1)), SVC(C=cost, gamma=width, decision_function_shape="ovo")
    )
