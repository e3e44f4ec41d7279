"""A folder of captures that a benchmark fills; an interrupted benchmark continues where it
stopped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Recorder:
    """A folder of captures, with a listing of the complete captures: JSON lines with the key
    `file`.
    """

    folder: Path
    list_name: str
    done: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.listing = self.folder / self.list_name
        if self.listing.exists():
            lines = self.listing.read_text().splitlines()
            self.done = {json.loads(line)["file"] for line in lines}

    def place(self, file: str) -> Path:
        """Returns the path of a capture."""
        place = self.folder / file
        place.parent.mkdir(exist_ok=True)
        return place

    def add(self, file: str, lines: Sequence[str]) -> None:
        """Adds a complete capture to the listing, with these lines."""
        with self.lock:
            self.done.add(file)
            with self.listing.open("a") as listing:
                listing.writelines(lines)
