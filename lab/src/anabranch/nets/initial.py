"""Initial weights, drawn in NumPy, because JAX would compile a program for each shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Weights: TypeAlias = NDArray[np.float32]
Initialiser: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], Weights]
"""A function that draws weights of a shape whose last axis is the outputs."""


def glorot_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Weights:
    """Draws uniform weights, limit sqrt(6 / (fan in + fan out)): the default of Keras."""
    receptive = int(np.prod(shape[:-2]))
    limit = np.sqrt(6.0 / (receptive * (shape[-2] + shape[-1])))
    return rng.uniform(-limit, limit, shape).astype(np.float32)


def he_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Weights:
    """Draws normal weights, deviation sqrt(2 / fan in)."""
    return rng.normal(0.0, np.sqrt(2.0 / _fan_in(shape)), shape).astype(np.float32)


def he_normal_fan_out(rng: np.random.Generator, shape: tuple[int, ...]) -> Weights:
    """Draws normal weights, deviation sqrt(2 / (kernel area x outputs))."""
    fan_out = int(np.prod(shape[:-2])) * shape[-1]
    return rng.normal(0.0, np.sqrt(2.0 / fan_out), shape).astype(np.float32)


def lecun_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Weights:
    """Draws uniform weights, limit sqrt(3 / fan in)."""
    limit = np.sqrt(3.0 / _fan_in(shape))
    return rng.uniform(-limit, limit, shape).astype(np.float32)


def torch_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Weights:
    """Draws uniform weights, limit 1 / sqrt(fan in): the default of PyTorch's layers."""
    limit = 1.0 / np.sqrt(_fan_in(shape))
    return rng.uniform(-limit, limit, shape).astype(np.float32)


def _fan_in(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[:-1]))
