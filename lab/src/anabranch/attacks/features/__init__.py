"""Features for attacks: each module converts `Sequences` (page loads) into one kind of input."""

from __future__ import annotations

from .courses import course_features, total_features
from .cumul import cumul_features
from .directions import directed_times, directions
from .kfp import KFP_COUNTER_FEATURES, KFP_FEATURES, kfp_features
from .rocket import Convolution, draw_convolutions, rocket_features, slot_series
from .tam import traffic_aggregation_matrix
from .varcnn import METADATA_FEATURES, inter_arrival_times, metadata

__all__ = [
    "KFP_COUNTER_FEATURES",
    "KFP_FEATURES",
    "METADATA_FEATURES",
    "Convolution",
    "course_features",
    "cumul_features",
    "directed_times",
    "directions",
    "draw_convolutions",
    "inter_arrival_times",
    "kfp_features",
    "metadata",
    "rocket_features",
    "slot_series",
    "total_features",
    "traffic_aggregation_matrix",
]
