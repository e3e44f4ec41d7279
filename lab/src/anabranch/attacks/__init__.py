"""Website-fingerprinting attacks, one module each, with the same interface (`base.Attack`).

`ATTACKS` maps names to classes; `anabranch.registry` has their table. Network attacks need JAX,
Equinox and Optax. Without these packages they can still be constructed and listed; `fit` then
raises `MissingExtraError`, whose one-line message names the packages to install.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import Final

from anabranch import registry
from anabranch.registry import ALIASES, AttackRow

from .base import Attack, AttackError, EpochReport, Observed, Sequences, Task
from .course import CourseForest, Size
from .cumul import Cumul
from .df import DeepFingerprinting
from .kfp import KFingerprinting
from .kfp_paths import PathForest
from .pfp import PFP
from .rf import RobustFingerprinting
from .rocket import MiniRocket
from .sequences import PathSequences
from .tiktok import TikTok
from .varcnn import VarCNN


def _class_of(row: AttackRow) -> type[Attack]:
    module, _, name = row.place.partition(":")
    found: type[Attack] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


ATTACKS: Final[MappingProxyType[str, type[Attack]]] = MappingProxyType(
    {row.name: _class_of(row) for row in registry.ATTACKS}
)
"""Attack classes by the name that result files use, from the rows of `anabranch.registry`."""

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
    "PathForest",
    "PathSequences",
    "RobustFingerprinting",
    "Rocket",
    "Sequences",
    "Size",
    "Task",
    "TikTok",
    "VarCNN",
]
