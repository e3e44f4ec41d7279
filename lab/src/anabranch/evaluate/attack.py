"""Attacks by name, `PathForest`, which uses the path of each packet, and third-party attacks.

Names of third-party attacks contain a colon; names of built-in ones do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from anabranch import _core, outside
from anabranch.attacks import ALIASES, ATTACKS, Attack, AttackError, Sequences, Task
from anabranch.attacks.base import Floats
from anabranch.attacks.features import kfp_features
from anabranch.attacks.foreign import SEEDS, attack_class
from anabranch.attacks.forest import THREADS, SmallForest
from anabranch.attacks.network import NetworkAttack
from anabranch.attacks.ranges import COUNT, Range, Ranges
from anabranch.nets import require_jax
from anabranch.observers import PathSequences, SettingError, unknown
from anabranch.ragged import offsets_of


class PathForest(Attack):
    """A random forest over k-FP's features of all packets seen and of each watched path alone.

    For observers of several paths. Path numbers mean nothing from load to load, so paths are
    ordered by their number of packets, most first. Packets without a path count as those of one
    path.

    Attributes:
        forest_: the fitted forest.

    Args:
        paths: number of paths with features of their own; with 0 it is k-FP.
        trees: number of trees.
        leaf_size: minimum training loads in a leaf.
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
        """Returns class probabilities (n, classes)."""
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
"""Built-in attack classes by name."""


def is_foreign(name: str) -> bool:
    """Returns whether a name is that of a third-party attack, known or not."""
    return ":" in name


def known(name: str) -> type[Attack] | None:
    """Returns the class of an attack; None for a third-party attack that was not found.

    Raises:
        SettingError: if a name without a colon is not that of a built-in attack.
    """
    if not is_foreign(name):
        if name not in TABLE:
            installed = sorted(_named(each) for each in outside.names("attacks"))
            raise SettingError(unknown("attack", name, [*TABLE, *ALIASES, *installed]))
        return TABLE[name]
    found = outside.find("attacks", name.removeprefix(PACKAGED))
    return None if found is None else attack_class(found.thing, name)


def class_of(name: str) -> type[Attack]:
    """Returns the class of an attack.

    Raises:
        SettingError: if there is no such attack, or a third-party attack was not found.
    """
    found = known(name)
    if found is None:
        raise SettingError(
            f"attack: {name} is not part of this program and was not found: give its file as "
            "FILE.py:Class, or install its package"
        )
    return found


def origin(name: str) -> Mapping[str, str]:
    """Returns facts that identify the version of a third-party attack; empty for built-in ones."""
    if not is_foreign(name):
        return {}
    found = outside.find("attacks", name.removeprefix(PACKAGED))
    return {} if found is None else found.origin


PACKAGED = "package:"
"""Prefix of the name of an entry point in settings and results."""


def name_of(text: str, folder: Path = Path()) -> str:
    """Returns the name of an attack for settings; loads the attack if it is in a file.

    Args:
        text: a built-in name or its alias, the name of an entry point, or `FILE.py:Class`.
        folder: folder at which a relative path of the file starts.

    Raises:
        OutsideError: if the file or class cannot be loaded.
        AttackError: if the class is not an estimator.
    """
    if outside.file_and_class(text) is not None:
        name, found = outside.from_file(text, folder)
        outside.add("attacks", name, found)
        attack_class(found.thing, name)
        return name
    if text not in TABLE and text in outside.names("attacks"):
        return _named(text)
    return ALIASES.get(text, text)


def add(estimator: Any) -> str:
    """Registers an estimator, or a class of estimators, in this process.

    Returns:
        its name for `Spec.attack`.

    Raises:
        AttackError: if it is not an estimator.
    """
    thing = estimator if isinstance(estimator, type) else type(estimator)
    name = f"{thing.__module__}:{thing.__qualname__}"
    attack_class(estimator, name)
    outside.add("attacks", name, outside.Found(estimator))
    return name


def _named(point: str) -> str:
    return point if is_foreign(point) else f"{PACKAGED}{point}"


def make(name: str, parameters: Mapping[str, Any], seed: int) -> Attack:
    """Creates an attack that is not yet fitted.

    Raises:
        SettingError: if there is no such attack, it has no such parameter, or one is out of range.
    """
    kind = class_of(name)
    takes = kind().get_params(deep=False)
    for key in parameters:
        if key not in takes:
            raise SettingError(unknown(f"parameter of {name}", key, takes))
    seeds = {key: seed for key in SEEDS if key in takes}
    attack = kind(**(seeds | dict(parameters)))
    try:
        attack.check_parameters()
    except AttackError as error:
        raise SettingError(f"{name}: {error}") from error
    return attack


def refuse_counter(name: str) -> None:
    """Rejects an attack that cannot use counters.

    Raises:
        SettingError: if it cannot; the message names the attacks that can.
    """
    if not class_of(name).uses_counter:
        able = ", ".join(each for each, attack in TABLE.items() if attack.uses_counter)
        raise SettingError(
            f"observer: the attack {name} cannot use the packet counter; these attacks can: {able}"
        )


def require(name: str) -> None:
    """Checks that an attack and its libraries are available, before any work is done.

    Raises:
        SettingError: if there is no such attack, or a third-party attack was not found.
        MissingExtraError: if it is a network and JAX is not installed.
    """
    if issubclass(class_of(name), NetworkAttack):
        require_jax()


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
