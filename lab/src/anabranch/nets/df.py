"""Deep Fingerprinting's network (Sirinam et al., CCS 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np
from jax import Array

from .layers import (
    Apply,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Layer,
    MaxPool,
    Sequential,
    flatten,
    same_padding,
)

Activation: TypeAlias = Callable[[Array], Array]

TAPS = 8
POOL, POOL_STRIDE = 8, 4
BLOCKS = 4


def deep_fingerprinting(
    rng: np.random.Generator, length: int, classes: int, width: int, hidden: int
) -> Layer:
    """Builds four blocks of two convolutions, then two dense layers.

    Input: one array (batch, length). Block `b` has `width` x 2^b filters. The first block uses
    ELU, since its input is signed; the others use ReLU.
    """
    layers: list[Layer] = [Apply(_channel)]
    inputs = 1
    for block in range(BLOCKS):
        outputs = width << block
        layers += _block(rng, inputs, outputs, jax.nn.elu if block == 0 else jax.nn.relu)
        inputs, length = outputs, -(-length // POOL_STRIDE)
    layers += [Apply(flatten), *_dense(rng, inputs * length, hidden, 0.7)]
    layers += [*_dense(rng, hidden, hidden, 0.5), Dense(rng, hidden, classes)]
    return Sequential(tuple(layers))


def _block(
    rng: np.random.Generator, inputs: int, outputs: int, activation: Activation
) -> list[Layer]:
    layers: list[Layer] = []
    for source in (inputs, outputs):
        conv = Conv(rng, source, outputs, TAPS, padding=same_padding(TAPS, TAPS))
        layers += [conv, BatchNorm(outputs), Apply(activation)]
    return [*layers, MaxPool(POOL, POOL_STRIDE, same=True), Dropout(0.1)]


def _dense(rng: np.random.Generator, inputs: int, outputs: int, rate: float) -> list[Layer]:
    dense = Dense(rng, inputs, outputs)
    return [dense, BatchNorm(outputs), Apply(jax.nn.relu), Dropout(rate)]


def _channel(inputs: tuple[Array, ...]) -> Array:
    return inputs[0][:, :, None]
