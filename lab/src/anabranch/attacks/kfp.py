"""k-fingerprinting."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from .base import Attack, Floats, Ints, Sequences, Task
from .features import kfp_features
from .forest import THREADS, SmallForest
from .ranges import COUNT, Choice, Ranges


class KFingerprinting(Attack):
    """k-FP (Hayes and Danezis, USENIX Security 2016): a random forest over hand-made features.

    `decision="forest"` is the paper's closed-world classifier, the forest's own vote.
    `decision="neighbours"` is its open-world one: a load's fingerprint is the list of
    leaves it falls in, and the `k` training loads with the most equal leaves vote. The paper's
    rule, monitored only where all `k` agree, is a threshold of 1 on the probabilities.

    Departures: 200 trees where the authors' program grows 1,000, to bound the time that large sets
    of re-splits take (`trees=1000` is the published setting); features as `features.kfp` says, and
    some more where packets show counters, which the paper's do not.

    Attributes:
        forest_: the trees.
        fingerprints_: int32 (n, trees), leaves of the training loads; `neighbours` only.
        codes_: (n,), their classes; `neighbours` only.

    Args:
        trees: trees in the forest; the published number is 1,000.
        k: neighbours that vote.
        leaf_size: least training loads in a leaf; larger is faster on re-split data.
        jobs: threads that grow trees; the result does not depend on it.
    """

    ranges: ClassVar[Ranges] = Attack.ranges | {
        "trees": COUNT,
        "decision": Choice(("forest", "neighbours")),
        "k": COUNT,
        "leaf_size": COUNT,
        "jobs": THREADS,
    }
    needs_times = True
    uses_counter = True

    forest_: SmallForest
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
        """Class probabilities (n, classes): leaf shares, or the neighbours' votes."""
        features = kfp_features(X)
        if self.decision == "forest":
            return self.forest_.predict_proba(features)
        rows = [self._votes(row) for row in self.forest_.leaves(features)]
        return np.array(rows).reshape(-1, self.classes_.size)

    def _fit(self, task: Task) -> None:
        features = kfp_features(task.X)
        self.forest_ = SmallForest.grow(
            features,
            task.codes,
            self.trees,
            self.seed,
            min_samples_leaf=self.leaf_size,
            n_jobs=self.jobs,
        )
        if self.decision == "neighbours":
            self.fingerprints_ = self.forest_.leaves(features)
            self.codes_ = task.codes

    def _votes(self, fingerprint: NDArray[np.int32]) -> Floats:
        """Of equal distances the earlier training load is nearer, so that runs repeat."""
        distance = (self.fingerprints_ != fingerprint).sum(axis=1)
        nearest = np.argsort(distance, kind="stable")[: self.k]
        votes = np.bincount(self.codes_[nearest], minlength=self.classes_.size)
        return np.asarray(votes / nearest.size)
