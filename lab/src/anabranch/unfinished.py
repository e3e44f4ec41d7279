"""State of an unfinished training on disk, from which an interrupted training resumes.

Each part of an evaluation (a fold, a member of an ensemble) has a file next to the result's file,
named after the result and the part. The files are pickles of NumPy arrays, so the folder must be
trusted.
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
"""Default of `every_s`: about the maximum time, in seconds, that an interruption loses.

A write takes 1 to 2 s.
"""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Seconds of wall clock and of this process's processor time."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    @classmethod
    def now(cls) -> Self:
        """Returns the current values of both clocks, of which only differences are meaningful."""
        return cls(time.monotonic(), time.process_time())

    def __add__(self, other: Elapsed) -> Elapsed:
        return Elapsed(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def __sub__(self, other: Elapsed) -> Elapsed:
        return Elapsed(self.wall_s - other.wall_s, self.cpu_s - other.cpu_s)


class Unfinished:
    """Store for the state of a training, or of the parts of an evaluation.

    Args:
        stem: path of the files, to which the parts' names and `SUFFIX` are added.
        every_s: seconds after a write until the next one is `due`.
    """

    def __init__(self, stem: Path, every_s: float = EVERY_S) -> None:
        self._stem, self._every_s = stem, every_s
        self._parts: list[Unfinished] = []
        self._began = Elapsed.now()
        self._wrote_s = self._began.wall_s
        self._earlier = Elapsed()

    def part(self, name: str) -> Unfinished:
        """Returns a part with a file of its own."""
        part = Unfinished(self._stem.with_name(f"{self._stem.name}.{name}"), self._every_s)
        self._parts.append(part)
        return part

    def read(self) -> Any:
        """Returns the last state that any process wrote; None if it is missing or damaged."""
        try:
            elapsed, content = joblib.load(self._file)
        except FileNotFoundError:
            return None
        except Exception:  # unpickling garbage raises almost anything; training then restarts
            return None
        self._earlier = elapsed
        return content

    def write(self, content: Any) -> None:
        """Replaces the last state atomically."""
        now = Elapsed.now()
        with draft.file(self._file) as part:
            joblib.dump((self._earlier + (now - self._began), content), part, compress=3)
        self._wrote_s = now.wall_s

    @property
    def due(self) -> bool:
        """Returns whether `every_s` seconds have passed since this process's last write."""
        return time.monotonic() - self._wrote_s >= self._every_s

    def earlier(self) -> Elapsed:
        """Returns the time that earlier processes spent on the state that was read."""
        return sum((part.earlier() for part in self._parts), self._earlier)

    def forget(self) -> None:
        """Removes the files of all parts, also those and drafts of earlier processes."""
        stem, folder = glob.escape(self._stem.name), self._stem.parent
        patterns = (f"{stem}{SUFFIX}", f"{stem}.*{SUFFIX}", f".{stem}.*.part")
        for file in (file for pattern in patterns for file in folder.glob(pattern)):
            file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self._stem.with_name(f"{self._stem.name}{SUFFIX}")
