"""What ends with its ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Something that is closed at the end of the ``with`` block, however the block ends."""

    @abstractmethod
    def close(self) -> None:
        """Ends it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
