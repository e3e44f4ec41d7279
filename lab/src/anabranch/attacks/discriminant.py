"""Linear discriminant analysis for many classes, solved by Cholesky factorisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.special import softmax

from .base import Floats, Ints

FLOOR = 1e-6
"""Minimum mean variance within classes, relative to a feature's total variance of 1.

It keeps the shrunk covariance positive definite. If the loads of each class are identical, the
covariance should be 0, but rounding errors make it as low as -1e-13 in some direction. With this
floor, a shrinkage of 1e-4, the smallest of MiniRocket, adds more than this error.
"""


@dataclass(frozen=True, slots=True)
class LinearDiscriminants:
    """Gaussian classes with one shared covariance: linear decision boundaries.

    Corresponds to scikit-learn's `LinearDiscriminantAnalysis(solver="lsqr", shrinkage=...)` on
    standardised features, but computes the covariance once for several shrinkages.

    Attributes:
        centre, scale: float64 (features,), mean and deviation that standardise the features.
        weights: float64 (features, classes), coefficients of the class scores.
        offsets: float64 (classes,), constants of the class scores.
    """

    centre: Floats
    scale: Floats
    weights: Floats
    offsets: Floats

    @classmethod
    def fits(
        cls, features: Floats, codes: Ints, shrinkages: Sequence[float]
    ) -> Iterator[LinearDiscriminants]:
        """Yields one fit for each shrinkage; the covariance is computed once.

        Args:
            features: (n, features).
            codes: classes (n,), from 0, each of them present.
            shrinkages: each from 0 to 1: the weight of a multiple of the identity, towards which
                the covariance is shrunk.
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
        # The covariance within classes: of rows minus the means of their classes.
        covariance = (rows.T @ rows - (means.T * counts) @ means) / len(rows)
        size = max(float(np.trace(covariance)) / len(covariance), FLOOR)
        for shrinkage in shrinkages:
            shrunk = covariance * (1 - shrinkage)
            shrunk[np.diag_indices_from(shrunk)] += max(shrinkage, 1e-9) * size
            weights = cho_solve(cho_factor(shrunk), means.T)
            offsets = np.log(counts / counts.sum()) - 0.5 * (means * weights.T).sum(axis=1)
            yield cls(centre, scale, weights, offsets)

    def predict_proba(self, features: Floats) -> Floats:
        """Returns class probabilities (n, classes)."""
        scores = (features - self.centre) / self.scale @ self.weights + self.offsets
        return np.asarray(softmax(scores, axis=1))
