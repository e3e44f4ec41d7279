"""How a network is trained, in numbers; free of JAX, so that attacks can state it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Optimizer: TypeAlias = Literal["adam", "adamax", "sgd"]


@dataclass(frozen=True, slots=True)
class Plateau:
    """Lower the learning rate, then stop, when the validation set is no longer done better.

    Better is a higher accuracy, or an equal one with less cross entropy.
    """

    patience: int
    """Epochs without a new best before the rate falls; after twice as many, training stops."""
    factor: float
    """What the rate is multiplied by."""
    floor: float
    """The least rate."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training recipe."""

    optimizer: Optimizer
    learning_rate: float
    epochs: int
    batch_size: int
    decay: Callable[[int, int], float] = lambda epoch, step: 1.0
    """Multiplies the rate; arguments are the epoch and the step of all training, from 0."""
    weight_decay: float = 0.0
    """Added to the gradient as a multiple of every parameter (PyTorch's way in Adam)."""
    penalty: Callable[[Any], Any] | None = None
    """Added to the loss: a module-level function of the network."""
    plateau: Plateau | None = None
    """Needs a validation set; without one it does nothing."""
