"""Robust Fingerprinting."""

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

    Packet counts in 44 ms slots, by direction (the TAM), through convolutions over both
    directions, then over time, then an average: the strongest published attack on split traffic.
    As in the authors' program (`models/RF.py`, `train.py`): 30 epochs of mini-batches of 200, Adam
    at 0.0005 times 0.2^(epoch / 30), weight decay 0.001, no scaling of the counts.

    Departures: none in the network; the last mini-batch is filled up, so that one shape is
    compiled, and the running averages are corrected for their start. Where packets show counters,
    two more rows tell how many packets of all paths they newly told of.

    Args:
        slots: columns of the TAM; of fewer than 54 the pooling leaves nothing.
        window: seconds that they cover; what comes later is counted in the last one.
        width: filters of the first convolution; the others are its multiples.
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
