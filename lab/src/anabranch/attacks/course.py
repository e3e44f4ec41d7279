"""Random forests over a page load's cumulative packet counts, and over its totals alone."""

from __future__ import annotations

from typing import ClassVar

from .base import Floats, Sequences
from .features import course_features, total_features
from .forest import ForestAttack
from .ranges import Range, Ranges


class CourseForest(ForestAttack):
    """A random forest over totals, duration, and cumulative packet counts at fixed moments.

    This is not a published attack. It trains in minutes. From cleartext counters, it takes the
    number of packets that all paths had carried at each moment (`course_features`).

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

    ranges: ClassVar[Ranges] = ForestAttack.ranges | {
        "moments": Range(1, 10_000),
        "window": Range(1e-3, 1e6),
    }
    needs_times = True

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

    def _features(self, X: Sequences) -> Floats:
        return course_features(X, self.moments, self.window)


class Size(ForestAttack):
    """A random forest over the packets and bytes of each direction: a load's size alone.

    With cleartext counters, it also uses the number of packets on all paths, as the counters
    show it. It ignores order and time. Its accuracy therefore shows how much of another attack's
    accuracy comes from page size.

    Attributes:
        forest_: the fitted forest.

    Args:
        trees: number of trees.
        leaf_size: minimum training loads in a leaf.
        jobs: threads that grow trees; the result does not depend on it.
    """

    needs_times = False

    def __init__(
        self, *, trees: int = 120, leaf_size: int = 1, jobs: int = 1, seed: int = 0
    ) -> None:
        self.trees = trees
        self.leaf_size = leaf_size
        self.jobs = jobs
        self.seed = seed

    def _features(self, X: Sequences) -> Floats:
        return total_features(X)
