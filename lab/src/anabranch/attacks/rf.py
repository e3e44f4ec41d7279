"""The attack Robust Fingerprinting (RF)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from anabranch.nets.recipe import Recipe

from .base import Sequences
from .features import traffic_aggregation_matrix
from .network import Inputs, NetworkAttack
from .ranges import CHANNELS, Range, Ranges

if TYPE_CHECKING:
    from anabranch.nets.layers import Layer


class RobustFingerprinting(NetworkAttack):
    """RF (Shen, Ji, Gao, Li, Zhu and Xu, USENIX Security 2023).

    Packet counts in 44 ms slots, by direction (the traffic aggregation matrix, TAM), pass through
    convolutions over both directions, then convolutions over time, then an average. This is the
    strongest published attack on split traffic. As in the authors' program (`models/RF.py`,
    `train.py`): 30 epochs of mini-batches of 200, Adam at 0.0005 times 0.2^(epoch / 30), weight
    decay 0.001, no scaling of the counts.

    Departures: Samples of the first mini-batch also fill the last one up to full size, so that only
    one shape is compiled. The running averages of batch normalisation are corrected for their start
    at zero. With counters, the TAM has two more rows, the increases of the counters in each slot.

    Args:
        slots: number of columns of the TAM, at least 54, so that pooling leaves at least one.
        window: seconds that the slots cover; later packets are counted in the last slot.
        width: number of filters of the first convolution; later convolutions have multiples of
            this number.
    """

    ranges: ClassVar[Ranges] = NetworkAttack.ranges | {
        "slots": Range(54),
        "window": Range(1e-3, 1e6),
        "width": CHANNELS,
    }
    needs_times = True
    uses_counter = True

    def __init__(
        self,
        *,
        slots: int = 1800,
        window: float = 80.0,
        width: int = 32,
        epochs: int = 30,
        batch_size: int = 200,
        learning_rate: float = 0.0005,
        seed: int = 0,
    ) -> None:
        self.slots = slots
        self.window = window
        self.width = width
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed

    def _inputs(self, X: Sequences, member: str) -> Inputs:
        return (traffic_aggregation_matrix(X, self.slots, self.window),)

    def _build(self, member: str, rng: np.random.Generator, classes: int) -> Layer:
        from anabranch.nets.rf import robust_fingerprinting

        return robust_fingerprinting(rng, classes, self.width)

    def _recipe(self) -> Recipe:
        epochs = max(self.epochs, 1)
        return Recipe(
            "adam",
            self.learning_rate,
            self.epochs,
            self.batch_size,
            decay=lambda epoch, step: float(0.2 ** (epoch / epochs)),
            weight_decay=0.001,
        )
