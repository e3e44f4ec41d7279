"""Attacks by name, the one that uses the path of each packet, and those from outside.

The names of those from outside have a colon, which none of ours has.
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
"""Every attack of ours by its name."""


def is_foreign(name: str) -> bool:
    """Whether a name is one from outside, known or not."""
    return ":" in name


def known(name: str) -> type[Attack] | None:
    """The class of an attack; None if it is from outside and not there.

    Raises:
        SettingError: if none of ours has that name.
    """
    if not is_foreign(name):
        if name not in TABLE:
            installed = sorted(_named(each) for each in outside.names("attacks"))
            raise SettingError(unknown("attack", name, [*TABLE, *ALIASES, *installed]))
        return TABLE[name]
    found = outside.find("attacks", name.removeprefix(PACKAGED))
    return None if found is None else attack_class(found.thing, name)


def class_of(name: str) -> type[Attack]:
    """The same, refused where it is not there.

    Raises:
        SettingError: if there is no such attack.
    """
    found = known(name)
    if found is None:
        raise SettingError(
            f"attack: {name} is from outside and not there: give its file as FILE.py:Class, or "
            "install its package"
        )
    return found


def origin(name: str) -> Mapping[str, str]:
    """What tells an attack from outside from others of its name; nothing of ours."""
    if not is_foreign(name):
        return {}
    found = outside.find("attacks", name.removeprefix(PACKAGED))
    return {} if found is None else found.origin


PACKAGED = "package:"
"""What the name of an entry point has before it in settings and results."""


def name_of(text: str, folder: Path = Path()) -> str:
    """The name of an attack for settings, which is loaded if it is from outside.

    Args:
        text: a name of ours or its alias, of an entry point, or `FILE.py:Class`.
        folder: where a file is looked for.

    Raises:
        OutsideError: if it cannot be loaded.
        AttackError: if it is no estimator.
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
    """Makes an estimator, or a class of them, known to this process.

    Returns:
        its name for `Spec.attack`.

    Raises:
        AttackError: if it is none.
    """
    thing = estimator if isinstance(estimator, type) else type(estimator)
    name = f"{thing.__module__}:{thing.__qualname__}"
    attack_class(estimator, name)
    outside.add("attacks", name, outside.Found(estimator))
    return name


def _named(point: str) -> str:
    return point if is_foreign(point) else f"{PACKAGED}{point}"


def make(name: str, parameters: Mapping[str, Any], seed: int) -> Attack:
    """An attack, not yet fitted.

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
    """Refuses to show counters to an attack that cannot use them.

    Raises:
        SettingError: if it is none that can, which it names.
    """
    if not class_of(name).uses_counter:
        able = ", ".join(each for each, attack in TABLE.items() if attack.uses_counter)
        raise SettingError(f"observer: {name} cannot use the counter; these can: {able}")


def require(name: str) -> None:
    """Asks for an attack and its libraries, before any work is done.

    Raises:
        SettingError: if it is from outside and not there.
        MissingExtraError: if it is a network and JAX is not installed.
    """
    if issubclass(class_of(name), NetworkAttack):
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
