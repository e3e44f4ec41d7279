"""Files and folders that appear when they are complete, or not at all.

A symbolic link is kept: its target is written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.validate import TraceError


@contextmanager
def file(target: Path) -> Iterator[Path]:
    """Yields a temporary path next to `target`; renames it to `target`, or removes it on an error.

    An older file at `target` is kept until then. The file is readable by its owner only, because
    traces are private.
    """
    if target.is_dir():
        raise TraceError("is a folder, not a file", file=target)
    if target.exists() and not target.is_file():
        raise TraceError("is not a regular file: choose another name", file=target)
    target = target.resolve()
    handle, name = tempfile.mkstemp(".part", f".{target.name}.", _parent(target))
    draft = Path(name)
    open(handle, "wb").close()  # noqa: PTH123  # only to close the handle
    try:
        yield draft
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def folder(target: Path) -> Iterator[Path]:
    """Yields a temporary folder; renames it to `target`, or removes it on an error.

    An existing `target` must be an empty folder: nothing is overwritten.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise TraceError("exists and is not an empty folder: choose another name", file=target)
    target = target.resolve()
    draft = Path(tempfile.mkdtemp(".part", f".{target.name}.", _parent(target)))
    try:
        yield draft
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _parent(target: Path) -> Path:
    if not target.parent.is_dir():
        raise TraceError("its folder does not exist", file=target)
    return target.parent
