"""Website-fingerprinting attacks, one file each, all with the same contract (`base.Attack`).

`ATTACKS` names them. The networks need JAX, Equinox and Optax; without these they can be
constructed and listed, and `fit` raises one line that says what to install.
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
"""Every attack by the name that result files use."""

ALIASES: Final[MappingProxyType[str, str]] = MappingProxyType({"minirocket": "rocket"})
"""Names for options and sweeps, each with the name that results have."""

Rocket = MiniRocket
"""The first name of `MiniRocket` here."""

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
