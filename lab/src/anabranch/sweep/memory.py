"""How many units fit into memory at a time."""

from __future__ import annotations

import os
from pathlib import Path

from anabranch.attacks.network import NetworkAttack
from anabranch.evaluate import Spec
from anabranch.evaluate.attack import TABLE
from anabranch.traces import Traces

USED = 0.8
"""The part of the available memory that units may take together."""

_PACKET = 40
"""Bytes of a packet in samples: time, size, path, and what features take in passing (measured)."""
_FOREST, _NETWORK = 400 << 20, 1_500 << 20
"""Bytes of a process with its libraries and a model."""


def needed(spec: Spec, traces: Traces) -> int:
    """An estimate from above of the bytes that an evaluation takes."""
    copies = 1 + spec.resplits + spec.merged
    model = _NETWORK if issubclass(TABLE[spec.attack], NetworkAttack) else _FOREST
    return model + _PACKET * traces.times.size * copies


def available() -> int:
    """Bytes that may still be taken, by the system's word or the control group's."""
    return min(_system(), _group())


def at_once(needs: list[int], jobs: int, free: int) -> int:
    """How many units may be under way: at most `jobs`, the largest fitting together, at least 1."""
    largest = sorted(needs, reverse=True)
    total, fitting = 0, 0
    for need in largest[:jobs]:
        total += need
        if total > USED * free:
            break
        fitting += 1
    return max(1, fitting)


def _system() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        rows = dict(line.split(":", 1) for line in lines)
        return int(rows["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group() -> int:
    """What the control group leaves; without a limit, everything."""
    folder = Path("/sys/fs/cgroup")
    try:
        most = int((folder / "memory.max").read_text())
        return max(0, most - int((folder / "memory.current").read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return 1 << 62
