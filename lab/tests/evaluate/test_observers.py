from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anabranch.attacks import PathForest, PathSequences
from anabranch.defences.front import Front
from anabranch.evaluate import Spec
from anabranch.observers import Observer, SettingError
from anabranch.splitting import Split
from anabranch.traces import Builder, Traces
from anabranch.validate import TraceError

SPLIT = Split("weighted", "20p", 3, seed=4)


def test_all_paths_merged_are_the_load_itself(pages: Traces) -> None:
    for split in (SPLIT, Split("uniform", "~30p", 5, "independent", seed=1)):
        view = Observer.parse("merged").see(split.split(pages))
        for name in ("offsets", "times", "sizes", "load", "run", "label"):
            np.testing.assert_array_equal(getattr(view.traces, name), getattr(pages, name))
        assert (view.share == 1).all(), "all of it, not nearly"


def test_with_equal_delays_merged_loads_are_late_by_them(pages: Traces) -> None:
    late = Split("weighted", "20p", 3, delays=(0.25, 0.25, 0.25)).split(pages)
    seen = Observer.parse("merged").see(late).sequences
    np.testing.assert_allclose(seen.elapsed, Observer().see(pages).sequences.elapsed, atol=1e-9)
    np.testing.assert_array_equal(seen.sizes, pages.sizes)


def test_one_path_is_all_of_it_and_nothing_else(pages: Traces) -> None:
    split = SPLIT.split(pages)
    view = Observer.parse("random").see(split, seed=7)
    assert (view.watched.sum(axis=1) == 1).all()
    for k in range(0, len(pages), 17):
        assert split.paths is not None
        packets = split.packets(k)
        own = split.paths[packets] == view.path[k]
        np.testing.assert_array_equal(
            view.traces.times[view.traces.packets(k)], split.times[packets][own]
        )
    np.testing.assert_allclose(view.share, view.traces.lengths / split.lengths)


def test_random_paths_are_each_as_likely(pages: Traces) -> None:
    split = SPLIT.split(pages)
    draws = np.concatenate([Observer().see(split, replica=r).path for r in range(20)])
    counts = np.bincount(draws, minlength=3)
    chi2 = ((counts - draws.size / 3) ** 2 / (draws.size / 3)).sum()
    assert draws.size == 4000
    assert chi2 < 13.8, f"p < 0.001 for {counts}"  # 2 degrees of freedom


def test_draws_belong_to_the_load(pages: Traces) -> None:
    split = SPLIT.split(pages)
    observer = Observer.parse("merged:2")
    whole = observer.see(split, seed=3, replica=1).watched
    some = np.array([150, 3, 77])
    np.testing.assert_array_equal(observer.see(split[some], seed=3, replica=1).watched, whole[some])
    assert (whole.sum(axis=1) == 2).all()
    for other in (observer.see(split, seed=4, replica=1), observer.see(split, seed=3, replica=2)):
        assert not np.array_equal(other.watched, whole)


def test_the_largest_share_is_seen(pages: Traces) -> None:
    split = SPLIT.split(pages)
    view = Observer.parse("largest").see(split)
    np.testing.assert_allclose(view.share, split.shares(3).max(axis=1))
    assert view.share.mean() > Observer().see(split).share.mean() + 0.1


def test_an_unsplit_load_is_seen_whole(pages: Traces) -> None:
    view = Observer.parse("largest").see(pages)
    assert view.traces is pages
    assert (view.share == 1).all()
    assert (view.path == -1).all()
    assert (view.sequences.paths == -1).all()


def test_loads_stay_where_nothing_is_seen(pages: Traces) -> None:
    one_path = Split("weights:1,0", "20p", 2).split(pages)
    view = Observer().see(one_path)
    assert len(view.traces) == len(pages)
    assert set(view.share) == {0.0, 1.0}
    np.testing.assert_array_equal(view.traces.lengths == 0, view.share == 0)


@pytest.mark.parametrize("text", ["", "rand", "merged:0", "merged:x", "random:2", "merged:"])
def test_an_unknown_observer_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"expected random \(one path\), largest"):
        Observer.parse(text)


def test_too_many_paths_are_refused(pages: Traces) -> None:
    with pytest.raises(SettingError, match="merged:4': there are only 3"):
        Observer.parse("merged:4").see(SPLIT.split(pages))


def test_half_split_traces_are_refused(pages: Traces) -> None:
    split = SPLIT.split(pages)
    assert split.paths is not None
    split.paths[5] = -1
    with pytest.raises(
        TraceError, match="column 'path': some packets have a path and others have none"
    ):
        Observer().see(split)


def test_texts_read_back() -> None:
    for text in ("random", "largest", "merged", "merged:2"):
        assert str(Observer.parse(text)) == text


def test_sequences_keep_their_paths() -> None:
    paths = np.array([0, 1, 2, 2], np.int16)
    sizes = np.array([1, -1, 1, 1], np.int32)
    X = PathSequences(np.arange(4.0), sizes, np.array([0, 1, 1, 4]), paths)
    chosen = X[[2, 1, 0, 2]]
    assert chosen.paths.tolist() == [1, 2, 2, 0, 1, 2, 2]
    assert PathSequences.joined([X, chosen]).paths.tolist() == [0, 1, 2, 2, 1, 2, 2, 0, 1, 2, 2]
    with pytest.raises(TraceError, match="path"):
        PathSequences(np.arange(4.0), sizes, np.array([0, 4]), paths[:2])


def test_the_path_forest_learns_what_only_paths_tell() -> None:
    """Two classes of equal packets at equal times: alternating paths, or one after the other."""
    chance = np.random.default_rng(0)
    sizes = np.tile(np.array([1, 1, -1, -1] * 10, np.int32), 60)
    offsets = np.arange(61) * 40
    times = np.tile(np.arange(40.0), 60)
    y = np.arange(60) % 2
    rows = [np.r_[np.zeros(20), np.ones(20)] if c else np.arange(40) % 2 for c in y]
    names = chance.permuted(np.tile([0, 1], (60, 1)), axis=1)  # numbers mean nothing
    paths = np.concatenate([name[row.astype(int)] for name, row in zip(names, rows, strict=True)])
    X = PathSequences(times, sizes, offsets, paths.astype(np.int16))
    forest = PathForest(trees=20, paths=2).fit(X[:40], y[:40])
    assert forest.score(X[40:], y[40:]) == 1.0
    blind = PathSequences(times, sizes, offsets, np.full(times.size, -1, np.int16))
    assert PathForest(trees=20).fit(blind[:40], y[:40]).score(blind[40:], y[40:]) == 0.5


def test_a_counter_tells_what_all_paths_have_carried(pages: Traces) -> None:
    split = SPLIT.split(pages)
    assert split.paths is not None
    for rule in ("random", "largest", "merged:2"):
        seen = Observer.parse(f"{rule}+counter").see(split, seed=7)
        bare = Observer.parse(rule).see(split, seed=7)
        np.testing.assert_array_equal(seen.watched, bare.watched)
        assert bare.sequences.counts is None
        counts = seen.sequences.counts
        assert counts is not None
        for k in range(0, len(pages), 17):
            whole, at = split.packets(k), seen.traces.packets(k)
            on = np.isin(split.paths[whole], np.flatnonzero(seen.watched[k]))
            for way in (1, -1):
                own = np.sign(split.sizes[whole]) == way
                known = np.cumsum(own)[own & on]
                assert counts[at][np.sign(seen.traces.sizes[at]) == way].tolist() == known.tolist()


def test_a_counter_is_that_of_sending_where_paths_delay(pages: Traces) -> None:
    """An overtaken packet reveals nothing new; no packet is counted by its arrival."""
    late = Split("uniform", "5p", 2, delays=(0.0, 0.5), seed=1).split(pages)
    assert late.counters is not None
    sent = pages.counted().counters
    assert sent is not None
    np.testing.assert_array_equal(np.sort(late.counters), np.sort(sent))
    view = Observer.parse("merged+counter").see(late)
    order, visible = late.counters, view.sequences.counts
    assert visible is not None
    assert (visible >= order).all()
    assert (visible > order).any()
    assert (view.sequences.increments >= 0).all()
    up = late.sizes > 0
    ends = np.bincount(late.owners[up], view.sequences.increments[up], len(late))
    np.testing.assert_array_equal(ends, np.bincount(pages.owners[pages.sizes > 0]))


def test_a_recorded_counter_is_kept_and_gaps_are_carried_forward() -> None:
    traces = Builder().add("a", [0.0, 1.0, 2.0, 3.0, 4.0], [9, -9, 9, 9, -9]).build()
    shown = replace(traces, counters=np.array([3, 1, 0, 5, 9]))
    view = Observer.parse("largest+counter").see(shown)
    assert view.sequences.counts is not None
    assert view.sequences.counts.tolist() == [3, 1, 3, 5, 9]
    assert view.sequences.increments.tolist() == [3, 1, 0, 2, 8]


def test_counters_survive_selection_and_joining(pages: Traces) -> None:
    X = Observer.parse("random+counter").see(SPLIT.split(pages)).sequences
    joined = PathSequences.joined([X[5:9], X[[2]]])
    for part in (joined[[4]], X[[2]]):
        assert part.counts is not None
        np.testing.assert_array_equal(part.counts, X[2:3].counts)
        np.testing.assert_array_equal(part.paths, X[2:3].paths)


def test_dummies_are_counted_and_recorded_counters_forgotten(pages: Traces) -> None:
    few = replace(pages[:5], counters=np.full(pages[:5].times.size, 7))
    padded = Front().apply(few, seed=1)
    assert padded.counters is None
    counted = padded.bare().counted().counters
    assert counted is not None
    assert counted.size == padded.times.size > few.times.size


def test_earlier_loads_of_a_session_tell_about_how_much_all_paths_carry(pages: Traces) -> None:
    setting = Split("weights:0.7,0.2,0.1", "1p", 3, "together", seed=4, draw="session:20")
    split = setting.split(pages)
    view = Observer.parse("largest+earlier").see(split, session=20)
    assert view.usual is not None
    order = np.lexsort((split.load, split.run))
    first = [k for k in order if split.load[k] % 20 == 0]
    assert (view.usual[first] == 1 / 3).all(), "nobody has seen an earlier one"
    late = np.array([k for k in order if split.load[k] % 20 >= 15])
    assert late.size > 5
    # One assumed even load counts together with fifteen or more seen loads.
    assert np.abs(view.usual[late] - 0.68).max() < 0.06
    X = view.sequences
    assert X.counts is not None
    assert (X.increments >= 0).all()
    ends = X.offsets[late + 1] - 1
    whole = [int((np.sign(split.sizes[split.packets(k)]) == np.sign(X.sizes[e])).sum())
             for k, e in zip(late, ends, strict=True)]  # fmt: skip
    assert 0.7 < np.median(X.counts[ends] / whole) < 1.4
    # The twin: an observer that has seen no loads assumes an even share for each path.
    alone = Observer.parse("largest+earlier").see(split, session=1)
    assert alone.usual is not None
    assert (alone.usual == 1 / 3).all()
    with pytest.raises(SettingError, match="needs probabilities that several loads share"):
        Observer.parse("largest+earlier").see(split)


def test_earlier_loads_are_asked_for_where_there_are_sessions() -> None:
    usual: dict[str, Any] = {"schedule": "weighted:4", "every": "100ms", "attack": "forest"}
    assert Spec.of(**usual, observer="random+earlier", draw="session:5").splitting.session == 5
    for settings, problem in (
        ({"observer": "largest+earlier"}, "give a schedule with draw=session:N"),
        ({"observer": "largest+earlier", "draw": "silence:1s"}, "give a schedule with draw"),
        ({"observer": "merged+earlier", "draw": "session:5"}, "observer 'merged\\+earlier'"),
        ({"observer": "merged:2+earlier", "draw": "session:5"}, "observer 'merged:2\\+earlier'"),
        ({"observer": "random+earlier", "draw": "session:5", "attack": "df"}, "cannot use"),
    ):
        with pytest.raises(SettingError, match=problem):
            Spec.of(**(usual | settings))
    assert str(Observer.parse("random+earlier")) == "random+earlier"
