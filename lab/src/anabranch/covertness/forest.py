"""A random forest, tested on connections of sites or sessions that are not in its training set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GroupKFold

from anabranch.validate import TraceError

FOLDS = 5
TREES = 200
LEAF = 2
"""Minimum number of connections in a leaf."""
_SURE = 1e-3
"""Scores nearer to 0 or 1 are moved to this distance, to limit the weight of one connection."""


def scores(
    features: NDArray[np.float64],
    positive: NDArray[np.bool_],
    groups: NDArray[np.int64],
    seed: int,
) -> NDArray[np.float64]:
    """Returns float64 (n,): probabilities of being positive, each by a forest not trained on it.

    Args:
        features: (n, features), NaN where there is none.
        positive: (n,), whether a connection is of the positive class.
        groups: (n,), sites or sessions; no group is on both sides of a fold.
        seed: seed of the forests.

    Raises:
        TraceError: if a class has too few groups for two folds.
    """
    count = min(np.unique(groups[side]).size for side in (positive, ~positive))
    folds = min(FOLDS, int(count))
    if folds < 2:
        raise TraceError("each class needs captures of two sites or more")
    found = np.full(positive.size, 0.5)
    for train, test in GroupKFold(folds).split(features, positive, groups):
        if positive[train].all() or not positive[train].any():
            raise TraceError("both classes must have captures of the same sites")
        forest = RandomForestClassifier(
            TREES, min_samples_leaf=LEAF, class_weight="balanced", random_state=seed, n_jobs=1
        )
        forest.fit(features[train], positive[train])
        found[test] = forest.predict_proba(features[test])[:, 1]
    clipped: NDArray[np.float64] = np.clip(found, _SURE, 1 - _SURE)
    return clipped
