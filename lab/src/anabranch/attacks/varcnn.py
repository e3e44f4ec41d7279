"""Var-CNN."""

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

    Two ResNet-18 of causal dilated convolutions, one over directions, one over inter-arrival
    times, each with seven cumulative numbers beside it; their probabilities are averaged. As in
    the authors' program (`var_cnn.py`, `config.json`): mini-batches of 50, Adam at 0.001, times
    sqrt(0.1) after 5 epochs without progress on the validation set (a twentieth of the training
    set where none is given), at least 1e-5; training ends after 10 such epochs, or 150 in all.

    Departures: inter-arrival times are taken before padding; the held-out twentieth is divided by
    load where `groups` are given; batch normalisation's averages are corrected for their start; the
    first convolution starts He-normal as the others do, where the program leaves it Glorot-uniform;
    an epoch of equal accuracy and less cross entropy is progress, too.

    Attributes:
        metadata_mean_, metadata_scale_: (7,) standardisation of the metadata.

    Args:
        length: packets looked at.
        width: channels of the first stage, doubled from stage to stage.
        hidden: units of the last dense layer.
        patience: epochs without progress before the rate falls.
        validation_share: share of the training set held out where no validation set is given.
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
