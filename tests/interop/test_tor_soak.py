"""A soak in short, and the rule by which memory is flat. ``make soak`` is the long one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Results
from harness.flat import Sample, growth
from harness.seeded import MIB
from harness.soak import Plan, soak

pytestmark = [pytest.mark.tor, pytest.mark.timeout(900)]


def test_relays_are_killed_and_streams_end_whole_or_with_an_error(
    tmp_path: Path, results: Results
) -> None:
    """Eight clients in one process for 40 seconds; nobody is spared."""
    said: list[str] = []
    plan = Plan(clients=8, seconds=40, kill_s=12, spared=(), pause_s=3, interval=30)
    found = soak(plan, tmp_path, said.append)
    complete = sum(stream["end"] == "complete" for stream in found.streams)
    results.add(
        "a soak in short", clients=plan.clients, seconds=plan.seconds, kills=len(found.kills),
        streams=len(found.streams), complete=complete,
    )  # fmt: skip
    assert found.faults == [], "\n".join([*said, *found.notes])
    assert len(found.kills) >= 2
    assert complete >= 50


@pytest.mark.parametrize(
    ("course", "is_flat"),
    [
        (lambda share: 100 * MIB, True),
        # It warms up in the first minutes, and quivers.
        (lambda share: (100 - 60 * math.exp(-20 * share)) * MIB, True),
        (lambda share: (100 + 3 * math.sin(90 * share)) * MIB, True),
        # A kilobyte for each of 20,000 streams; a step in the last third; a climb that ends early.
        (lambda share: (100 + 20 * share) * MIB, False),
        (lambda share: (100 + 20 * (share > 0.7)) * MIB, False),
        (lambda share: (100 + 30 * min(share, 0.8)) * MIB, False),
    ],
)
def test_memory_that_grows_is_told_from_memory_that_quivers(
    course: Callable[[float], float], is_flat: bool
) -> None:
    """By 120 samples with a MiB of noise."""
    noise = random.Random(1)
    samples = [
        Sample(10.0 * place, int(course(place / 120) + noise.uniform(-MIB, MIB)), 1, 1)
        for place in range(120)
    ]
    grown = growth(samples)
    assert grown is not None
    assert grown.is_flat == is_flat, str(grown)


def test_a_process_that_lived_for_a_moment_is_not_judged() -> None:
    """All of it may be warming up."""
    assert growth([Sample(0.0, MIB, 1, 1)] * 59) is None
