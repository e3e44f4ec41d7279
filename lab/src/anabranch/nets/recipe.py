"""Hyperparameters of a network's training, without JAX, so that attacks can define them."""

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
    """Epochs without a new best score before the rate falls; training stops after twice as many.
    """
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
    """Factor on the learning rate by epoch and by step over all epochs, both from 0."""
    weight_decay: float = 0.0
    """L2 penalty as in PyTorch's Adam: this multiple of each parameter is added to its gradient.
    """
    penalty: Callable[[Any], Any] | None = None
    """Additional term of the loss: a function of the network, defined at module level."""
    plateau: Plateau | None = None
    """Learning-rate rule by the validation score; without a validation set it has no effect."""
