"""Metrics of an attack, from one row for each prediction.

| module | what it computes |
|---|---|
| `outcomes` | the rows: the predicted page of each load, and its score |
| `rates` | true, wrong and false positives, r-precision, recall, F1 |
| `bootstrap` | intervals, with pages as clusters |
| `paired` | the difference of two results on the loads that both predicted |
| `world` | closed-world accuracy; open-world operating point and curve; accuracy by share |
"""

from anabranch.metrics.bootstrap import Estimate, intervals
from anabranch.metrics.outcomes import UNMONITORED, Outcomes
from anabranch.metrics.paired import Difference, PairError, difference
from anabranch.metrics.rates import Counts, Rates, count, f1_score, r_precision
from anabranch.metrics.world import (
    best_threshold,
    by_share,
    closed_world,
    open_world,
    resolution,
    thresholds,
)

__all__ = [
    "UNMONITORED",
    "Counts",
    "Difference",
    "Estimate",
    "Outcomes",
    "PairError",
    "Rates",
    "best_threshold",
    "by_share",
    "closed_world",
    "count",
    "difference",
    "f1_score",
    "intervals",
    "open_world",
    "r_precision",
    "resolution",
    "thresholds",
]
