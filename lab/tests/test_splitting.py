from __future__ import annotations

import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch import _core
from anabranch.evaluate import Spec
from anabranch.splitting import Split, SplitError, after_warning, merge, published_every
from anabranch.traces import Builder, Traces
from anabranch.validate import TraceError, TraceWarning
from making import made, signs

TABLE = Path(__file__).parents[2] / "crates/multipath/tests/known_splits.txt"

ALL = [
    Split("round-robin", "50p"),
    Split("uniform", "1p", 5),
    Split("weighted", "~100ms", 3, "independent"),
    Split("weights:6,3,1", "20-40ms", 3),
    Split("batched", None, 5, "independent"),
    Split("hywf", None, 2, "independent"),
    Split("lowest-rtt", "1p", 3, delays=(0.03, 0.01, (0.0, 0.02))),
]
EACH = pytest.mark.parametrize("split", ALL, ids=lambda split: split.schedule)


def paths_of(traces: Traces) -> np.ndarray:
    assert traces.paths is not None
    return traces.paths


def same_packets(left: Traces, right: Traces) -> bool:
    return all(
        np.array_equal(getattr(left, name), getattr(right, name))
        for name in ("load", "run", "label", "offsets", "times", "sizes")
    )


def known() -> list[tuple[str, str]]:
    lines = TABLE.read_text().splitlines()
    pairs = [line.partition(" = ") for line in lines if not line.startswith("#")]
    return [(case, paths) for case, _, paths in pairs]


@pytest.mark.parametrize(("case", "expected"), known())
def test_the_binding_splits_as_the_core_does(case: str, expected: str) -> None:
    schedule, every, paths, mode, seed, load, run, replica = case.split()
    split = Split(schedule, every, int(paths), mode, seed=int(seed))
    packets = np.arange(60)
    builder = Builder().add(
        "x", packets / 128, np.where(packets % 3 == 0, 100, -1500), load=int(load), run=int(run)
    )
    got = paths_of(split.split(builder.build(), int(replica)))
    assert "".join(map(str, got)) == expected


@EACH
def test_equal_seeds_split_equally_and_others_do_not(split: Split, traces: Traces) -> None:
    first = split.split(traces)
    assert np.array_equal(paths_of(first), paths_of(split.split(traces)))
    other = replace(split, seed=1).split(traces)
    if split.schedule in ("round-robin", "lowest-rtt"):
        assert np.array_equal(paths_of(first), paths_of(other))
    else:
        assert not np.array_equal(paths_of(first), paths_of(other))


@EACH
def test_a_load_more_or_less_shifts_no_other(split: Split, traces: Traces) -> None:
    some = np.array([7, 2, 9])
    assert np.array_equal(paths_of(split.split(traces)[some]), paths_of(split.split(traces[some])))


def test_one_path_is_the_identity(traces: Traces) -> None:
    split = Split("weighted", "50p", 1).split(traces)
    assert same_packets(split, traces)
    assert not paths_of(split).any()
    assert same_packets(split.on_paths([0]), traces)


@pytest.mark.parametrize("split", ALL[:-1], ids=lambda split: split.schedule)
def test_all_paths_merged_give_the_original_back(split: Split, traces: Traces) -> None:
    done = split.split(traces)
    parts = [done.on_paths([path]) for path in range(split.paths)]
    assert sum(part.times.size for part in parts) == traces.times.size
    merged = merge(parts)
    assert same_packets(merged, traces)
    assert np.array_equal(paths_of(merged), paths_of(done))
    assert same_packets(done.on_paths(range(split.paths)), traces)


def test_round_robin_by_packet_gives_equal_shares(traces: Traces) -> None:
    done = Split("round-robin", "1p", 4, "together").split(traces)
    counts = done.shares(4) * done.lengths[:, None]
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
    assert done.shares(4).sum(axis=1) == pytest.approx(1)


def test_together_the_directions_share_runs_and_independently_they_do_not(traces: Traces) -> None:
    together = Split("round-robin", "10p", 2, "together").split(traces)
    independent = Split("round-robin", "10p", 2, "independent").split(traces)
    for k in range(len(traces)):
        packets = traces.packets(k)
        count = np.arange(packets.stop - packets.start)
        assert np.array_equal(paths_of(together)[packets], count // 10 % 2)
        for up in (True, False):
            own = paths_of(independent)[packets][(traces.sizes[packets] > 0) == up]
            assert np.array_equal(own, np.arange(own.size) // 10 % 2)


def test_replicas_differ_and_begin_with_the_plain_split(traces: Traces) -> None:
    split = Split("weighted", "5p", 3, resplits=3)
    first, second, third = (paths_of(replica) for replica in split.replicas(traces))
    assert np.array_equal(first, paths_of(split.split(traces)))
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)


def test_a_split_without_delays_copies_no_times(traces: Traces) -> None:
    assert Split().split(traces).times is traces.times


def test_arrays_that_lie_scattered_are_split_too(traces: Traces) -> None:
    scattered = replace(traces, times=np.repeat(traces.times, 2)[::2])
    assert np.array_equal(paths_of(Split().split(scattered)), paths_of(Split().split(traces)))


def test_a_delayed_path_is_seen_later_and_loads_stay_sorted(traces: Traces) -> None:
    plain = Split("uniform", "1p", 2).split(traces)
    slow = Split("uniform", "1p", 2, delays=(0.0, (0.0, 0.05))).split(traces)
    for path, late in ((0, 0.0), (1, 0.05)):
        before, after = plain.on_paths([path]), slow.on_paths([path])
        down = before.sizes < 0
        moved = np.sort(before.times[down] + late)
        assert np.array_equal(np.sort(after.times[after.sizes < 0]), moved)
        assert np.array_equal(np.sort(after.times[after.sizes > 0]), np.sort(before.times[~down]))
    assert not np.array_equal(plain.sizes, slow.sizes)


def test_packets_of_equal_time_keep_their_order_behind_a_delay() -> None:
    traces = Builder().add("x", np.ones(6), [1, -2, 3, -4, 5, -6]).build()
    slow = Split("round-robin", "1p", 2, "together", delays=(0.1, 0.0)).split(traces)
    assert slow.sizes.tolist() == [-2, -4, -6, 1, 3, 5]
    assert paths_of(slow).tolist() == [1, 1, 1, 0, 0, 0]


def test_schedules_know_the_run_length_that_they_were_published_with() -> None:
    assert published_every("batched:0.5") == "50-70p"
    assert published_every("hywf") == "~20p"
    assert published_every("uniform") is None
    assert str(Split("hywf", None, 2)) == "hywf --every ~20p --paths 2 --mode independent"
    with pytest.raises(SplitError, match="has no default for when it changes the path"):
        Split("uniform", None)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"schedule": "fastest"}, "schedule: there is no schedule 'fastest'"),
        ({"schedule": "weights:0,0,0"}, "schedule: the weights sum to 0"),
        ({"schedule": "weights:1e308,1e308,1e308"}, "schedule: the weights sum to infinity"),
        ({"schedule": "weights:1,1"}, "2 weights for 3 paths"),
        ({"every": "50"}, "every: '50' is not the length of a run"),
        ({"every": "70-50p"}, "shorter first"),
        ({"every": "grow:10-5ms"}, "shorter first"),
        ({"every": "grow:5-10p"}, "every: 'grow:5-10p' is not the length of a run"),
        ({"draw": "silence:0s"}, "'silence:0s' is not a rule for choosing"),
        ({"paths": 0}, "paths: 0 is not from 1 to"),
        ({"paths": -1}, "paths: -1 is not from 1 to"),
        ({"mode": "both"}, "mode: 'both' is not a rule for"),
        ({"mode": "follow:20p"}, "mode: 'follow:20p' is not a rule for"),
        ({"draw": "session:0"}, "draw: 'session:0' is not a rule for choosing"),
        ({"draw": "silence"}, "draw: 'silence' is not a rule for choosing"),
        ({"delays": (0.1,)}, "delays: 1 delays for 3 paths"),
        ({"delays": (0.1, -1.0, 0.0)}, "delay of path 1"),
        ({"resplits": 0}, "resplits: 0 is not from 1 to"),
        ({"resplits": 3_000_000_000}, "resplits: 3000000000 is not from 1 to"),
        ({"seed": -1}, "seed: -1"),
        ({"seed": 1 << 64}, "seed: 18446744073709551616"),
    ],
)
def test_each_wrong_setting_is_told(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(SplitError, match=problem):
        Split(**settings)  # type: ignore[arg-type]


def test_what_is_split_is_not_split_again_and_no_time_ends_no_run(traces: Traces) -> None:
    with pytest.raises(TraceError, match="already split"):
        Split().split(Split().split(traces))
    timeless = Builder().add("x", np.zeros(3), [1, -1, 1]).build()
    with pytest.raises(TraceError, match="no times"):
        Split("uniform", "100ms").split(timeless)
    assert Split("uniform", "1p", mode="independent").split(timeless).paths is not None


def test_the_binding_refuses_arrays_that_do_not_fit() -> None:
    core = _core.TraceSplit("uniform", "1p", 2)
    load, run = np.zeros(1, np.int64), np.zeros(1, np.int32)
    times, sizes = np.zeros(2), np.ones(2, np.int32)
    for offsets in ([0, 1], [1, 2], [0, 3], [0, 2, 1], []):
        with pytest.raises(ValueError, match="offsets"):
            core.assign(load, run, np.array(offsets, np.int64), times, sizes)
    good = np.array([0, 2])
    with pytest.raises(ValueError, match="one value for each load"):
        core.assign(load[:0], run, good, times, sizes)
    with pytest.raises(ValueError, match=r"page load 0 of run 0: .*packet 1 is 0"):
        core.assign(load, run, good, times, np.array([1, 0], np.int32))
    with pytest.raises(ValueError, match="not contiguous"):
        core.assign(load, run, good, np.zeros(4)[::2], sizes)
    with pytest.raises(ValueError, match="no path 2"):
        core.delay(good, times, sizes, np.array([0, 2], np.int16))


def test_draws_are_those_of_their_laws() -> None:
    lengths = _core.draw_run_packets("50-70p", 20_000, seed=1)
    assert (lengths.min(), lengths.max()) == (50, 70)
    assert lengths.mean() == pytest.approx(60, abs=5 * 6.06 / 20_000**0.5)
    seconds = _core.draw_run_seconds("~100ms", 20_000, seed=1)
    assert seconds.mean() == pytest.approx(0.1, abs=5 * 0.1 / 20_000**0.5)
    first = _core.draw_run_seconds("grow:10-100ms", 20_000, seed=1)
    assert (first.min() >= 0.005, first.max() <= 0.015) == (True, True)
    assert first.mean() == pytest.approx(0.01, abs=5 * 0.0029 / 20_000**0.5)
    assert set(_core.draw_paths("round-robin", 3, 6, seed=1).tolist()) == {0, 1, 2}
    with pytest.raises(ValueError, match="is not a number of packets between changes of the path"):
        _core.draw_run_packets("100ms", 1, seed=1)


def test_other_threads_run_while_traces_are_split() -> None:
    """If the lock were held, this thread could never run in the middle of a split."""
    traces = made(4_000, labels=50)
    core = Split("uniform", "1p", 3, "independent")._core()
    where = (traces.load, traces.run, traces.offsets, traces.times, traces.sizes)

    def went_on_in_the_middle() -> bool:
        worker = threading.Thread(target=core.assign, args=where)
        start = time.perf_counter()
        worker.start()
        time.sleep(0.001)
        waited = time.perf_counter() - start
        worker.join()
        return waited < (time.perf_counter() - start) / 2

    assert any(went_on_in_the_middle() for _ in range(10))


def test_an_unaltered_server_follows_the_client_late() -> None:
    """The client's packets alternate over both paths; the server's take the path of the last one
    received.
    """
    times = [0.0, 0.01, 0.05, 0.06, 0.08, 0.2]
    load = Builder().add("a", times, [9, -9, 9, -9, -9, -9]).build()
    split = Split("round-robin", "1p", 2, "follow:30ms").split(load)
    assert split.paths is not None
    assert split.paths.tolist() == [0, 0, 1, 0, 1, 1]
    with pytest.raises(TraceError, match="no times, which --mode follow"):
        Split("uniform", "1p", 2, "follow").split(signs(replace(load, times=load.times * 0)))


def test_loads_of_a_session_share_their_chances() -> None:
    traces = made(40, seed=3)
    traces = replace(traces, run=np.zeros_like(traces.run))
    spread = {}
    for draw in ("load", "session:40", "silence:5ms"):
        split = Split("weighted", "1p", 3, seed=5, draw=draw).split(traces)
        spread[draw] = split.shares(3)[:, 0].std()
        assert f"--draw {draw}" in str(split.facts.schedule) or draw == "load"
    assert spread["session:40"] < 0.3 * spread["load"]
    assert spread["silence:5ms"] < 0.7 * spread["load"]


def test_together_has_to_be_asked_for() -> None:
    assert Split("weighted", "50p").mode == "follow"
    assert Split("batched", None).mode == Split("hywf", None).mode == "independent"
    assert Split("weighted", "50p", mode="together").mode == "together"
    assert Spec.of(schedule="weighted", every="50p").splitting.mode == "follow"
    padded = Spec.of(schedule="weighted", every="50p", path_defence="front")
    assert padded.splitting.mode == "independent"
    assert Spec.from_dict({"schedule": "weighted", "every": "50p"}).splitting.mode == "follow"
    # Unsplit evaluations keep the keys of their results.
    assert Spec().splitting.mode == "together"
    assert not list(Spec().idle())


def test_a_split_that_no_program_makes_is_made_with_a_warning(traces: Traces) -> None:
    with pytest.warns(TraceWarning, match="mode together: no program"):
        Split("weighted", "50p", mode="together").split(traces)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Split("weighted", "50p").split(traces)
        Split("weighted", "50p", mode="independent").split(traces)
        with after_warning():
            Split("weighted", "50p", mode="together").split(traces)
    assert Spec.of(schedule="weighted", every="50p", mode="together").is_simulation_only
    assert not Spec().is_simulation_only
    assert not Spec.of(schedule="weighted", every="50p", path_defence="front").is_simulation_only
