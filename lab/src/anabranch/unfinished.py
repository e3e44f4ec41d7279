"""What a training keeps on disk while it is under way, so that one that is cut goes on.

The parts of an evaluation (its folds, the members of an ensemble) each have a file beside the
result's, named after both. They are pickles of NumPy arrays: the folder has to be one's own.
"""

from __future__ import annotations

import glob
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import joblib

from anabranch.io import draft

SUFFIX = ".training"

EVERY_S = 300.0
"""Seconds of a long epoch that a cut costs at most; writing a state takes one or two."""


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of wall clock and of this process's processor time."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    @classmethod
    def now(cls) -> Self:
        """Both clocks; only differences mean something."""
        return cls(time.monotonic(), time.process_time())

    def __add__(self, other: Took) -> Took:
        return Took(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def __sub__(self, other: Took) -> Took:
        return Took(self.wall_s - other.wall_s, self.cpu_s - other.cpu_s)


class Unfinished:
    """The state of one training, or of parts that each have one.

    Args:
        stem: path of the files, to which the parts' names and `SUFFIX` are added.
        every_s: seconds between two writings after which another is `due`.
    """

    def __init__(self, stem: Path, every_s: float = EVERY_S) -> None:
        self._stem, self._every_s = stem, every_s
        self._parts: list[Unfinished] = []
        self._began = Took.now()
        self._wrote_s = self._began.wall_s
        self._earlier = Took()

    def part(self, name: str) -> Unfinished:
        """A part with a file of its own."""
        part = Unfinished(self._stem.with_name(f"{self._stem.name}.{name}"), self._every_s)
        self._parts.append(part)
        return part

    def read(self) -> Any:
        """What was last written, by whatever process; None if nothing was, or it is damaged."""
        try:
            took, content = joblib.load(self._file)
        except FileNotFoundError:
            return None
        except Exception:  # unpickling garbage raises almost anything; it costs a new start
            return None
        self._earlier = took
        return content

    def write(self, content: Any) -> None:
        """Replaces what was last written: wholly, or not at all."""
        now = Took.now()
        with draft.file(self._file) as part:
            joblib.dump((self._earlier + (now - self._began), content), part, compress=3)
        self._wrote_s = now.wall_s

    @property
    def due(self) -> bool:
        """Whether this process has written nothing for so long that much would be lost."""
        return time.monotonic() - self._wrote_s >= self._every_s

    def earlier(self) -> Took:
        """What processes before this one spent on what was read here."""
        return sum((part.earlier() for part in self._parts), self._earlier)

    def forget(self) -> None:
        """Removes all files, of earlier processes too, and drafts of those that were killed."""
        stem, folder = glob.escape(self._stem.name), self._stem.parent
        patterns = (f"{stem}{SUFFIX}", f"{stem}.*{SUFFIX}", f".{stem}.*.part")
        for file in (file for pattern in patterns for file in folder.glob(pattern)):
            file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self._stem.with_name(f"{self._stem.name}{SUFFIX}")
