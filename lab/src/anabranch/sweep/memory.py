"""Number of a sweep's units (evaluations) that fit into memory at the same time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anabranch.attacks.network import NetworkAttack
from anabranch.evaluate import ERRORS, Spec
from anabranch.observers import path_count
from anabranch.traces import Traces

USED = 0.8
"""Share of the available memory that units may use together."""

_READ = 45
"""Bytes per packet while a file is read (measured: 43)."""
_LEARNT = 100
"""Bytes per packet in a sample, including temporary features (measured: 80)."""
_SAMPLE = 64 << 10
"""Bytes per sample: a row of inputs with intermediate arrays (measured: 58 KiB for 1,800 slots, 25
KiB for 5,000 packets), and its share of trees with a hundred classes.
"""
_FOREST, _NETWORK = 400 << 20, 1_500 << 20
"""Bytes of a process with its libraries and a model: a forest, or a network."""
_TRIED, _MORE = 16, 1.25
"""Number of loads from which the effect of padding is estimated, and a safety factor."""
_TESTED = 0.35
"""Maximum share of the loads in the test set, if the spec does not limit it."""


def needed(spec: Spec, traces: Traces) -> int:
    """Estimates an upper bound of the bytes that an evaluation uses."""
    model = _NETWORK if issubclass(spec.attack.kind, NetworkAttack) else _FOREST
    packets, loads = traces.times.size, len(traces)
    padded = packets * _growth(spec, traces)
    part = _part(spec.design.loads, traces, 1.0)
    seen = part * (spec.training.resplits * _seen(spec, traces) + spec.training.merged)
    most = max(seen, _part(spec.design.test_loads, traces, _TESTED))
    each = path_count_of(spec, traces) if spec.observer.rule == "any" else 1
    samples = int(part * loads * (spec.training.resplits * each + spec.training.merged))
    return model + _READ * packets + int(_LEARNT * padded * most) + _SAMPLE * samples


def _growth(spec: Spec, traces: Traces) -> float:
    """Returns the factor by which padding multiplies packets, from a few loads, times `_MORE`."""
    if not spec.padding:
        return 1.0
    few = traces[np.linspace(0, len(traces) - 1, min(_TRIED, len(traces))).astype(np.int64)]
    try:
        padded = spec.pipeline().apply(few, spec.seed)
    except ERRORS:
        return 1.0  # the evaluation will report the error
    return _MORE * padded.times.size / max(few.times.size, 1)


def _part(loads: int | None, traces: Traces, otherwise: float) -> float:
    """Returns `loads` per page as a share of all loads; `otherwise` if it is None."""
    if loads is None:
        return otherwise
    return min(1.0, loads * len(traces.names) / max(len(traces), 1))


def _seen(spec: Spec, traces: Traces) -> float:
    """Returns an upper bound of the share of packets that the observer sees."""
    split = spec.splitting.schedule is not None or traces.paths is not None
    by_chance = spec.observer.rule == "random" and spec.design.protocol == "honest"
    paths = path_count_of(spec, traces)
    return 1 / paths if split and by_chance else 1.0


def path_count_of(spec: Spec, traces: Traces) -> int:
    """Returns the number of paths of the spec's split, or of traces that are split already."""
    return spec.splitting.paths if spec.splitting.schedule is not None else path_count(traces)


def available() -> int:
    """Returns the available bytes: the lower of the system's and the control group's."""
    return min(_system(), _group())


def at_once(needs: Sequence[int], jobs: int, free: int) -> int:
    """Returns the number of units that may run at once, 1 to `jobs`, so that the largest fit."""
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
    """Returns the bytes left in the control group; without a limit, a large number."""
    folder = Path("/sys/fs/cgroup")
    try:
        most = int((folder / "memory.max").read_text())
        return max(0, most - int((folder / "memory.current").read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return 1 << 62
