"""Hyperparameters of a network's training; without JAX, so that attacks can define them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Optimizer: TypeAlias = Literal["adam", "adamax", "sgd"]


@dataclass(frozen=True, slots=True)
class Plateau:
    """Rule to lower the learning rate, and then stop, when the validation score does not improve.

    A score is better with a higher accuracy, or with an equal accuracy and a lower cross entropy.
    """

    patience: int
    """Epochs without a new best before the rate falls; after twice as many, training stops."""
    factor: float
    """Factor by which the learning rate falls."""
    floor: float
    """Minimum learning rate."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of the training of one network."""

    optimizer: Optimizer
    learning_rate: float
    epochs: int
    batch_size: int
    decay: Callable[[int, int], float] = lambda epoch, step: 1.0
    """Factor on the learning rate; arguments: epoch, and step over all epochs, both from 0."""
    weight_decay: float = 0.0
    """Multiple of every parameter that is added to the gradient (as in PyTorch's Adam)."""
    penalty: Callable[[Any], Any] | None = None
    """Term of the loss: a module-level function of the network."""
    plateau: Plateau | None = None
    """Learning-rate schedule by the validation set; without such a set it has no effect."""
