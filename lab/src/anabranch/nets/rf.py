"""Robust Fingerprinting's network (Shen et al., USENIX Security 2023)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .initial import he_normal_fan_out, torch_uniform
from .layers import (
    Apply,
    BatchNorm,
    Conv,
    ConvRows,
    Dropout,
    Layer,
    MaxPool,
    Sequential,
    average_over_time,
)

TAPS = (3, 6)
MOMENTUM, EPSILON = 0.9, 1e-5


def robust_fingerprinting(rng: np.random.Generator, classes: int, width: int) -> Layer:
    """Builds four convolutions over both rows, six over time, and an average for each class.

    Input: one array (batch, rows, slots); the published network has two rows. `width` = 32 gives
    the published widths.
    """
    layers: list[Layer] = [Apply(_time_first)]
    layers += [*_over_rows(rng, 1, width), *_over_rows(rng, width, width)]
    layers += [MaxPool(3, 3, same=False), Dropout(0.1)]
    layers += [*_over_rows(rng, width, 2 * width), *_over_rows(rng, 2 * width, 2 * width)]
    layers += [MaxPool(2, 2, same=False), Apply(_greatest_row), Dropout(0.1)]
    layers += [Apply(_fold_channels), *_over_time(rng, width, classes)]
    return Sequential((*layers, Apply(average_over_time)))


def _over_rows(rng: np.random.Generator, inputs: int, outputs: int) -> list[Layer]:
    conv = ConvRows(rng, inputs, outputs, TAPS, padding=(1, 1), start=he_normal_fan_out)
    return [conv, BatchNorm(outputs, MOMENTUM, EPSILON), Apply(jax.nn.relu)]


def _over_time(rng: np.random.Generator, inputs: int, classes: int) -> list[Layer]:
    layers: list[Layer] = []
    plan = [4 * inputs, 4 * inputs, 0, 8 * inputs, 8 * inputs, 0, 16 * inputs, classes]
    for outputs in plan:
        if outputs == 0:
            layers += [MaxPool(3, 3, same=False), Dropout(0.3)]
            continue
        conv = Conv(rng, inputs, outputs, 3, padding=(1, 1), start=torch_uniform)
        layers += [conv, BatchNorm(outputs, MOMENTUM, EPSILON), Apply(jax.nn.relu)]
        inputs = outputs
    return layers


def _time_first(inputs: tuple[Array, ...]) -> Array:
    """Returns (batch, time, rows, 1 channel)."""
    return inputs[0].transpose(0, 2, 1)[..., None]


def _greatest_row(x: Array) -> Array:
    return jnp.max(x, axis=2)


def _fold_channels(x: Array) -> Array:
    """Concatenates each two channels along time to one channel of twice the length.

    The published program reshapes (64, 296) to (32, 592) here. This is kept, because the published
    accuracies are those of this network.
    """
    batch, time, channels = x.shape
    folded = x.transpose(0, 2, 1).reshape(batch, channels // 2, 2 * time)
    return folded.transpose(0, 2, 1)
