"""The attack Var-CNN."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from anabranch.nets.recipe import Plateau, Recipe

from .base import Floats, Sequences
from .features import METADATA_FEATURES, directions, inter_arrival_times, metadata
from .network import Inputs, NetworkAttack
from .ranges import CHANNELS, COUNT, UNITS, Range, Ranges

if TYPE_CHECKING:
    from anabranch.nets.layers import Layer


class VarCNN(NetworkAttack):
    """Var-CNN (Bhat, Lu, Kwon and Devadas, PETS 2019).

    Two ResNet-18 of causal dilated convolutions, one over directions and one over inter-arrival
    times. Each also takes seven cumulative features (`metadata`). Their probabilities are averaged.
    As in the authors' program (`var_cnn.py`, `config.json`): mini-batches of 50; Adam at 0.001,
    multiplied by sqrt(0.1) after 5 epochs without progress on the validation set, but at least
    1e-5; training ends after 10 such epochs, or 150 in total. Without a validation set, a twentieth
    of the training set is held out for this.

    Departures: Inter-arrival times are taken before padding. The held-out twentieth is divided by
    load if `groups` are given. The running averages of batch normalisation are corrected for their
    start at zero. The first convolution starts He-normal like the others; the program leaves it
    Glorot-uniform. An epoch of equal accuracy and lower cross entropy also counts as progress.

    Attributes:
        metadata_mean_, metadata_scale_: (7,), mean and deviation that standardise the metadata.

    Args:
        length: number of packets used.
        width: channels of the first stage, doubled from stage to stage.
        hidden: units of the last dense layer.
        patience: epochs without progress before the learning rate falls.
        validation_share: share of the training set held out if no validation set is given.
    """

    ranges: ClassVar[Ranges] = NetworkAttack.ranges | {
        "length": COUNT,
        "width": CHANNELS,
        "hidden": UNITS,
        "patience": COUNT,
        "validation_share": Range(0.0, 0.9),
    }
    needs_times = True
    members = ("direction", "time")

    metadata_mean_: Floats
    metadata_scale_: Floats

    def __init__(
        self,
        *,
        length: int = 5000,
        width: int = 64,
        hidden: int = 1024,
        epochs: int = 150,
        batch_size: int = 50,
        learning_rate: float = 0.001,
        patience: int = 5,
        validation_share: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.length = length
        self.width = width
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation_share = validation_share
        self.seed = seed

    def _prepare(self, X: Sequences) -> None:
        table = metadata(X)
        deviation = table.std(axis=0)
        self.metadata_mean_ = table.mean(axis=0)
        self.metadata_scale_ = np.where(deviation > 0, deviation, 1.0)

    def _validation_share(self) -> float:
        return self.validation_share

    def _inputs(self, X: Sequences, member: str) -> Inputs:
        represent = directions if member == "direction" else inter_arrival_times
        scaled = (metadata(X) - self.metadata_mean_) / self.metadata_scale_
        return represent(X, self.length), scaled.astype(np.float32)

    def _build(self, member: str, rng: np.random.Generator, classes: int) -> Layer:
        from anabranch.nets.varcnn import var_cnn

        return var_cnn(rng, len(METADATA_FEATURES), classes, self.width, self.hidden)

    def _recipe(self) -> Recipe:
        plateau = Plateau(self.patience, factor=float(np.sqrt(0.1)), floor=1e-5)
        return Recipe("adam", self.learning_rate, self.epochs, self.batch_size, plateau=plateau)
