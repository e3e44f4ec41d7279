"""Numbers of a network's training; free of JAX, so that attacks can state them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Optimizer: TypeAlias = Literal["adam", "adamax", "sgd"]


@dataclass(frozen=True, slots=True)
class Plateau:
    """Lower the learning rate, then stop, when the validation score no longer improves.

    Better is a higher accuracy, or an equal one with less cross entropy.
    """

    patience: int
    """Epochs without a new best before the rate falls; after twice as many, training stops."""
    factor: float
    """Factor on the rate."""
    floor: float
    """Minimum rate."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training recipe."""

    optimizer: Optimizer
    learning_rate: float
    epochs: int
    batch_size: int
    decay: Callable[[int, int], float] = lambda epoch, step: 1.0
    """Factor on the rate; arguments are the epoch and the step of all training, from 0."""
    weight_decay: float = 0.0
    """Multiple of every parameter that is added to the gradient (as in PyTorch's Adam)."""
    penalty: Callable[[Any], Any] | None = None
    """Term of the loss: a module-level function of the network."""
    plateau: Plateau | None = None
    """Schedule that needs a validation set; without one it has no effect."""
