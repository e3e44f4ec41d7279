"""Valid values of attack parameters."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeAlias

MANY = 1_000_000
"""Upper limit of all counts, so that a mistyped value is rejected before it fills the memory."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `least` to `most`, both included; NaN and infinity are excluded."""

    least: float
    most: float = MANY

    def __contains__(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)

    def __str__(self) -> str:
        return f"from {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Choice:
    """A fixed set of strings."""

    options: tuple[str, ...]

    def __contains__(self, value: Any) -> bool:
        return value in self.options

    def __str__(self) -> str:
        return f"one of {', '.join(self.options)}"


Ranges: TypeAlias = dict[str, Range | Choice]
"""Valid values by parameter name."""

COUNT = Range(1)
"""Range of counts that must be at least 1."""
CHANNELS, UNITS = Range(1, 1024), Range(1, 16_384)
"""Ranges of a convolution's channels and a dense layer's units; no published attack has as many."""
SEED = Range(0, 2**64 - 1)
"""Range of seeds, the same as for splits."""


def alike(value: Any, default: Any) -> bool:
    """Returns whether a value has its default's type. A whole number is also valid for a float."""
    if isinstance(value, bool) or isinstance(default, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    for kind in (Integral, Real):
        if isinstance(default, kind):
            return isinstance(value, kind)
    return isinstance(value, type(default))
