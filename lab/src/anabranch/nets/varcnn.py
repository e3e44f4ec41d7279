"""Var-CNN's network (Bhat et al., PETS 2019)."""

from __future__ import annotations

import jax
import numpy as np
from jax import Array

from .initial import he_normal
from .layers import (
    Apply,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Key,
    Layer,
    MaxPool,
    Sequential,
    State,
    average_over_time,
)

STAGES = 4
EMBEDDING = 32
EPSILON = 1e-5


class WithMetadata(Layer):
    """A tower over the sequence and an embedding of the metadata, joined by dense layers.

    Input: arrays (batch, length) and (batch, metadata).
    """

    tower: Sequential
    embedding: Sequential
    head: Sequential

    def _initial(self) -> State:
        return self.tower.initial(), self.embedding.initial(), self.head.initial()

    def _apply(self, x: tuple[Array, Array], state: State, key: Key) -> tuple[Array, State]:
        keys = (None,) * 3 if key is None else tuple(jax.random.split(key, 3))
        seen, tower = self.tower(x[0][:, :, None], state[0], keys[0])
        known, embedding = self.embedding(x[1], state[1], keys[1])
        joined = jax.numpy.concatenate([seen, known], axis=-1)
        scores, head = self.head(joined, state[2], keys[2])
        return scores, (tower, embedding, head)


class Residual(Layer):
    """Two dilated convolutions in parallel with a shortcut."""

    branch: Sequential
    shortcut: Sequential

    def _initial(self) -> State:
        return self.branch.initial(), self.shortcut.initial()

    def _apply(self, x: Array, state: State, key: Key) -> tuple[Array, State]:
        y, branch = self.branch(x, state[0], key)
        z, shortcut = self.shortcut(x, state[1], key)
        return jax.nn.relu(y + z), (branch, shortcut)


def var_cnn(
    rng: np.random.Generator, metadata: int, classes: int, width: int, hidden: int
) -> Layer:
    """Builds a one-dimensional ResNet-18 of causal dilated convolutions, with metadata.

    Stage `s` has `width` x 2^s channels; its first block dilates by 1 and 2, its second by 4
    and 8.
    """
    known = Sequential((Dense(rng, metadata, EMBEDDING), *_normalised(EMBEDDING, 1e-3)))
    outputs = width << (STAGES - 1)
    head = Sequential(
        (
            Dense(rng, outputs + EMBEDDING, hidden),
            *_normalised(hidden, 1e-3),
            Dropout(0.5),
            Dense(rng, hidden, classes),
        )
    )
    return WithMetadata(_tower(rng, width), known, head)


def _tower(rng: np.random.Generator, width: int) -> Sequential:
    stem = Conv(rng, 1, width, 7, padding=(3, 3), stride=2, bias=False, start=he_normal)
    layers: list[Layer] = [stem, *_normalised(width), MaxPool(3, 2, same=True)]
    inputs = width
    for stage in range(STAGES):
        outputs, stride = width << stage, 1 if stage == 0 else 2
        layers += [_first(rng, inputs, outputs, stride), _second(rng, outputs)]
        inputs = outputs
    return Sequential((*layers, Apply(average_over_time)))


def _first(rng: np.random.Generator, inputs: int, outputs: int, stride: int) -> Layer:
    shrink = Conv(
        rng, inputs, outputs, 1, padding=(0, 0), stride=stride, bias=False, start=he_normal
    )
    shortcut = Sequential((shrink, BatchNorm(outputs, epsilon=EPSILON)))
    return Residual(_branch(rng, inputs, outputs, stride, (1, 2)), shortcut)


def _second(rng: np.random.Generator, channels: int) -> Layer:
    return Residual(_branch(rng, channels, channels, 1, (4, 8)), Sequential(()))


def _branch(
    rng: np.random.Generator, inputs: int, outputs: int, stride: int, dilations: tuple[int, int]
) -> Sequential:
    first = _causal(rng, inputs, outputs, stride, dilations[0])
    second = _causal(rng, outputs, outputs, 1, dilations[1])
    norm = BatchNorm(outputs, epsilon=EPSILON)
    return Sequential((first, *_normalised(outputs), second, norm))


def _causal(
    rng: np.random.Generator, inputs: int, outputs: int, stride: int, dilation: int
) -> Conv:
    """Returns a convolution with three taps that look back only."""
    return Conv(
        rng,
        inputs,
        outputs,
        3,
        padding=(2 * dilation, 0),
        stride=stride,
        dilation=dilation,
        bias=False,
        start=he_normal,
    )


def _normalised(channels: int, epsilon: float = EPSILON) -> list[Layer]:
    return [BatchNorm(channels, epsilon=epsilon), Apply(jax.nn.relu)]
