"""A random forest that keeps only what prediction needs.

scikit-learn stores a probability for each class at every node: with 98 classes and a hundred
thousand nodes, this takes 80 MB for each tree. This module grows a few trees at a time, and keeps
only the decisions and the classes at the leaves of each tree (a few MB). Saved files are therefore
small too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.ensemble import RandomForestClassifier

from .base import Attack, Floats, Ints, Sequences, Task
from .ranges import COUNT, Range, Ranges

AT_ONCE = 8
"""Trees that scikit-learn grows at a time, before they are reduced."""

THREADS = Range(1, 1024)
"""Range of the threads that grow trees. More than `AT_ONCE` threads bring no benefit."""

LEAF = -1


@dataclass(frozen=True, slots=True)
class SmallTree:
    """The decisions of one tree of a random forest.

    Attributes:
        feature: int32 (nodes,), index of the feature that is compared; `LEAF` at a leaf.
        threshold: float64 (nodes,); values up to it go left.
        left, right: int32 (nodes,), child nodes.
        leaf: int32 (nodes,), number of the leaf, or -1.
        shares: float32 (leaves, classes), sparse: class shares at each leaf.
    """

    feature: NDArray[np.int32]
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    leaf: NDArray[np.int32]
    shares: csr_array

    def apply(self, features: NDArray[np.float32]) -> NDArray[np.int32]:
        """Returns the leaf (n,) in which each row of `features` ends."""
        node = np.zeros(features.shape[0], dtype=np.int32)
        active = np.flatnonzero(self.feature[node] != LEAF)
        while active.size:
            here = node[active]
            left = features[active, self.feature[here]] <= self.threshold[here]
            node[active] = np.where(left, self.left[here], self.right[here])
            active = active[self.feature[node[active]] != LEAF]
        return self.leaf[node]


@dataclass(frozen=True, slots=True)
class SmallForest:
    """Trees of a forest, with the number of classes."""

    trees: list[SmallTree]
    classes: int

    @classmethod
    def grow(
        cls, features: Floats, codes: Ints, trees: int, seed: int, **parameters: Any
    ) -> SmallForest:
        """Grows a forest.

        Args:
            features: (n, features).
            codes: classes (n,), from 0, each of them present.
            trees: number of trees.
            seed: seed of the bootstraps and of the features tried at each node.
            **parameters: passed on to scikit-learn's `RandomForestClassifier`.
        """
        grown: list[SmallTree] = []
        for count, state in _portions(trees, seed):
            forest = RandomForestClassifier(count, random_state=state, **parameters)
            forest.fit(features.astype(np.float32), codes)
            grown += [_small(estimator.tree_) for estimator in forest.estimators_]
        return cls(grown, int(codes.max()) + 1)

    def predict_proba(self, features: Floats) -> Floats:
        """Returns class shares (n, classes) at the leaves, averaged over trees; rows sum to 1."""
        rows = features.astype(np.float32)
        total = np.zeros((rows.shape[0], self.classes))
        for tree in self.trees:
            total += tree.shares[tree.apply(rows)].toarray()
        mean = total / len(self.trees)
        return np.asarray(mean / mean.sum(axis=1, keepdims=True))  # leaves hold 32-bit floats

    def leaves(self, features: Floats) -> NDArray[np.int32]:
        """Returns int32 (n, trees): the leaf in each tree, k-FP's fingerprint of a load."""
        rows = features.astype(np.float32)
        return np.column_stack([tree.apply(rows) for tree in self.trees])


class ForestAttack(Attack):
    """Base class of the attacks that train one random forest on features of a load.

    A subclass implements `_features(X)`, and `__init__` with at least these parameters.

    Attributes:
        forest_: the fitted forest.

    Args:
        trees: number of trees.
        leaf_size: minimum training loads in a leaf.
        jobs: threads that grow trees; the result does not depend on it.
        seed: seed of the forest.
    """

    ranges: ClassVar[Ranges] = Attack.ranges | {
        "trees": COUNT,
        "leaf_size": COUNT,
        "jobs": THREADS,
    }
    uses_counter = True

    trees: int
    leaf_size: int
    jobs: int
    seed: int

    forest_: SmallForest

    @abstractmethod
    def _features(self, X: Sequences) -> Floats:
        """Returns the features (n, features) of each load."""

    def _fit(self, task: Task) -> None:
        self._grow(self._features(task.X), task.codes)

    def _grow(self, features: Floats, codes: Ints) -> None:
        self.forest_ = SmallForest.grow(
            features,
            codes,
            self.trees,
            self.seed,
            min_samples_leaf=self.leaf_size,
            n_jobs=self.jobs,
        )

    def _probabilities(self, X: Sequences) -> Floats:
        """Returns class probabilities (n, classes): class shares at the leaves."""
        return self.forest_.predict_proba(self._features(X))


def _portions(trees: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yields the number of trees and a random state for each portion of a forest.

    scikit-learn grows one portion of at most `AT_ONCE` trees at a time. The random states of the
    portions are independent.
    """
    states = np.random.SeedSequence(seed).generate_state(-(-trees // AT_ONCE))
    for number, state in enumerate(states):
        yield min(AT_ONCE, trees - number * AT_ONCE), int(state)


def _small(tree: Any) -> SmallTree:
    is_leaf = tree.children_left == tree.children_right
    counts = np.cumsum(is_leaf) - 1
    return SmallTree(
        feature=np.where(is_leaf, LEAF, tree.feature).astype(np.int32),
        threshold=tree.threshold.copy(),
        left=tree.children_left.astype(np.int32),
        right=tree.children_right.astype(np.int32),
        leaf=np.where(is_leaf, counts, -1).astype(np.int32),
        shares=csr_array(_normalised(tree.value[is_leaf, 0, :])),
    )


def _normalised(values: Floats) -> NDArray[np.float32]:
    shares: Floats = values / values.sum(axis=1, keepdims=True)
    return shares.astype(np.float32)
