"""The files of a package and of the packages that it links to, merged to one tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Maximum number of links to follow; a longer chain counts as a circle.
MOST_LINKS = 16


@dataclass(frozen=True)
class Tree:
    """Several unpacked folders as one tree; the first folder that has a path provides its file.

    Debian's documentation links its scripts and fonts to other packages' files (`jquery.js ->
    ../../../javascript/jquery/jquery.js`). Such links are followed only within the folders, so
    that a package cannot refer to other files of this machine.
    """

    layers: tuple[Path, ...]

    def find(self, path: PurePosixPath) -> Path | None:
        """Returns the real file or folder of `path` (from the tree's root), or None."""
        left = list(path.parts)
        here: list[str] = []
        links = 0
        while left:
            part = left.pop(0)
            if part in {"/", "."}:
                continue
            if part == "..":
                here = here[:-1]
                continue
            at = self._present("/".join([*here, part]))
            if at is None:
                return None
            if not at.is_symlink():
                here.append(part)
                continue
            links += 1
            if links > MOST_LINKS:
                return None
            target = PurePosixPath(at.readlink())
            here = [] if target.is_absolute() else here
            left = [*target.parts, *left]
        return self._present("/".join(here))

    def _present(self, path: str) -> Path | None:
        """Returns the entry of the first folder that has this path; a dangling link counts too."""
        return next((at for layer in self.layers if os.path.lexists(at := layer / path)), None)
