"""Linear discriminants of many classes, fitted by one Cholesky factorisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.special import softmax

from .base import Floats, Ints

FLOOR = 1e-6
"""Least mean variance within classes, where a feature's whole variance is 1.

Where a class's loads are all alike, the covariance is what rounding leaves of a difference of two
equal matrices, down to -1e-13 in some direction. The least shrinkage of this stays above that.
"""


@dataclass(frozen=True, slots=True)
class LinearDiscriminants:
    """Gaussian classes of one covariance: equal chances lie on planes.

    Attributes:
        centre, scale: float64 (features,), what features are standardised by.
        weights: float64 (features, classes).
        offsets: float64 (classes,).
    """

    centre: Floats
    scale: Floats
    weights: Floats
    offsets: Floats

    @classmethod
    def fits(
        cls, features: Floats, codes: Ints, shrinkages: Sequence[float]
    ) -> Iterator[LinearDiscriminants]:
        """Fits classes with the covariance that all share, once for each shrinkage.

        Args:
            features: (n, features).
            codes: classes (n,), from 0, every one of them present.
            shrinkages: each from 0 to 1, how far the covariance is drawn to a multiple of the
                identity.
        """
        centre = features.mean(axis=0)
        spread = features.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        rows = (features - centre) / scale
        counts = np.bincount(codes).astype(np.float64)
        members = csr_array(
            (np.ones(codes.size), (codes, np.arange(codes.size))), (counts.size, codes.size)
        )
        means = members @ rows / counts[:, None]
        # Of rows without their classes' means.
        covariance = (rows.T @ rows - (means.T * counts) @ means) / len(rows)
        size = max(float(np.trace(covariance)) / len(covariance), FLOOR)
        for shrinkage in shrinkages:
            shrunk = covariance * (1 - shrinkage)
            shrunk[np.diag_indices_from(shrunk)] += max(shrinkage, 1e-9) * size
            weights = cho_solve(cho_factor(shrunk), means.T)
            offsets = np.log(counts / counts.sum()) - 0.5 * (means * weights.T).sum(axis=1)
            yield cls(centre, scale, weights, offsets)

    def predict_proba(self, features: Floats) -> Floats:
        """Class probabilities (n, classes)."""
        scores = (features - self.centre) / self.scale @ self.weights + self.offsets
        return np.asarray(softmax(scores, axis=1))
