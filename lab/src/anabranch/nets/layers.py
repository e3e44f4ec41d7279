"""Layers: Equinox modules with separate running statistics.

A layer maps `(x, state, key)` to `(y, state)`. `state` contains values that training changes
without a gradient (running statistics of batch normalisation); it is an empty tuple for a layer
without such values. `key` is a random key in training, None in inference.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .convolution import convolve, convolve_rows
from .initial import Initialiser, Weights, glorot_uniform

State: TypeAlias = Any
Key: TypeAlias = Array | None
Padding: TypeAlias = tuple[int, int]


class Layer(eqx.Module):
    """Base class of the layers of all networks."""

    def initial(self) -> State:
        """Returns the layer's running statistics before training."""
        return self._initial()

    def __call__(self, x: Any, state: State, key: Key) -> tuple[Any, State]:
        """Applies the layer to a batch."""
        return self._apply(x, state, key)

    def _initial(self) -> State:
        return ()

    @abstractmethod
    def _apply(self, x: Any, state: State, key: Key) -> tuple[Any, State]: ...


class Apply(Layer):
    """A function without parameters, such as an activation."""

    function: Callable[[Any], Array] = eqx.field(static=True)

    def _apply(self, x: Any, state: State, key: Key) -> tuple[Array, State]:
        return self.function(x), state


class Dense(Layer):
    """Affine map of the last axis."""

    kernel: Weights
    bias: Weights

    def __init__(
        self,
        rng: np.random.Generator,
        inputs: int,
        outputs: int,
        start: Initialiser = glorot_uniform,
    ) -> None:
        self.kernel = start(rng, (inputs, outputs))
        self.bias = np.zeros(outputs, dtype=np.float32)

    def _apply(self, x: Array, state: State, key: Key) -> tuple[Array, State]:
        return x @ self.kernel + self.bias, state


class Conv(Layer):
    """Convolution along time; (batch, time, channels)."""

    kernel: Weights
    bias: Weights | None
    padding: Padding = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    dilation: int = eqx.field(static=True)

    def __init__(
        self,
        rng: np.random.Generator,
        inputs: int,
        outputs: int,
        taps: int,
        *,
        padding: Padding,
        stride: int = 1,
        dilation: int = 1,
        bias: bool = True,
        start: Initialiser = glorot_uniform,
    ) -> None:
        self.kernel = start(rng, (taps, inputs, outputs))
        self.bias = np.zeros(outputs, dtype=np.float32) if bias else None
        self.padding, self.stride, self.dilation = padding, stride, dilation

    def _apply(self, x: Array, state: State, key: Key) -> tuple[Array, State]:
        y = convolve(
            x,
            jnp.asarray(self.kernel),
            padding=self.padding,
            stride=self.stride,
            dilation=self.dilation,
        )
        return (y if self.bias is None else y + self.bias), state


class ConvRows(Layer):
    """Convolution over time and a few rows; (batch, time, rows, channels)."""

    kernel: Weights
    bias: Weights
    padding: Padding = eqx.field(static=True)

    def __init__(
        self,
        rng: np.random.Generator,
        inputs: int,
        outputs: int,
        taps: tuple[int, int],
        *,
        padding: Padding,
        start: Initialiser = glorot_uniform,
    ) -> None:
        self.kernel = start(rng, (*taps, inputs, outputs))
        self.bias = np.zeros(outputs, dtype=np.float32)
        self.padding = padding

    def _apply(self, x: Array, state: State, key: Key) -> tuple[Array, State]:
        return convolve_rows(x, jnp.asarray(self.kernel), padding=self.padding) + self.bias, state


class BatchNorm(Layer):
    """Batch normalisation over all axes but the last.

    The running averages are corrected for their start at zero, like Adam's moments: they are
    unbiased from the first steps on. After a few hundred steps the correction has no effect.
    Without the correction, a momentum of 0.99 makes a network useless on small training sets.
    """

    scale: Weights
    shift: Weights
    momentum: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    def __init__(self, channels: int, momentum: float = 0.99, epsilon: float = 1e-3) -> None:
        self.scale = np.ones(channels, dtype=np.float32)
        self.shift = np.zeros(channels, dtype=np.float32)
        self.momentum, self.epsilon = momentum, epsilon

    def _initial(self) -> State:
        """Returns zeros: moving sums of mean and of variance, and the total weight in them."""
        zeros = np.zeros_like(self.scale)
        return zeros, zeros, np.float32(0.0)

    def _apply(self, x: Array, state: State, key: Key) -> tuple[Array, State]:
        if key is None:
            mean, variance = _corrected(state)
        else:
            axes = tuple(range(x.ndim - 1))
            mean, variance = x.mean(axes), x.var(axes)
            state = self._moved(state, mean, variance)
        gain = self.scale * jax.lax.rsqrt(variance + self.epsilon)
        return x * gain + (self.shift - mean * gain), state

    def _moved(self, state: State, mean: Array, variance: Array) -> State:
        new = (mean, variance, jnp.float32(1.0))
        keep = self.momentum
        return tuple(keep * old + (1 - keep) * now for old, now in zip(state, new, strict=True))


class Dropout(Layer):
    """Dropout: in training, zeroes a share `rate` of the elements and scales up the rest."""

    rate: float = eqx.field(static=True)

    def _apply(self, x: Array, state: State, key: Key) -> tuple[Array, State]:
        if key is None or self.rate == 0.0:
            return x, state
        kept = jax.random.bernoulli(key, 1.0 - self.rate, x.shape)
        return jnp.where(kept, x / (1.0 - self.rate), 0.0), state


class MaxPool(Layer):
    """Maximum of `size` neighbours along time, every `stride`; with `same`, padded with -inf.

    Implemented with reshapes: a window consists of whole blocks of `stride` elements and the
    beginning of another block. XLA's own pooling, above all its gradient, is slow on a CPU.
    """

    size: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    same: bool = eqx.field(static=True)

    def _apply(self, x: Array, state: State, key: Key) -> tuple[Array, State]:
        length = x.shape[1]
        before, after = same_padding(length, self.size, self.stride) if self.same else (0, 0)
        windows = (length + before + after - self.size) // self.stride + 1
        whole, rest = divmod(self.size, self.stride)
        blocks = windows + whole - (rest == 0)
        after = max(blocks * self.stride - length - before, 0)
        rest_of_shape = x.shape[2:]
        pads = ((0, 0), (before, after), *((0, 0) for _ in rest_of_shape))
        x = jnp.pad(x, pads, constant_values=-jnp.inf)[:, : blocks * self.stride]
        x = x.reshape(x.shape[0], blocks, self.stride, *rest_of_shape)
        full = _greatest([x[:, :, i] for i in range(self.stride)])
        parts = [full[:, i : i + windows] for i in range(whole)]
        parts += [x[:, whole : whole + windows, i] for i in range(rest)]
        return _greatest(parts), state


class Sequential(Layer):
    """Layers in a chain, each applied to the output of the previous one."""

    layers: tuple[Layer, ...]

    def _initial(self) -> State:
        return tuple(layer.initial() for layer in self.layers)

    def _apply(self, x: Any, state: State, key: Key) -> tuple[Any, State]:
        states = []
        for number, (layer, old) in enumerate(zip(self.layers, state, strict=True)):
            x, new = layer(x, old, None if key is None else jax.random.fold_in(key, number))
            states.append(new)
        return x, tuple(states)


def same_padding(length: int, size: int, stride: int = 1) -> Padding:
    """Returns the padding of TensorFlow's `same`, which gives ceil(length / stride) windows."""
    total = max((-(-length // stride) - 1) * stride + size - length, 0)
    return total // 2, total - total // 2


def flatten(x: Array) -> Array:
    """Flattens to (batch, everything else)."""
    return x.reshape(x.shape[0], -1)


def average_over_time(x: Array) -> Array:
    """Averages (batch, time, channels) to (batch, channels)."""
    return x.mean(axis=1)


def _corrected(state: State) -> tuple[Array, Array]:
    mean, variance, weight = state
    seen = weight > 0
    safe = jnp.where(seen, weight, 1.0)
    return mean / safe, jnp.where(seen, variance / safe, 1.0)


def _greatest(parts: list[Array]) -> Array:
    result = parts[0]
    for part in parts[1:]:
        result = jnp.maximum(result, part)
    return result
