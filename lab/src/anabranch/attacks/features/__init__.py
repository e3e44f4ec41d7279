"""What the attacks look at: each file turns `Sequences` into one published representation."""

from __future__ import annotations

from .cumul import cumul_features
from .directions import directed_times, directions
from .kfp import KFP_FEATURES, kfp_features
from .tam import traffic_aggregation_matrix
from .varcnn import METADATA_FEATURES, inter_arrival_times, metadata

__all__ = [
    "KFP_FEATURES",
    "METADATA_FEATURES",
    "cumul_features",
    "directed_times",
    "directions",
    "inter_arrival_times",
    "kfp_features",
    "metadata",
    "traffic_aggregation_matrix",
]
