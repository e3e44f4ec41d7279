"""A small file system for a single test, which the test can fill."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.tools import MissingPeer, tool

BLOCK = 4096
FILLER = "filler"


@contextmanager
def small_disk(at: Path, kilobytes: int) -> Iterator[Path]:
    """Yields a folder on a file system of ``kilobytes``, mounted during the block.

    Raises:
        MissingPeer: if the tests do not run as root, who alone may mount file systems.
    """
    if os.geteuid() != 0:
        raise MissingPeer("a file system of a test's own, which needs root here")
    at.mkdir()
    mount = [tool("mount"), "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=0700", "tmpfs", str(at)]
    subprocess.run(mount, check=True)
    try:
        yield at
    finally:
        subprocess.run([tool("umount"), str(at)], check=True)


def fill(disk: Path) -> None:
    """Fills the disk, so that files can be created but not written to."""
    with (disk / FILLER).open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(BLOCK)):
            pass


def contents(disk: Path) -> dict[str, bytes]:
    """Returns the contents of all files below ``disk`` by name, without the filler and locks."""
    files = [file for file in disk.rglob("*") if file.is_file()]
    kept = [file for file in files if file.name not in (FILLER, "lock")]
    return {str(file.relative_to(disk)): file.read_bytes() for file in kept}
