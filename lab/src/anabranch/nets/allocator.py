"""Sets the C library's allocator to keep freed memory for the next training step."""

from __future__ import annotations

import ctypes
import os
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Numbers of glibc's parameters (mallopt(3))."""

_KEPT = {_TRIM_THRESHOLD: (1 << 31) - 1, _TOP_PAD: 256 << 20, _MMAP_MAX: 0}
"""Values of the parameters: bytes kept at the heap's end, maximum number of separate mappings."""


@cache
def keep_freed_memory() -> bool:
    """Makes this process keep freed memory for new arrays, up to 2 GiB at the heap's end.

    Networks allocate and free the same arrays at each step. If the memory is returned to the
    kernel in between, the kernel clears the pages again, which takes a tenth to a sixth of a
    training's processor time.

    Returns:
        Whether it succeeded. Only glibc is supported. Settings of the user (`MALLOC_...`,
        `GLIBC_TUNABLES`) take precedence: then nothing is changed.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return all(mallopt(number, value) for number, value in _KEPT.items())
