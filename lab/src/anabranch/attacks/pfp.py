"""The attack p-FP(C)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from anabranch.nets.recipe import Recipe

from .base import Sequences
from .features import directions
from .network import Inputs, NetworkAttack
from .ranges import CHANNELS, COUNT, UNITS, Ranges

if TYPE_CHECKING:
    from anabranch.nets.layers import Layer

DECAY, DECAY_STEPS = 0.96, 1000


class PFP(NetworkAttack):
    """p-FP(C) (Oh, Sunkam and Hopper, PETS 2019): a plain CNN over packet directions.

    Two convolutions of 128 filters and 12 taps, with pooling by 10 and response normalisation; a
    tanh layer of 256 units; dropout 0.2. Training uses gradient descent at 0.05, decayed by a
    factor of 0.96 per 1,000 steps, with the kernels' squared norm as a penalty. This follows the
    authors' program, also where the paper does not give a value. The program uses its library's
    default mini-batches of 64. It trains for 30 epochs, although one of its comments gives 40.
    Later work trained the attack for 40 epochs, as this class does.

    Departures: Dense layers start Glorot-uniform; the program's library draws from a normal
    distribution with a standard deviation of 0.02. Samples of the first
    mini-batch also fill the last one up to full size.

    Args:
        length: number of packets used.
        width: filters of each convolution.
        hidden: units of the dense layer.
    """

    ranges: ClassVar[Ranges] = NetworkAttack.ranges | {
        "length": COUNT,
        "width": CHANNELS,
        "hidden": UNITS,
    }
    needs_times = False

    def __init__(
        self,
        *,
        length: int = 5000,
        width: int = 128,
        hidden: int = 256,
        epochs: int = 40,
        batch_size: int = 64,
        learning_rate: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.length = length
        self.width = width
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed

    def _inputs(self, X: Sequences, member: str) -> Inputs:
        return (directions(X, self.length),)

    def _build(self, member: str, rng: np.random.Generator, classes: int) -> Layer:
        from anabranch.nets.pfp import plain_cnn

        return plain_cnn(rng, self.length, classes, self.width, self.hidden)

    def _recipe(self) -> Recipe:
        from anabranch.nets.pfp import kernel_penalty

        return Recipe(
            "sgd",
            self.learning_rate,
            self.epochs,
            self.batch_size,
            decay=lambda epoch, step: DECAY ** (step / DECAY_STEPS),
            penalty=kernel_penalty,
        )
