"""An attack of one's own in a file: neighbours by the packets between a load's pauses.

    anabranch-lab evaluate loads.parquet --attack lab/examples/bursts.py:Bursts --attack k-fp

Any scikit-learn classifier does. `X` is `anabranch.attacks.Sequences`: the packets of all loads in
flat arrays, of which load `i` has those from `offsets[i]` to `offsets[i + 1]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import KNeighborsClassifier

from anabranch.attacks import Sequences


class Bursts(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Loads are alike whose bursts, one after the other, have about as many packets each way.

    Args:
        pause: seconds without a packet that end a burst.
        most: bursts looked at.
        neighbours: that vote.
    """

    needs_times = True

    def __init__(self, pause: float = 0.02, most: int = 20, neighbours: int = 3) -> None:
        self.pause = pause
        self.most = most
        self.neighbours = neighbours

    def fit(self, X: Sequences, y: Any) -> Bursts:
        """Keeps the bursts of the training loads."""
        self.model_ = KNeighborsClassifier(self.neighbours, weights="distance")
        self.model_.fit(self._bursts(X), y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Sequences) -> Any:
        """Class probabilities (n, classes)."""
        return self.model_.predict_proba(self._bursts(X))

    def predict(self, X: Sequences) -> Any:
        """The most probable page of each load."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _bursts(self, X: Sequences) -> Any:
        """(n, 2 * most): logarithms of the packets up, then down, of each burst."""
        ends = (np.diff(X.times, prepend=0) > self.pause) & (X.positions > 0)
        total = np.r_[0, np.cumsum(ends)]
        place = np.minimum(total[1:] - total[X.offsets[X.owners]], self.most - 1)
        found = np.zeros((len(X), 2 * self.most))
        np.add.at(found, (X.owners, place + self.most * (X.directions < 0)), 1)
        return np.log1p(found)
