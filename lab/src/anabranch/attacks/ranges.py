"""What the parameters of attacks may be."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeAlias

MANY = 1_000_000
"""No count is greater: a slip of the finger is refused before it fills the memory."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `least` to `most`, both included; neither NaN nor infinity is one of them."""

    least: float
    most: float = MANY

    def __contains__(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)

    def __str__(self) -> str:
        return f"from {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Some texts."""

    options: tuple[str, ...]

    def __contains__(self, value: Any) -> bool:
        return value in self.options

    def __str__(self) -> str:
        return f"one of {', '.join(self.options)}"


Ranges: TypeAlias = dict[str, Range | Choice]
"""By the names of parameters."""

COUNT = Range(1)
"""Of things of which there must be one."""
CHANNELS, UNITS = Range(1, 1024), Range(1, 16_384)
"""Of a convolution and of a dense layer: many times those of any published attack."""
SEED = Range(0, 2**64 - 1)
"""Those that splits have."""


def alike(value: Any, default: Any) -> bool:
    """Whether a value is of the default's kind; a whole number stands for a real one, too."""
    if isinstance(value, bool) or isinstance(default, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    for kind in (Integral, Real):
        if isinstance(default, kind):
            return isinstance(value, kind)
    return isinstance(value, type(default))
