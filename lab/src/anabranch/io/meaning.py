"""What a file does not say of itself, and the user has to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from anabranch.io.headers import End


@dataclass(frozen=True, slots=True)
class Meaning:
    """Attributes of loads in formats that do not record them.

    Attributes:
        label: of a capture's only load.
        monitored: whether an attacker watches for the labels, where a file does not tell.
        server: of captures, the address and port whose packets are taken, where the captures do not
            tell which way a packet went.
        unmonitored: the number that an npz file's `y` has for unmonitored pages, as WFlib's do.
    """

    label: str = ""
    monitored: bool = True
    unmonitored: int | None = None
    server: End | None = None

    def said(self) -> Iterator[str]:
        """Names of the attributes that are not as usual."""
        return (each.name for each in fields(self) if getattr(self, each.name) != each.default)
