"""Freed memory is kept for the next step."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PAGES = """
import numpy, resource
from anabranch.nets.allocator import keep_freed_memory
assert keep_freed_memory() is {kept}
numpy.ones(1 << 23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
numpy.ones(1 << 23)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints the page faults of an array of 64 MiB, allocated after one of its size was freed."""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def pages(kept: bool, **variables: str) -> int:
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", PAGES.format(kept=kept)]
    done = subprocess.run(command, env=theirs | variables, check=True, capture_output=True)
    return int(done.stdout)


@glibc
def test_the_next_array_takes_what_the_last_one_gave_back() -> None:
    assert pages(kept=True) < 10


@glibc
def test_settings_of_the_user_stand() -> None:
    assert pages(kept=False, MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 20
