"""A plain random forest over the course of a load, and what its totals alone tell."""

from __future__ import annotations

from typing import ClassVar

from .base import Attack, Floats, Sequences, Task
from .features import course_features, total_features
from .forest import THREADS, SmallForest
from .ranges import COUNT, Range, Ranges


class CourseForest(Attack):
    """A random forest over cumulative counts of packets at fixed moments, totals and duration.

    No published attack: a cheap one that minutes suffice for, and that looks at counters in clear
    as nearly as possible, at how many packets all paths had carried when (`course_features`).

    Attributes:
        forest_: the trees.

    Args:
        moments: at which packets are counted, closer together at first.
        window: seconds until the last one.
        trees: in the forest.
        leaf_size: least training loads in a leaf.
        jobs: threads that grow trees; the result does not depend on it.
    """

    ranges: ClassVar[Ranges] = Attack.ranges | {
        "moments": Range(1, 10_000),
        "window": Range(1e-3, 1e6),
        "trees": COUNT,
        "leaf_size": COUNT,
        "jobs": THREADS,
    }
    needs_times = True
    uses_counter = True

    forest_: SmallForest

    def __init__(
        self,
        *,
        moments: int = 40,
        window: float = 60.0,
        trees: int = 120,
        leaf_size: int = 1,
        jobs: int = 1,
        seed: int = 0,
    ) -> None:
        self.moments = moments
        self.window = window
        self.trees = trees
        self.leaf_size = leaf_size
        self.jobs = jobs
        self.seed = seed

    def _probabilities(self, X: Sequences) -> Floats:
        """Class probabilities (n, classes): class shares at the leaves."""
        return self.forest_.predict_proba(self._features(X))

    def _fit(self, task: Task) -> None:
        self.forest_ = SmallForest.grow(
            self._features(task.X),
            task.codes,
            self.trees,
            self.seed,
            min_samples_leaf=self.leaf_size,
            n_jobs=self.jobs,
        )

    def _features(self, X: Sequences) -> Floats:
        return course_features(X, self.moments, self.window)


class Size(Attack):
    """What the size of a load tells alone: a forest over packets and bytes of each direction.

    With counters, over what they tell of all paths too. Order and time play no part, so that a
    number of it beside another attack's says how much of that one is the page's size.

    Attributes:
        forest_: the trees.

    Args:
        trees: in the forest.
        leaf_size: least training loads in a leaf.
        jobs: threads that grow trees; the result does not depend on it.
    """

    ranges: ClassVar[Ranges] = Attack.ranges | {
        "trees": COUNT,
        "leaf_size": COUNT,
        "jobs": THREADS,
    }
    needs_times = False
    uses_counter = True

    forest_: SmallForest

    def __init__(
        self, *, trees: int = 120, leaf_size: int = 1, jobs: int = 1, seed: int = 0
    ) -> None:
        self.trees = trees
        self.leaf_size = leaf_size
        self.jobs = jobs
        self.seed = seed

    def _probabilities(self, X: Sequences) -> Floats:
        """Class probabilities (n, classes): class shares at the leaves."""
        return self.forest_.predict_proba(total_features(X))

    def _fit(self, task: Task) -> None:
        self.forest_ = SmallForest.grow(
            total_features(task.X),
            task.codes,
            self.trees,
            self.seed,
            min_samples_leaf=self.leaf_size,
            n_jobs=self.jobs,
        )
