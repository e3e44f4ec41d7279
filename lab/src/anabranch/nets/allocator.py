"""The C library's allocator, told to keep what a training frees for its next step."""

from __future__ import annotations

import ctypes
import os
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Numbers of glibc's parameters (mallopt(3))."""

_KEPT = {_TRIM_THRESHOLD: (1 << 31) - 1, _TOP_PAD: 256 << 20, _MMAP_MAX: 0}
"""Bytes at the heap's end; of the last, mappings apart from the heap."""


@cache
def keep_freed_memory() -> bool:
    """Has this process keep what it frees for its next arrays, all but 2 GiB at the heap's end.

    Networks take and free the same arrays at each step; given back in between, their pages are
    cleared anew by the kernel, a tenth to a sixth of a training's processor time.

    Returns:
        whether it will: it needs glibc, and settings of the user's (`MALLOC_...`, `GLIBC_TUNABLES`)
        are left alone.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return all(mallopt(number, value) for number, value in _KEPT.items())
