"""The attack k-fingerprinting (k-FP)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from .base import Floats, Ints, Sequences, Task
from .features import kfp_features
from .forest import ForestAttack
from .ranges import COUNT, Choice, Ranges


class KFingerprinting(ForestAttack):
    """k-FP (Hayes and Danezis, USENIX Security 2016): a random forest over hand-made features.

    `decision="forest"` is the paper's closed-world classifier, the vote of the forest itself.
    `decision="neighbours"` is its open-world classifier: a load's fingerprint is the list of leaves
    in which it ends, and the `k` training loads with the most equal leaves vote. The paper's rule,
    monitored only if all `k` agree, corresponds to a threshold of 1 on the probabilities.

    Departures: The default is 200 trees to bound the training time, because each load may be in the
    training set several times, split differently. The authors' program grows 1,000 trees
    (`trees=1000`). `features.kfp` describes how the features differ. If packets show counters,
    there are additional features, which the paper does not have.

    Attributes:
        forest_: the fitted forest.
        fingerprints_: int32 (n, trees), leaves of the training loads; `neighbours` only.
        codes_: (n,), classes of the training loads; `neighbours` only.

    Args:
        trees: number of trees; the published number is 1,000.
        decision: `forest` or `neighbours`.
        k: number of neighbours that vote.
        leaf_size: minimum training loads in a leaf; larger values are faster on re-split data.
        jobs: threads that grow trees; the result does not depend on it.
    """

    ranges: ClassVar[Ranges] = ForestAttack.ranges | {
        "decision": Choice(("forest", "neighbours")),
        "k": COUNT,
    }
    needs_times = True

    fingerprints_: NDArray[np.int32]
    codes_: Ints

    def __init__(
        self,
        *,
        trees: int = 200,
        decision: Literal["forest", "neighbours"] = "forest",
        k: int = 3,
        leaf_size: int = 1,
        jobs: int = 1,
        seed: int = 0,
    ) -> None:
        self.trees = trees
        self.decision = decision
        self.k = k
        self.leaf_size = leaf_size
        self.jobs = jobs
        self.seed = seed

    def _probabilities(self, X: Sequences) -> Floats:
        """Returns class probabilities (n, classes): leaf shares, or the neighbours' votes."""
        features = self._features(X)
        if self.decision == "forest":
            return self.forest_.predict_proba(features)
        rows = [self._votes(row) for row in self.forest_.leaves(features)]
        return np.array(rows).reshape(-1, self.classes_.size)

    def _features(self, X: Sequences) -> Floats:
        return kfp_features(X)

    def _fit(self, task: Task) -> None:
        features = self._features(task.X)
        self._grow(features, task.codes)
        if self.decision == "neighbours":
            self.fingerprints_ = self.forest_.leaves(features)
            self.codes_ = task.codes

    def _votes(self, fingerprint: NDArray[np.int32]) -> Floats:
        """Returns the vote shares (classes,) of the `k` nearest training loads.

        Ties go to the earlier training load, so that runs are repeatable.
        """
        distance = (self.fingerprints_ != fingerprint).sum(axis=1)
        nearest = np.argsort(distance, kind="stable")[: self.k]
        votes = np.bincount(self.codes_[nearest], minlength=self.classes_.size)
        return np.asarray(votes / nearest.size)
