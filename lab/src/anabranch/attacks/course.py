"""Random forests over a load's cumulative packet counts, and over its totals alone."""

from __future__ import annotations

from typing import ClassVar

from .base import Attack, Floats, Sequences, Task
from .features import course_features, total_features
from .forest import THREADS, SmallForest
from .ranges import COUNT, Range, Ranges


class CourseForest(Attack):
    """A random forest over cumulative counts of packets at fixed moments, totals and duration.

    This is not a published attack. It trains in minutes, and uses cleartext counters as directly as
    possible: as the number of packets that all paths had carried at each moment
    (`course_features`).

    Attributes:
        forest_: the fitted forest.

    Args:
        moments: number of moments at which packets are counted; they are closer together at the
            start.
        window: seconds from the first packet to the last moment.
        trees: number of trees.
        leaf_size: minimum training loads in a leaf.
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
        """Returns class probabilities (n, classes): class shares at the leaves."""
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
    """A random forest over the packets and bytes of each direction: a load's size alone.

    With counters, it also uses the totals of all paths that these reveal. It ignores order and
    time. Its accuracy therefore shows how much of another attack's accuracy comes from page size.

    Attributes:
        forest_: the fitted forest.

    Args:
        trees: number of trees.
        leaf_size: minimum training loads in a leaf.
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
        """Returns class probabilities (n, classes): class shares at the leaves."""
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
