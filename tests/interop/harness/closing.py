"""A base class for objects that are closed at the end of their ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """An object that is closed at the end of the ``with`` block, also after an exception."""

    @abstractmethod
    def close(self) -> None:
        """Closes the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
