from __future__ import annotations

import numpy as np
import pytest
from bursty import bursty

from anabranch import _core
from anabranch.defences import Decoys, DefenceError, Pipeline, overhead
from anabranch.evaluate import Spec
from anabranch.observers import SettingError
from anabranch.splitting import Split

SPLIT = Split("uniform", "20ms", 3)


def test_decoys_cost_no_more_than_their_budget_and_go_by_paths_that_rest() -> None:
    loads = bursty(10, bursts=400)
    before = SPLIT.split(loads)
    for budget, share in (("10%", 0.1), ("20%", 0.2)):
        done = Pipeline([SPLIT, Decoys(budget)]).apply(loads, 3)
        cost = overhead(loads, done)
        assert done.padding.any()
        assert (cost.padding <= share * cost.real + 1e-9).all()
        assert cost.bandwidth > share / 4
        assert cost.time == 0
        # Real packets keep their path and time.
        real = ~done.padding
        assert before.paths is not None
        assert done.paths is not None
        assert (done.times[real] == before.times).all()
        assert (done.paths[real] == before.paths).all()
    assert done.paths is not None
    ties = 0
    for k in range(len(done)):
        own = done.packets(k)
        # Decoys are sent at whole nanoseconds, before or after a packet of the same nanosecond.
        times, sizes = np.rint(done.times[own] * 1e9), done.sizes[own]
        paths, fake = done.paths[own], done.padding[own]
        for sign in (1, -1):
            one = np.flatnonzero((np.sign(sizes) == sign) & ~fake)
            ours = np.flatnonzero((np.sign(sizes) == sign) & fake)
            before_it = np.searchsorted(times[one], times[ours], side="left") - 1
            after_it = np.searchsorted(times[one], times[ours], side="right") - 1
            assert bool((before_it >= 0).all())
            real_paths = paths[one]
            rests = (real_paths[before_it] != paths[ours]) | (real_paths[after_it] != paths[ours])
            assert rests.all()
            ties += int((before_it != after_it).sum())
            assert np.isin(sizes[ours], sizes[one]).all()
    assert ties < done.padding.sum() / 100


def test_draws_are_repeated_by_a_seed_and_differ_by_load_and_replica() -> None:
    loads = bursty(4, bursts=200)
    pipeline = Pipeline([SPLIT, Decoys("20%")])
    first, again, other = (pipeline.apply(loads, 1, replica) for replica in (0, 0, 1))
    assert first.times.tolist() == again.times.tolist()
    assert first.times.tolist() != other.times.tolist()
    alone = pipeline.apply(loads[2:3], 1)
    assert alone.times.tolist() == first.times[first.packets(2)].tolist()


def test_they_are_those_of_the_tunnels_ends() -> None:
    times = np.arange(3_000) / 1e3
    sizes = np.full(3_000, 1_200, np.int32)
    paths = (np.arange(3_000) // 20 % 3).astype(np.int16)
    sent = _core.decoys("20%", 7, 3, times, sizes, paths)
    again = _core.decoys("20%", 7, 3, times, sizes, paths)
    for one, other in zip(sent, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert 0 < sent[1].sum() <= 0.2 * sizes.sum()
    with pytest.raises(ValueError, match="give 1 to 64"):
        _core.decoys("20%", 7, 2, times, sizes, paths)


def test_what_is_not_split_or_has_no_far_end_is_refused() -> None:
    loads = bursty(2, bursts=20)
    with pytest.raises(DefenceError, match="traces are not split"):
        Decoys().apply(loads, 0)
    for settings, problem in (
        ({"defence": "decoys:10%"}, "defence: decoys are added to paths"),
        ({"path_defence": "decoys:10%", "mode": "follow"}, "cannot recognise decoys"),
        ({"path_defence": "decoys:10%", "mode": "follow:5ms"}, "cannot recognise decoys"),
    ):
        with pytest.raises(SettingError, match=problem):
            Spec.of(schedule="uniform", every="20ms", **settings)
    Spec.of(schedule="uniform", every="20ms", path_defence="decoys:10%")
    lone = Pipeline([Split("uniform", "20ms", 1), Decoys()]).apply(loads, 0)
    assert not lone.padding.any()
