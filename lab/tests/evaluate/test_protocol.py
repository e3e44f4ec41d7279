from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anabranch import protocol
from anabranch.evaluate.samples import Sampler
from anabranch.evaluate.spec import Spec
from anabranch.metrics import UNMONITORED
from anabranch.observers import SettingError
from anabranch.protocol import Design, Fold
from anabranch.traces import Traces
from anabranch.validate import TraceError

from .conftest import page_loads


def folds(traces: Traces, seed: int = 0, **settings: Any) -> list[Fold]:
    design = Design(**settings)
    pages = protocol.choose_pages(traces, design, seed)
    return list(protocol.honest(traces, design, pages, seed))


def described(traces: Traces) -> str:
    return protocol.describe(traces, Design(), protocol.choose_pages(traces, Design()))


def test_the_last_run_tests_and_the_one_before_chooses(pages: Traces) -> None:
    (fold,) = folds(pages)
    assert set(pages.run[fold.train]) == {1, 2, 3}
    assert set(pages.run[fold.validation]) == {4}
    assert set(pages.run[fold.test]) == {5}
    assert fold.train.size + fold.validation.size + fold.test.size == len(pages)


def test_runs_can_be_named(pages: Traces) -> None:
    (fold,) = folds(pages, test_run=2, validation_run=5)
    assert set(pages.run[fold.train]) == {1, 3, 4}
    assert set(pages.run[fold.test]) == {2}


def test_of_many_runs_the_last_fifth_tests(pages: Traces) -> None:
    rows = np.arange(len(pages))
    many = replace(pages, load=rows, run=(rows % 12).astype(np.int32))
    (fold,) = folds(many)
    assert set(many.run[fold.train]) == set(range(8))
    assert set(many.run[fold.validation]) == {8, 9}
    assert set(many.run[fold.test]) == {10, 11}
    said = "by run: 0, 1, 2, 3, 4, 5, 6, 7 train, 8, 9 choose, 10, 11 test"
    assert described(many) == said
    assert described(pages) == "by run: 1, 2, 3 train, 4 chooses, 5 tests"


def test_unmonitored_pages_of_one_run_are_on_the_side_of_their_half(pages: Traces) -> None:
    once = pages[(pages.label < 4) | (pages.run == 2)]
    once = replace(once, monitored=once.label < 4)
    tested = []
    for fold in folds(once, world="open"):
        sides = [once.label[side] for side in (fold.train, fold.validation, fold.test)]
        others = [set(side[side >= 4]) for side in sides]
        assert all(others)
        assert sum(map(len, others)) == 6
        assert set.union(*others) == set(range(4, 10))
        tested += [*others[2]]
        # Monitored pages are divided by run nevertheless.
        assert set(once.run[fold.test[sides[2] < 4]]) == {5}
    assert sorted(tested) == list(range(4, 10))


def test_unmonitored_pages_of_runs_of_their_own_are_on_the_side_of_their_half(
    pages: Traces,
) -> None:
    """A set of unmonitored pages is often recorded separately, once and later."""
    own = replace(pages, monitored=pages.label < 4)
    for late in ([6] * 4, [6, 7], [1, 4]):
        runs = np.where(own.monitored, own.run, np.resize(late, len(own)))
        apart = replace(own, run=runs.astype(np.int32), load=np.arange(len(own)))
        for fold in folds(apart, world="open"):
            for side, run in ((fold.train, {1, 2, 3}), (fold.validation, {4}), (fold.test, {5})):
                inside = apart.monitored[side]
                assert set(apart.run[side[inside]]) == run
                assert not inside.all()
        (closed,) = folds(apart)
        assert set(apart.run[closed.test]) == {5}


def test_unmonitored_pages_of_two_loads_teach_choose_and_test(pages: Traces) -> None:
    once = replace(pages, run=np.zeros_like(pages.run), load=np.arange(len(pages)))
    ranks = np.arange(len(once)) // 10
    few = once[(once.label < 4) | (ranks < 2)]
    for fold in folds(replace(few, monitored=few.label < 4), world="open"):
        for side in (fold.train, fold.validation, fold.test):
            assert (few.label[side] >= 4).any()


def test_the_pages_that_choose_are_drawn() -> None:
    many = page_loads(48, 5)
    times = np.zeros(48, np.int64)
    for seed in range(60):
        for fold in folds(many, world="open", monitored=8, seed=seed):
            times[np.unique(many.label[fold.validation])] += 1
    # A page is monitored in a sixth of the seeds, and then it is in both folds; otherwise it is one
    # of 20 pages, with 5 of them for validation in one fold.
    expected = 60 * (2 * 8 / 48 + 40 / 48 * 5 / 20)
    assert np.abs(times - expected).max() < 5 * expected**0.5


def test_without_three_runs_each_pages_loads_are_divided(pages: Traces) -> None:
    one_run = replace(pages, run=np.zeros_like(pages.run), load=np.arange(len(pages)))
    (fold,) = folds(one_run)
    for side, loads in ((fold.train, 12), (fold.validation, 4), (fold.test, 4)):
        assert np.bincount(pages.label[side]).tolist() == [loads] * 10
    assert "by load" in described(one_run)


def test_a_smaller_design_takes_fewer_loads_and_pages(pages: Traces) -> None:
    (fold,) = folds(pages, pages=4, loads=5, validation_loads=1, test_loads=3)
    for side, loads in ((fold.train, 5), (fold.validation, 1), (fold.test, 3)):
        counts = np.bincount(pages.label[side])
        assert counts[counts > 0].tolist() == [loads] * 4


def test_seeds_replay_and_differ(pages: Traces) -> None:
    one, same, other = (folds(pages, loads=5, seed=seed)[0].train for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_what_a_page_gives_does_not_depend_on_other_pages(pages: Traces) -> None:
    whole, some = (folds(pages, loads=5, pages=number)[0].train for number in (10, 6))
    kept = np.isin(pages.label[whole], pages.label[some])
    np.testing.assert_array_equal(whole[kept], some)


def test_unmonitored_pages_train_or_test_and_change_places(pages: Traces) -> None:
    design = Design(world="open", monitored=4)
    chosen = protocol.choose_pages(pages, design)
    first, second = protocol.honest(pages, design, chosen)
    classes = chosen.classes(pages)

    def others(side: np.ndarray) -> set[int]:
        return set(pages.label[side[classes[side] == UNMONITORED]].tolist())

    for fold in (first, second):
        sides = [others(side) for side in (fold.train, fold.validation, fold.test)]
        assert len(set().union(*sides)) == sum(map(len, sides))
        assert all(sides)
    assert others(second.test) == others(first.train) | others(first.validation)
    assert others(first.test) | others(second.test) == set(chosen.unmonitored.tolist())
    assert set(pages.run[first.test]) == {5}


def test_the_datas_own_unmonitored_pages_are_taken(pages: Traces) -> None:
    marked = replace(pages, monitored=pages.label >= 6)
    chosen = protocol.choose_pages(marked, Design(world="open"))
    assert chosen.monitored.tolist() == [6, 7, 8, 9]
    assert sorted(chosen.unmonitored.tolist()) == [0, 1, 2, 3, 4, 5]
    assert protocol.choose_pages(marked, Design()).monitored.tolist() == [6, 7, 8, 9]


def test_some_pages_of_both_kinds_are_drawn(pages: Traces) -> None:
    marked = replace(pages, monitored=pages.label >= 6)
    for settings, inside, outside in (
        ({"pages": 8, "monitored": 4}, 4, 4),
        ({"pages": 6, "monitored": 2}, 2, 4),
        ({"pages": 7}, 3, 4),
        ({"monitored": 1}, 1, 6),
    ):
        design = Design(world="open", **settings)  # type: ignore[arg-type]  # all are numbers
        chosen = protocol.choose_pages(marked, design)
        assert chosen.monitored.size == inside
        assert set(chosen.monitored) <= {6, 7, 8, 9}
        assert len(set(chosen.unmonitored) - {6, 7, 8, 9}) == chosen.unmonitored.size == outside
    for settings, problem in (
        ({"pages": 8, "monitored": 5}, "monitored: 5 are asked for, but the data have only 4"),
        (
            {"pages": 8, "monitored": 1},
            "pages: 7 unmonitored pages are asked for",
        ),
        ({"pages": 3, "monitored": 4}, "4 unmonitored pages or more; there are 0"),
    ):
        design = Design(world="open", **settings)  # type: ignore[arg-type]  # all are numbers
        with pytest.raises(SettingError, match=problem):
            protocol.choose_pages(marked, design)


def test_of_two_loads_one_is_learnt_and_one_tested(pages: Traces) -> None:
    once = replace(pages, load=np.arange(len(pages)), run=np.zeros(len(pages), np.int32))
    keep = (once.label != 3) | (np.cumsum(once.label == 3) <= 2)
    few = once[keep]
    (fold,) = folds(few)
    assert [np.count_nonzero(few.label[side] == 3) for side in (fold.train, fold.test)] == [1, 1]
    assert not (few.label[fold.validation] == 3).any()


def test_a_load_on_two_sides_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="two sets"):
        Fold(np.array([0, 1]), np.array([2]), np.array([1]))


@pytest.mark.parametrize("side", ["train", "validation", "test"])
def test_an_empty_side_is_refused(side: str) -> None:
    sides = {"train": np.array([0]), "validation": np.array([1]), "test": np.array([2])}
    with pytest.raises(SettingError, match=f"the {side} set is empty"):
        Fold(**(sides | {side: np.zeros(0, np.int64)}))


def test_a_label_only_in_the_test_run_is_named(pages: Traces) -> None:
    lost = pages[(pages.label != 3) | (pages.run == 5)]
    with pytest.raises(TraceError, match="'page 03' is only in the test set"):
        folds(lost)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"pages": 11}, "pages: 11 are asked for, but the data have only 10"),
        ({"pages": 1}, "pages: 1 is too few"),
        ({"loads": 0}, "loads: 0 is too few"),
        ({"world": "half"}, "expected closed or open"),
        ({"world": "open", "monitored": 8}, "4 unmonitored pages or more; there are 2"),
        ({"world": "open", "monitored": 11}, "monitored: 11 are asked for"),
        ({"test_run": 9}, "test_run: the data have no run 9"),
        ({"validation_run": 5}, "validation_run: run 5 is already the test run"),
    ],
)
def test_a_design_that_the_data_cannot_fill_is_refused(
    pages: Traces, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingError, match=problem):
        folds(pages, **settings)


def test_runs_cannot_be_named_where_there_are_two(pages: Traces) -> None:
    with pytest.raises(SettingError, match="they need 3 runs"):
        folds(pages[pages.run < 3], test_run=2)


def test_the_paper_divides_samples_evenly() -> None:
    classes = np.repeat(np.arange(4), 30)
    tested = []
    for train, test in protocol.paper(classes, 10, 0):
        assert np.bincount(classes[test]).tolist() == [3] * 4
        assert train.size + test.size == classes.size
        tested.append(test)
    assert np.unique(np.concatenate(tested)).size == classes.size
    with pytest.raises(SettingError, match="folds"):
        next(protocol.paper(classes, 11, 0))


@pytest.fixture
def sampler() -> Callable[..., Sampler]:
    traces = page_loads(3, 5)

    def made(**settings: object) -> Sampler:
        spec = Spec.from_dict({"schedule": "weighted", "every": "10p"} | settings)
        return Sampler(spec, traces, traces.label.astype(np.int64))

    return made


def test_each_resplit_is_another_sample_of_the_load(sampler: Callable[..., Sampler]) -> None:
    rows = np.array([2, 7, 9])
    one, four = sampler().see(rows), sampler(resplits=4).train(rows)
    assert set(four.rows.tolist()) == {2, 7, 9}
    assert 9 <= len(four) <= 12
    np.testing.assert_array_equal(four.X[: len(one.seen)].times, one.X.times)
    lengths = four.X.lengths[four.rows == 2]
    assert np.unique(lengths).size > 1


def test_whole_traces_train_too_if_wanted(sampler: Callable[..., Sampler]) -> None:
    rows = np.array([2, 7])
    samples = sampler(merged=True).train(rows)
    whole = samples[samples.share == 1]
    assert whole.rows.tolist() == [2, 7]
    np.testing.assert_array_equal(whole.X.times, sampler().traces[rows].times)


def test_the_papers_samples_are_all_subtraces(sampler: Callable[..., Sampler]) -> None:
    rows = np.array([2, 7])
    samples = sampler().every_path(rows)
    assert samples.path.tolist() == [0, 0, 1, 1, 2, 2]
    assert samples.X.lengths.sum() == sampler().traces[rows].times.size
    np.testing.assert_allclose(np.bincount(samples.rows, samples.share)[rows], 1)


def test_resplits_of_nothing_are_refused(sampler: Callable[..., Sampler]) -> None:
    for settings in ({"resplits": 2}, {"merged": True}):
        with pytest.raises(SettingError, match="nothing is split"):
            sampler(schedule=None, every=None, **settings)
