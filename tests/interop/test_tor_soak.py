"""A short soak, and the rule for flat memory. ``make soak`` runs the long one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Results
from harness.flat import Sample, growth
from harness.mixed import MixedPlan, by_chance, failed, judge, kind_of, trial
from harness.mixed import report as mixed_report
from harness.seeded import MIB
from harness.soak import Plan, soak

pytestmark = [pytest.mark.tor, pytest.mark.timeout(900)]


def test_relays_are_killed_and_streams_end_whole_or_with_an_error(
    tmp_path: Path, results: Results
) -> None:
    """Eight clients run in one process for 40 seconds, and any relay may be killed."""
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


def test_among_stock_relays_ours_lose_no_more_streams_than_a_stock_network(
    tmp_path: Path, results: Results
) -> None:
    """``make mixed-soak`` in short: two clients, one minute, both networks at the same time."""
    plan = MixedPlan(clients=2, users=3, seconds=60, kill_s=12, pause_s=2)
    seen = trial(plan, tmp_path / "networks")
    for one in seen.values():
        results.add(
            "a mixed network and its twin in short", network=one.kind, kills=len(one.kills),
            streams=len(one.streams), failed=len(failed(one.streams)),
        )  # fmt: skip
        assert len(one.kills) >= 2
        assert len(one.to(onion=False)) >= 30
    assert judge(seen) == [], mixed_report(seen)


def test_what_chance_explains_is_told_from_what_it_does_not() -> None:
    """Fisher's test decides on streams; log lines are compared without their varying parts."""
    assert by_chance((0, 100), (0, 100)) == pytest.approx(1)
    assert by_chance((3, 4), (1, 4)) == pytest.approx(17 / 70)
    assert by_chance((20, 100), (2, 100)) < 0.001
    line = "exit0: Nov 24 22:00:00 [warn] {CIRC} Guard ours1 ($" + 40 * "A" + ") fails 70 of 151"
    other = "relay2: Nov 24 23:00:01 [warn] {CIRC} Guard relay0 ($" + 40 * "B" + ") fails 1 of 2"
    assert kind_of(line) == kind_of(other) == "Guard NAME (NAME) fails # of #"


@pytest.mark.parametrize(
    ("course", "is_flat"),
    [
        (lambda share: 100 * MIB, True),
        # Flat: memory that grows in the first minutes, and memory that fluctuates.
        (lambda share: (100 - 60 * math.exp(-20 * share)) * MIB, True),
        (lambda share: (100 + 3 * math.sin(90 * share)) * MIB, True),
        # Not flat: a kilobyte for each of 20,000 streams; a step in the last third; growth that
        # ends early.
        (lambda share: (100 + 20 * share) * MIB, False),
        (lambda share: (100 + 20 * (share > 0.7)) * MIB, False),
        (lambda share: (100 + 30 * min(share, 0.8)) * MIB, False),
    ],
)
def test_memory_that_grows_is_told_from_memory_that_quivers(
    course: Callable[[float], float], is_flat: bool
) -> None:
    """The rule is applied to 120 samples with a MiB of noise."""
    noise = random.Random(1)
    samples = [
        Sample(10.0 * place, int(course(place / 120) + noise.uniform(-MIB, MIB)), 1, 1)
        for place in range(120)
    ]
    grown = growth(samples)
    assert grown is not None
    assert grown.is_flat == is_flat, str(grown)


def test_a_process_that_lived_for_a_moment_is_not_judged() -> None:
    """A short life may consist of warm-up only."""
    assert growth([Sample(0.0, MIB, 1, 1)] * 59) is None
