"""Base class of attacks by neural networks: ensembles, training and weights.

JAX is imported only when a network is built. The learnt state consists of NumPy arrays, so that a
fitted attack can be moved between processes and machines. Prediction rebuilds the network with
these arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit

from anabranch.nets import require_jax
from anabranch.nets.recipe import Recipe

from .base import Attack, AttackError, EpochReport, Floats, Ints, Sequences, Task, random_state
from .ranges import COUNT, Range, Ranges

if TYPE_CHECKING:
    from anabranch.nets.layers import Layer
    from anabranch.nets.train import Trained

Inputs = tuple[NDArray[Any], ...]


class NetworkAttack(Attack):
    """Base class of attacks by neural networks, each an ensemble of members.

    With `epochs=0` the members stay untrained.

    Attributes:
        weights_: for each member, all its arrays: first the parameters, then running statistics.
        history_: an `EpochReport` for each epoch of each member.
    """

    ranges: ClassVar[Ranges] = Attack.ranges | {
        "epochs": Range(0),
        "batch_size": COUNT,
        "learning_rate": Range(1e-9, 10.0),
    }

    members: tuple[str, ...] = ("network",)
    """Names of the networks whose probabilities are averaged."""

    seed: int
    weights_: dict[str, list[NDArray[Any]]]
    history_: list[EpochReport]

    def _probabilities(self, X: Sequences) -> Floats:
        """Returns class probabilities (n, classes): softmax, averaged over the members.

        Raises:
            AttackError: if scores are not finite numbers, because training diverged.
        """
        require_jax()
        from anabranch.nets.train import logits

        rows = [logits(self._trained(name), self._inputs(X, name)) for name in self.members]
        if not all(np.isfinite(row).all() for row in rows):
            raise AttackError(
                "training diverged (the scores are not finite numbers): lower learning_rate"
            )
        members = [_softmax(row, self.classes_.size) for row in rows]
        return np.asarray(np.mean(members, axis=0))

    def _fit(self, task: Task) -> None:
        require_jax()
        self.weights_, self.history_ = {}, []
        task = _with_validation(task, self._validation_share(), self.seed)
        self._prepare(task.X)
        for number, member in enumerate(self.members):
            self._fit_member(task, member, number)

    def _fit_member(self, task: Task, member: str, number: int) -> None:
        import jax

        from anabranch.nets.train import train

        recipe = self._recipe()
        validation = task.validation

        def report(epoch: int, loss: float, accuracy: float | None, rate: float) -> None:
            entry = EpochReport(member, epoch, recipe.epochs, loss, accuracy, rate)
            self.history_.append(entry)
            if task.on_epoch is not None:
                task.on_epoch(entry)

        trained = train(
            self._network(member, number),
            self._inputs(task.X, member),
            task.codes,
            recipe,
            _seed_of(self.seed, number),
            None if validation is None else (self._inputs(validation[0], member), validation[1]),
            report,
            None if task.unfinished is None else task.unfinished.part(member),
        )
        leaves = jax.tree.leaves((trained.network, trained.state))
        self.weights_[member] = [np.asarray(leaf) for leaf in leaves]

    def _network(self, member: str, number: int) -> Layer:
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(0, number)))
        return self._build(member, rng, self.classes_.size)

    def _trained(self, member: str) -> Trained:
        """Returns the member's network with the learnt weights."""
        import jax

        from anabranch.nets.train import Trained

        empty = self._network(member, 0)
        shape = jax.tree.structure((empty, empty.initial()))
        return Trained(*jax.tree.unflatten(shape, self.weights_[member]))

    def _prepare(self, X: Sequences) -> None:
        """Learns parameters that `_inputs` uses, such as a scale; by default, there are none."""

    def _validation_share(self) -> float:
        """Returns the share of the training set to hold out if no validation set is given."""
        return 0.0

    @abstractmethod
    def _inputs(self, X: Sequences, member: str) -> Inputs:
        """Returns the input arrays of a member network; samples are along the first axis."""

    @abstractmethod
    def _build(self, member: str, rng: np.random.Generator, classes: int) -> Layer:
        """Returns a member's network with its initial weights."""

    @abstractmethod
    def _recipe(self) -> Recipe:
        """Returns the hyperparameters with which every member network is trained."""


def _seed_of(seed: int, member: int) -> int:
    """Derives the seed of a member's training; each `seed` and `member` has an independent one."""
    state = np.random.SeedSequence(seed, spawn_key=(1, member)).generate_state(1)
    return int(state[0]) >> 1


def _softmax(scores: NDArray[np.float32], classes: int) -> Floats:
    if scores.shape[0] == 0:
        return np.zeros((0, classes))
    shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    exponential = np.exp(shifted)
    return np.asarray(exponential / exponential.sum(axis=1, keepdims=True))


def _with_validation(task: Task, share: float, seed: int) -> Task:
    """Holds out `share` of the training set for validation if no validation set was given."""
    if task.validation is not None or share <= 0.0:
        return task
    inner, outer = _divide(task, share, seed)
    groups = None if task.groups is None else task.groups[inner]
    held_out = (task.X[outer], task.codes[outer])
    return replace(
        task, X=task.X[inner], codes=task.codes[inner], groups=groups, validation=held_out
    )


def _divide(task: Task, share: float, seed: int) -> tuple[Ints, Ints]:
    divider: Any = ShuffleSplit if task.groups is None else GroupShuffleSplit
    division = divider(1, test_size=share, random_state=random_state(seed))
    try:
        inner, outer = next(division.split(task.codes, task.codes, task.groups))
    except ValueError as error:
        raise AttackError(
            f"validation_share = {share:g}: too few page loads for a training and a validation "
            "set: give more loads, or another share"
        ) from error
    return inner, outer
