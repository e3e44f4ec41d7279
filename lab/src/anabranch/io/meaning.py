"""Facts about traces that their file does not contain and that the user has to supply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from anabranch.io.headers import End


@dataclass(frozen=True, slots=True)
class Meaning:
    """Attributes of loads in formats that do not record them.

    Attributes:
        label: label of the only load of a folder of captures.
        monitored: whether the labels are monitored, for files without this information.
        server: address and port of the server, for captures without packet directions; other
            packets are ignored.
        unmonitored: the class number of all unmonitored pages in an npz file's `y`.
    """

    label: str = ""
    monitored: bool = True
    unmonitored: int | None = None
    server: End | None = None

    def names(self) -> Iterator[str]:
        """Yields the names of the attributes that differ from their defaults."""
        return (each.name for each in fields(self) if getattr(self, each.name) != each.default)
