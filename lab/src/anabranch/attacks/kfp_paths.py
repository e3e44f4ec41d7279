"""The attack k-FP with features of each path on its own."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anabranch import _core
from anabranch.jagged import offsets_of

from .base import Floats, Sequences
from .features import kfp_features
from .forest import ForestAttack
from .ranges import Range, Ranges
from .sequences import PathSequences


class PathForest(ForestAttack):
    """A random forest over k-FP's features of all packets seen and of each watched path alone.

    It is for observers of several paths. Path numbers have no meaning across loads, so the paths
    of a load are ordered by their number of packets, most first. Packets without a path count as
    packets of a single path.

    Attributes:
        forest_: the fitted forest.

    Args:
        paths: number of paths with features of their own; with 0 the attack is k-FP.
        trees: number of trees.
        leaf_size: minimum training loads in a leaf.
        jobs: threads that grow trees; the result does not depend on it.
    """

    ranges: ClassVar[Ranges] = ForestAttack.ranges | {
        "paths": Range(0, _core.MOST_PATHS),
    }
    needs_times = True

    def __init__(
        self, *, paths: int = 3, trees: int = 200, leaf_size: int = 1, jobs: int = 1, seed: int = 0
    ) -> None:
        self.paths = paths
        self.trees = trees
        self.leaf_size = leaf_size
        self.jobs = jobs
        self.seed = seed

    def _features(self, X: Sequences) -> Floats:
        ranked = _ranked_paths(X)
        alone = [kfp_features(_of_rank(X, ranked, rank)) for rank in range(self.paths)]
        return np.hstack([kfp_features(X), *alone])


def _ranked_paths(X: Sequences) -> Floats:
    """Returns the rank of each packet's path in its sequence, from 0: by packets, then number."""
    paths = X.paths.astype(np.int64) + 1 if isinstance(X, PathSequences) else X.owners * 0
    width = int(paths.max(initial=0)) + 1
    counts = np.bincount(X.owners * width + paths, minlength=len(X) * width)
    counts = counts.reshape(len(X), width)
    order = np.argsort(-counts, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(width)[None, :].repeat(len(X), axis=0), axis=1)
    return np.asarray(ranks[X.owners, paths])


def _of_rank(X: Sequences, ranks: Floats, rank: int) -> Sequences:
    chosen = ranks == rank
    counts = np.bincount(X.owners[chosen], minlength=len(X))
    return Sequences(X.times[chosen], X.sizes[chosen], offsets_of(counts))
