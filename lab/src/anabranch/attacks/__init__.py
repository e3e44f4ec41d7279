"""Website-fingerprinting attacks, one module each, with the same interface (`base.Attack`).

`ATTACKS` maps names to classes. Network attacks need JAX, Equinox and Optax. Without these packages
they can still be constructed and listed; `fit` then raises `MissingExtraError`, whose one-line
message names the packages to install.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from .base import Attack, AttackError, EpochReport, Observed, Sequences, Task
from .course import CourseForest, Size
from .cumul import Cumul
from .df import DeepFingerprinting
from .kfp import KFingerprinting
from .pfp import PFP
from .rf import RobustFingerprinting
from .rocket import MiniRocket
from .tiktok import TikTok
from .varcnn import VarCNN

ATTACKS: Final[MappingProxyType[str, type[Attack]]] = MappingProxyType(
    {
        "k-fp": KFingerprinting,
        "cumul": Cumul,
        "p-fp": PFP,
        "df": DeepFingerprinting,
        "tik-tok": TikTok,
        "var-cnn": VarCNN,
        "rf": RobustFingerprinting,
        "rocket": MiniRocket,
        "forest": CourseForest,
        "size": Size,
    }
)
"""Attack classes by the name that result files use."""

ALIASES: Final[MappingProxyType[str, str]] = MappingProxyType({"minirocket": "rocket"})
"""Alternative names for options and sweeps, each mapped to the name in results."""

Rocket = MiniRocket
"""Earlier name of `MiniRocket` in this package."""

__all__ = [
    "ALIASES",
    "ATTACKS",
    "PFP",
    "Attack",
    "AttackError",
    "CourseForest",
    "Cumul",
    "DeepFingerprinting",
    "EpochReport",
    "KFingerprinting",
    "MiniRocket",
    "Observed",
    "RobustFingerprinting",
    "Rocket",
    "Sequences",
    "Size",
    "Task",
    "TikTok",
    "VarCNN",
]
