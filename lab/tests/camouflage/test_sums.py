"""The classifier of StegoTorus' paper."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.attacks import AttackError
from anabranch.camouflage import sums
from anabranch.traces import Builder, Traces


def made(lengths: dict[str, int], turns: int = 6, seed: int = 1) -> Traces:
    """Returns loads of sites whose answers have about `lengths` packets."""
    chance = np.random.default_rng(seed)
    builder = Builder()
    for turn in range(turns):
        for name, length in lengths.items():
            count = length + int(chance.integers(-2, 3))
            sizes = np.where(np.arange(count) % 8 == 0, 300, -1500)
            builder.add(name, np.arange(count) / 100, sizes, run=turn)
    return builder.build()


def areas(traces: Traces) -> dict[str, float]:
    """Returns the areas by one window, trained on the loads that are tested."""
    return sums.areas(traces, traces, windows=[100])


def test_sums_are_of_payload_and_stay_after_the_last_packet() -> None:
    traces = Builder().add("a", [0.0, 0.1, 0.2, 0.3], [152, -1052, 52, -552]).build()
    (row,) = sums.cumulative(traces, 4)
    # The third packet has no payload.
    assert row[:4].tolist() == [100, 100, 100, 100]
    assert row[4:].tolist() == [0, 1000, 1500, 1500]


def test_an_area_counts_equal_scores_half() -> None:
    positive = np.array([True, True, False, False])
    assert sums.area(np.array([4.0, 3.0, 2.0, 1.0]), positive) == 1.0
    assert sums.area(np.array([1.0, 2.0, 3.0, 4.0]), positive) == 0.0
    assert sums.area(np.ones(4), positive) == 0.5
    assert sums.area(np.array([4.0, 1.0, 2.0, 1.0]), positive) == 0.625


def test_sites_of_other_lengths_are_found_and_equal_ones_are_not() -> None:
    found = areas(made({"short": 40, "long": 90}))
    assert list(found) == ["long", "short"]
    assert min(found.values()) == 1.0
    equal = areas(made({f"site {n}": 60 for n in range(6)}, turns=12))
    assert np.mean(list(equal.values())) == pytest.approx(0.5, abs=0.1)


def test_other_loads_of_a_site_need_not_teach_it() -> None:
    """Sites that change places between two kinds of loads are found worse than by chance."""
    here, there = made({"a": 40, "b": 90}), made({"a": 90, "b": 40})
    assert max(sums.areas(there, here).values()) < 0.5


def test_one_turn_is_too_few() -> None:
    with pytest.raises(AttackError, match="collect more turns"):
        areas(made({"a": 40, "b": 90}, turns=1))


def test_training_and_test_have_no_turn_in_common() -> None:
    """Loads that are alike within a turn alone give nothing away."""
    chance = np.random.default_rng(5)
    builder = Builder()
    for turn in range(8):
        for name in ("a", "b", "c"):
            length = int(chance.integers(30, 200))
            for _ in range(2):  # two equal loads
                builder.add(name, np.arange(length) / 100, np.full(length, -1500), run=turn)
    found = areas(builder.build())
    assert np.mean(list(found.values())) < 0.8
