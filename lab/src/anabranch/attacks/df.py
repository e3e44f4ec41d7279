"""The attack Deep Fingerprinting (DF)."""

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


class DeepFingerprinting(NetworkAttack):
    """DF (Sirinam, Imani, Juarez and Wright, CCS 2018).

    Packet directions pass through four convolutional blocks and two dense layers. The
    hyperparameters are those of the paper's table 1 and of its program (`Model_NoDef.py`): 5,000
    packets, 30 epochs of mini-batches of 128, Adamax at 0.002, dropout 0.1, 0.7 and 0.5.

    Departures: The running averages of batch normalisation are corrected for their start at zero
    (see `nets.layers.BatchNorm`). Samples of the first mini-batch also fill the last one up to full
    size, so that only one shape is compiled.

    Args:
        length: number of packets used; training time is proportional to it.
        width: filters of the first block, doubled from block to block.
        hidden: units of the dense layers.
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
        width: int = 32,
        hidden: int = 512,
        epochs: int = 30,
        batch_size: int = 128,
        learning_rate: float = 0.002,
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
        from anabranch.nets.df import deep_fingerprinting

        return deep_fingerprinting(rng, self.length, classes, self.width, self.hidden)

    def _recipe(self) -> Recipe:
        return Recipe("adamax", self.learning_rate, self.epochs, self.batch_size)
