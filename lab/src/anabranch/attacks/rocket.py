"""An attack by linear discriminants over shift-invariant convolutions of slot counts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from .base import Attack, Floats, Sequences, Task
from .discriminant import LinearDiscriminants
from .features import Convolution, draw_convolutions, rocket_features, slot_series
from .ranges import Range, Ranges

SHRINKAGES = (0.0001, 0.001, 0.01, 0.03, 0.1, 0.3)
"""Shrinkages to try; the most accurate one on the validation set is used."""
USUAL = 0.03
"""Default shrinkage, used without a validation set."""


class MiniRocket(Attack):
    """Linear discriminants over random convolutions of slot counts, pooled over time.

    Based on MiniRocket (Dempster, Schmidt and Webb, KDD 2021), with linear discriminants in place
    of its ridge classifier, and with different thresholds and pooled counts. No paper uses it to
    attack web pages. Results call it `rocket`, its earlier name here.

    Kernels of nine taps with weights -1 and 2 are dilated by powers of two. They are applied to
    square roots of slot counts. Features are the numbers of slots in which a result is above its
    threshold, and logarithms of a load's totals. Training takes seconds; that of networks takes
    hours. With counters, their increases in each slot are also used, like the packets seen.

    The attack is designed for loads with missing parts. On undefended loads, where a page's exact
    size reveals most, it is less accurate than other attacks (82 % in
    `docs/results/fingerprinting.md`).

    Attributes:
        convolutions_: kernels and thresholds.
        machine_: the fitted discriminants.
        shrinkage_: the best of `SHRINKAGES` on the validation set; `USUAL` without one.

    Args:
        slots: number of time slots.
        window: seconds that the slots cover.
        convolutions: number of kernels; each gives four features.
    """

    ranges: ClassVar[Ranges] = Attack.ranges | {
        "slots": Range(9, 10_000),
        "window": Range(1e-3, 1e6),
        "convolutions": Range(1, 10_000),
    }
    needs_times = True
    uses_counter = True

    convolutions_: list[Convolution]
    machine_: LinearDiscriminants
    shrinkage_: float

    def __init__(
        self,
        *,
        slots: int = 400,
        window: float = 12.0,
        convolutions: int = 500,
        seed: int = 0,
    ) -> None:
        self.slots = slots
        self.window = window
        self.convolutions = convolutions
        self.seed = seed

    def _probabilities(self, X: Sequences) -> Floats:
        """Returns class probabilities (n, classes)."""
        return self.machine_.predict_proba(self._features(X))

    def _fit(self, task: Task) -> None:
        series = slot_series(task.X, self.slots, self.window)
        self.convolutions_ = draw_convolutions(series, self.convolutions, self.seed)
        features = rocket_features(series, self.convolutions_)
        del series
        if task.validation is None:
            self.shrinkage_ = USUAL
            (self.machine_,) = LinearDiscriminants.fits(features, task.codes, [USUAL])
            return
        held_out, codes = task.validation
        asked = self._features(held_out)
        best = -1.0
        machines = LinearDiscriminants.fits(features, task.codes, SHRINKAGES)
        for shrinkage, machine in zip(SHRINKAGES, machines, strict=True):
            right = float(np.mean(machine.predict_proba(asked).argmax(axis=1) == codes))
            if right > best:
                best, self.shrinkage_, self.machine_ = right, shrinkage, machine

    def _features(self, X: Sequences) -> Floats:
        return rocket_features(slot_series(X, self.slots, self.window), self.convolutions_)
