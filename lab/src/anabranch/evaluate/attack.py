"""Attacks by name, and the one that uses the path of each packet."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from anabranch import _core
from anabranch.attacks import ATTACKS, Attack, AttackError, Sequences, Task
from anabranch.attacks.base import Floats
from anabranch.attacks.features import kfp_features
from anabranch.attacks.forest import THREADS, SmallForest
from anabranch.attacks.network import NetworkAttack
from anabranch.attacks.ranges import COUNT, Range, Ranges
from anabranch.nets import require_jax
from anabranch.observers import PathSequences, SettingError, unknown
from anabranch.ragged import offsets_of


class PathForest(Attack):
    """k-FP's features of all packets seen, then of each watched path alone, in a random forest.

    For observers of several paths: paths are ordered by their packets, most first, since their
    numbers mean nothing from load to load. Packets without a path count as one path's.

    Attributes:
        forest_: the trees.

    Args:
        paths: how many paths have features of their own; with 0 it is k-FP.
        trees: in the forest.
        leaf_size: least training loads in a leaf.
        jobs: threads that grow trees; the result does not depend on it.
    """

    ranges: ClassVar[Ranges] = Attack.ranges | {
        "paths": Range(0, _core.MOST_PATHS),
        "trees": COUNT,
        "leaf_size": COUNT,
        "jobs": THREADS,
    }
    needs_times = True
    uses_counter = True

    forest_: SmallForest

    def __init__(
        self, *, paths: int = 3, trees: int = 200, leaf_size: int = 1, jobs: int = 1, seed: int = 0
    ) -> None:
        self.paths = paths
        self.trees = trees
        self.leaf_size = leaf_size
        self.jobs = jobs
        self.seed = seed

    def _probabilities(self, X: Sequences) -> Floats:
        """Class probabilities (n, classes)."""
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
        ranked = _ranked_paths(X)
        alone = [kfp_features(_of_rank(X, ranked, rank)) for rank in range(self.paths)]
        return np.hstack([kfp_features(X), *alone])


TABLE: Final[Mapping[str, type[Attack]]] = MappingProxyType(
    {**ATTACKS, "k-fp-paths": PathForest},
)
"""Every attack by its name."""


def make(name: str, parameters: Mapping[str, Any], seed: int) -> Attack:
    """An attack, not yet fitted.

    Raises:
        SettingError: if there is no such attack, it has no such parameter, or one is out of range.
    """
    if name not in TABLE:
        raise SettingError(unknown("attack", name, TABLE))
    known = TABLE[name]().get_params(deep=False)
    for key in parameters:
        if key not in known:
            raise SettingError(unknown(f"parameter of {name}", key, known))
    attack = TABLE[name](**({"seed": seed} | dict(parameters)))
    try:
        attack.check_parameters()
    except AttackError as error:
        raise SettingError(f"{name}: {error}") from error
    return attack


def refuse_counter(name: str) -> None:
    """Refuses to show counters to an attack that cannot use them.

    Raises:
        SettingError: if it is none that can, which it names.
    """
    if not TABLE[name].uses_counter:
        able = ", ".join(each for each, attack in TABLE.items() if attack.uses_counter)
        raise SettingError(f"observer: {name} cannot use the counter; these can: {able}")


def require(name: str) -> None:
    """Asks for the libraries of an attack, before any work is done.

    Raises:
        MissingExtraError: if it is a network and JAX is not installed.
    """
    if issubclass(TABLE[name], NetworkAttack):
        require_jax()


def _ranked_paths(X: Sequences) -> Floats:
    """The rank of each packet's path in its sequence, from 0: the most packets, then the number."""
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
