"""The convolutional network of p-FP(C) (Oh, Sunkam and Hopper, PETS 2019)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .initial import lecun_uniform
from .layers import (
    Apply,
    Conv,
    Dense,
    Dropout,
    Key,
    Layer,
    MaxPool,
    Sequential,
    State,
    flatten,
    same_padding,
)

TAPS = 12
POOL = 10
NEIGHBOURS = 5
KERNEL_PENALTY = 1e-3


def plain_cnn(
    rng: np.random.Generator, length: int, classes: int, width: int, hidden: int
) -> Layer:
    """Builds two convolutions with pooling and response normalisation, and one tanh layer.

    Input: one array (batch, length).
    """
    layers: list[Layer] = [Apply(_channel)]
    inputs = 1
    for _ in range(2):
        padding = same_padding(TAPS, TAPS)
        conv = Conv(rng, inputs, width, TAPS, padding=padding, start=lecun_uniform)
        layers += [conv, Apply(jax.nn.relu), MaxPool(POOL, POOL, same=True), ResponseNorm(width)]
        inputs, length = width, -(-length // POOL)
    layers += [Apply(flatten), Dense(rng, inputs * length, hidden), Apply(jnp.tanh)]
    return Sequential((*layers, Dropout(0.2), Dense(rng, hidden, classes)))


def kernel_penalty(network: Layer) -> Array:
    """Returns half the squared norm of the convolutions' kernels, times 0.001."""
    convolutions = jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, Conv))
    kernels = [node.kernel for node in convolutions if isinstance(node, Conv)]
    return KERNEL_PENALTY / 2 * jnp.sum(jnp.stack([jnp.sum(jnp.square(k)) for k in kernels]))


class ResponseNorm(Layer):
    """Local response normalisation over five channels to either side (AlexNet's constants)."""

    channels: int = eqx.field(static=True)

    def _apply(self, x: Array, state: State, key: Key) -> tuple[Array, State]:
        distance = np.abs(np.subtract.outer(np.arange(self.channels), np.arange(self.channels)))
        near = jnp.asarray(distance <= NEIGHBOURS, dtype=x.dtype)
        return x * (1.0 + 1e-4 * (x * x @ near)) ** -0.75, state


def _channel(inputs: tuple[Array, ...]) -> Array:
    return inputs[0][:, :, None]
