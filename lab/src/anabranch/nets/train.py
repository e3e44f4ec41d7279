"""The training loop that all networks share.

A run is a function of network, data, recipe and seed. NumPy draws the order of the samples, JAX
keys draw dropout, and no clock is used. On the same platform two runs give the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from anabranch.unfinished import Unfinished

from .allocator import keep_freed_memory
from .layers import Layer, State
from .recipe import Optimizer, Plateau, Recipe

Inputs: TypeAlias = tuple[NDArray[Any], ...]
Codes: TypeAlias = NDArray[np.int64]
OnEpoch: TypeAlias = Callable[[int, float, float | None, float], None]
"""A callback with epoch from 1, mean loss, validation accuracy, learning rate."""


@dataclass(frozen=True)
class Trained:
    """A network and its state after training."""

    network: Layer
    state: State


def train(
    network: Layer,
    inputs: Inputs,
    codes: Codes,
    recipe: Recipe,
    seed: int,
    validation: tuple[Inputs, Codes] | None = None,
    on_epoch: OnEpoch | None = None,
    unfinished: Unfinished | None = None,
) -> Trained:
    """Trains on mini-batches; returns the network of the last epoch, or the best on `validation`.

    Args:
        network: the network with its initial weights.
        inputs: arrays with the samples along the first axis; cast to float32 batch by batch.
        codes: classes (n,), from 0.
        recipe: the training's parameters.
        seed: seed of the order of the samples and of dropout.
        validation: inputs and codes that choose the epoch to return: by accuracy, on ties by cross
            entropy, then the earliest.
        on_epoch: called after each epoch, including those of an earlier process.
        unfinished: store of the training state. The state is written after each epoch, and within
            an epoch whenever it is `due`. Training resumes from a stored state, with the same
            result.
    """
    keep_freed_memory()
    run = _Run(recipe, network, inputs, codes, seed)
    kept = None if unfinished is None else unfinished.read()
    if kept is not None:
        run.restore(kept)
    tell = on_epoch or (lambda *_: None)
    for told in run.told:
        tell(*told)
    while not run.ended:
        run.epoch(validation, unfinished)
        if unfinished is not None:
            unfinished.write(run.state())
        tell(*run.told[-1])
    return run.best.trained


def logits(trained: Trained, inputs: Inputs, batch_size: int = 128) -> NDArray[np.float32]:
    """Returns class scores (n, classes) before the softmax, in batches of one shape."""
    parts = [np.zeros((0, 0), dtype=np.float32)]
    for index in _even_batches(inputs[0].shape[0], batch_size):
        batch = _batch(inputs, index)
        parts.append(np.asarray(_forward(trained.network, trained.state, batch)))
    rows = parts[1:] or parts
    return np.concatenate(rows)[: inputs[0].shape[0]]


def evaluate(trained: Trained, inputs: Inputs, codes: Codes) -> tuple[float, float]:
    """Returns the accuracy, and the mean cross entropy [nats].

    Samples of an unknown class (negative code) count as wrong, and are left out of the cross
    entropy.
    """
    scores = logits(trained, inputs)
    if scores.shape[0] == 0:
        return 0.0, 0.0
    known = codes >= 0
    log_p = np.asarray(jax.nn.log_softmax(scores[known], axis=1))
    loss = -log_p[np.arange(known.sum()), codes[known]].mean() if known.any() else np.inf
    return float((scores.argmax(axis=1) == codes).mean()), float(loss)


_PLAIN = ("step", "slowed", "rate", "told", "ended")


class _Run:
    """The state of one training, which changes with each mini-batch.

    Attributes:
        best: the epoch to return.
        order: random generator of the samples' order; its state is that before the current epoch.
        losses: losses of the current epoch's batches.
        told: arguments of `OnEpoch` for each epoch.
        ended: whether training is finished.
    """

    def __init__(
        self, recipe: Recipe, network: Layer, inputs: Inputs, codes: Codes, seed: int
    ) -> None:
        self.recipe, self.inputs, self.codes = recipe, inputs, codes
        self.trained = Trained(*jax.tree.map(jnp.asarray, (network, network.initial())))
        optimizer = _direction(recipe.optimizer, recipe.weight_decay)
        self.moments = optimizer.init(eqx.filter(self.trained.network, eqx.is_array))
        self.order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        self.losses: list[Array | float] = []
        self.key = jax.random.key(seed)
        self.step = 0
        self.slowed = 1.0
        self.rate = recipe.learning_rate
        self.best = _Best(self.trained)
        self.told: list[tuple[int, float, float | None, float]] = []
        self.ended = recipe.epochs == 0

    def epoch(self, validation: tuple[Inputs, Codes] | None, unfinished: Unfinished | None) -> None:
        """Trains for one epoch, or the rest of one after a resume, and evaluates the result."""
        number = len(self.told)
        loss = self._pass(number, unfinished)
        score = None if validation is None else evaluate(self.trained, *validation)
        self.best.consider(self.trained, score, number)
        self.told.append((number + 1, loss, None if score is None else score[0], self.rate))
        plateau = self.recipe.plateau if score else None
        settled = plateau is not None and self._settled(plateau, number - self.best.epoch)
        self.ended = settled or len(self.told) >= self.recipe.epochs

    def state(self) -> dict[str, Any]:
        """Returns the whole state, as NumPy arrays and plain values."""
        return {
            "trees": [np.asarray(leaf) for leaf in jax.tree.leaves(self._trees())],
            "order": self.order.bit_generator.state,
            "losses": [float(loss) for loss in self.losses],
            "plain": {name: getattr(self, name) for name in _PLAIN},
            "best": (self.best.score, self.best.epoch),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores a value of `state` from a training with the same arguments."""
        shape = jax.tree.structure(self._trees())
        leaves = [jnp.asarray(leaf) for leaf in state["trees"]]
        now, self.moments, best = jax.tree.unflatten(shape, leaves)
        self.trained = Trained(*now)
        self.best = _Best(Trained(*best), *state["best"])
        self.order.bit_generator.state = state["order"]
        # Files of older versions, which stored whole epochs only, lack this key.
        self.losses = list(state.get("losses", []))
        for name, value in state["plain"].items():
            setattr(self, name, value)

    def _trees(self) -> Any:
        now, best = self.trained, self.best.trained
        return (now.network, now.state), self.moments, (best.network, best.state)

    def _pass(self, epoch: int, unfinished: Unfinished | None) -> float:
        """Trains on every sample once; returns the mean loss of the batches."""
        order = deepcopy(self.order)
        batches = _shuffled_batches(order, self.codes.size, self.recipe.batch_size)
        for index in batches[len(self.losses) :]:
            self.rate = self._rate(epoch)
            self.losses.append(self._update(index))
            self.step += 1
            if unfinished is not None and unfinished.due:
                unfinished.write(self.state())
        mean = float(np.mean([float(loss) for loss in self.losses]))
        self.order, self.losses = order, []
        return mean

    def _settled(self, plateau: Plateau, stale: int) -> bool:
        """Lowers the rate after every `patience` stale epochs; returns whether to end training.

        `stale` is the number of epochs since the best score.
        """
        if stale and stale % plateau.patience == 0:
            self.slowed *= plateau.factor
        return stale >= 2 * plateau.patience

    def _rate(self, epoch: int) -> float:
        rate = self.recipe.learning_rate * self.recipe.decay(epoch, self.step) * self.slowed
        return max(rate, self.recipe.plateau.floor) if self.recipe.plateau else rate

    def _update(self, index: NDArray[np.int64]) -> Array:
        network, state, self.moments, loss = _step(
            self.trained.network,
            self.trained.state,
            self.moments,
            _batch(self.inputs, index),
            self.codes[index],
            jax.random.fold_in(self.key, self.step),
            jnp.float32(self.rate),
            self.recipe.optimizer,
            self.recipe.weight_decay,
            self.recipe.penalty,
        )
        self.trained = Trained(network, state)
        return loss


class _Best:
    """The epoch to keep: the one with the best score, or the last one if there are no scores."""

    def __init__(
        self, trained: Trained, score: tuple[float, float] = (-1.0, np.inf), epoch: int = -1
    ) -> None:
        self.trained, self.score, self.epoch = trained, score, epoch

    def consider(self, trained: Trained, score: tuple[float, float] | None, epoch: int) -> None:
        if score is None:
            self.trained = trained
        elif (score[0], -score[1]) > (self.score[0], -self.score[1]):
            self.trained, self.score, self.epoch = trained, score, epoch


@lru_cache
def _direction(name: Optimizer, weight_decay: float) -> optax.GradientTransformation:
    """Returns the update rule; `_step` multiplies its result by the learning rate."""
    rules = {
        "adam": lambda: optax.scale_by_adam(eps=1e-8),
        "adamax": lambda: optax.scale_by_adamax(eps=1e-8),
        "sgd": optax.identity,
    }
    decay = optax.add_decayed_weights(weight_decay) if weight_decay else optax.identity()
    return optax.chain(decay, rules[name]())


@eqx.filter_jit
def _step(
    network: Layer,
    state: State,
    moments: Any,
    inputs: Inputs,
    codes: Codes,
    key: Array,
    rate: Array,
    optimizer: Optimizer,
    weight_decay: float,
    penalty: Callable[[Any], Any] | None,
) -> tuple[Layer, State, Any, Array]:
    def loss_of(network: Layer) -> tuple[Array, tuple[State, Array]]:
        scores, new = network(inputs, state, key)
        entropy = optax.softmax_cross_entropy_with_integer_labels(scores, codes).mean()
        return entropy + (penalty(network) if penalty else 0.0), (new, entropy)

    (_, (state_new, entropy)), slope = eqx.filter_value_and_grad(loss_of, has_aux=True)(network)
    rule = _direction(optimizer, weight_decay)
    way, moments = rule.update(slope, moments, network)
    network = eqx.apply_updates(network, jax.tree.map(lambda w: -rate * w, way))
    return network, state_new, moments, entropy


@eqx.filter_jit
def _forward(network: Layer, state: State, inputs: Inputs) -> Array:
    scores: Array = network(inputs, state, None)[0]
    return scores


def _batch(inputs: Inputs, index: NDArray[np.int64]) -> Inputs:
    """Returns one batch as float32. The whole set may be int8 and is never converted at once."""
    return tuple(array[index].astype(np.float32) for array in inputs)


def _shuffled_batches(rng: np.random.Generator, count: int, size: int) -> NDArray[np.int64]:
    """Returns sample indices in random order, (batches, size).

    Each sample occurs once, except that samples of the first batch also fill up the last batch.
    """
    order = rng.permutation(count)
    size = min(size, count)
    steps = -(-count // size)
    return np.resize(order, steps * size).reshape(steps, size)


def _even_batches(count: int, size: int) -> Iterator[NDArray[np.int64]]:
    """Yields all samples in order; the last batch repeats the last sample up to the full size."""
    for start in range(0, count, size):
        yield np.minimum(np.arange(start, start + size), count - 1)
