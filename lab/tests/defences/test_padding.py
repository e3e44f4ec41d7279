"""Properties of every defence."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from bursty import bursty, equal, real

from anabranch.defences import DefenceError, Defended, Maybenot, Pipeline, overhead, parse
from anabranch.defences.base import Defence, marked
from anabranch.splitting import Split
from anabranch.traces import Builder, Facts, Traces
from anabranch.validate import TraceError
from making import made

TEXTS = [
    "front:client=300,server=500,w_min=0.5,w_max=4",
    "wtf-pad",
    "wtf-pad:normal",
    "maybenot:front",
    "maybenot:interspace",
    "maybenot:break-pad",
    "maybenot:regulator",
    "maybenot:tamaraw",
]
EACH = pytest.mark.parametrize("text", TEXTS)
BLOCKING = ("maybenot:regulator", "maybenot:tamaraw")


@pytest.fixture
def loads() -> Traces:
    return bursty(bursts=12)


@EACH
def test_real_packets_keep_their_order_and_are_not_hastened(text: str, loads: Traces) -> None:
    done = parse(text).apply(loads, 1)
    for k in range(len(loads)):
        times, sizes = real(done, k)
        packets = loads.packets(k)
        for sign in (1, -1):
            came = times[sizes * sign > 0]
            before = loads.times[packets][loads.sizes[packets] * sign > 0]
            assert came.size == before.size
            assert (came >= before - 1e-8).all()
    if text not in BLOCKING:
        assert np.array_equal(done.times[~done.padding], loads.times)
        assert np.array_equal(done.sizes[~done.padding], loads.sizes)
    assert done.padding.any()


@EACH
def test_blocking_is_what_takes_time(text: str, loads: Traces) -> None:
    cost = overhead(loads, parse(text).apply(loads, 1))
    assert (cost.time > 0.01) == (text in BLOCKING)
    assert (cost.added >= -1e-8).all()


@EACH
def test_a_seed_replays_and_another_one_or_replica_does_not(text: str, loads: Traces) -> None:
    defence = parse(text)
    first = defence.apply(loads, 1)
    assert equal(first, defence.apply(loads, 1))
    if text != "maybenot:tamaraw":  # which draws nothing
        assert not equal(first, defence.apply(loads, 2))
        assert not equal(first, defence.apply(loads, 1, replica=1))


@EACH
def test_a_load_more_or_less_shifts_no_other(text: str, loads: Traces) -> None:
    some = np.array([6, 1, 3])
    defence = parse(text)
    assert equal(defence.apply(loads, 1)[some], defence.apply(loads[some], 1))


@EACH
def test_behind_a_split_each_path_is_padded_as_if_alone(text: str, loads: Traces) -> None:
    split = Split("weighted", "50p", 3, seed=4).split(loads)
    done = parse(text).apply(split, 1)
    for path in range(3):
        alone = _only(split, path)
        together = done.on_paths([path])
        separately = parse(text).apply(alone, 1)
        assert np.array_equal(together.times, separately.times)
        assert np.array_equal(together.sizes, separately.sizes)


@EACH
def test_in_front_of_a_split_padding_is_split_too(text: str, loads: Traces) -> None:
    split = Split("weighted", "50p", 3, seed=4)
    defence = parse(text)
    padded = defence.apply(loads, 1)
    done = Pipeline([defence, split]).apply(loads, 1)
    expected = split.split(padded.bare())
    assert done.paths is not None
    assert expected.paths is not None
    assert np.array_equal(done.paths, expected.paths)
    assert np.array_equal(done.padding, padded.padding)
    assert set(done.paths[done.padding].tolist()) == {0, 1, 2}


@EACH
def test_texts_read_back(text: str) -> None:
    defence = parse(text)
    assert parse(str(defence)) == defence


@EACH
def test_empty_loads_and_lonely_packets_are_fine(text: str) -> None:
    builder = Builder().add("a", [], []).add("a", [0.5], [-100]).add("a", [2.0], [60])
    done = parse(text).apply(builder.build(), 1)
    assert done.lengths[0] == 0
    assert (done.lengths[1:] >= 1).all()
    assert (~done.padding).sum() == 2


def test_no_loads_at_all() -> None:
    done = parse("front").apply(bursty()[np.zeros(0, dtype=int)], 1)
    assert len(done) == done.padding.size == 0


@pytest.mark.parametrize(
    ("size", "expected"), [("ip-packet", 1500), ("cell", 514), ("direction", 1)]
)
def test_dummies_are_as_large_as_packets_usually_are(size: str, expected: int) -> None:
    loads = made(3, facts=Facts(size=size))
    for text in ("front", "wtf-pad", "maybenot:front"):
        done = parse(text).apply(loads, 1)
        assert set(np.abs(done.sizes[done.padding]).tolist()) == {expected}
    own = parse("front:size=700").apply(loads, 1)
    assert set(np.abs(own.sizes[own.padding]).tolist()) == {700}


def test_padding_of_an_earlier_defence_is_traffic_to_a_later_one(loads: Traces) -> None:
    once = parse("wtf-pad").apply(loads, 1)
    twice = parse("wtf-pad").apply(once, 2)
    assert twice.padding.sum() > once.padding.sum()
    assert np.array_equal(twice.times[~twice.padding], loads.times)


def test_equal_defences_in_a_row_have_dice_of_their_own(loads: Traces) -> None:
    front = parse("front")
    one = front.apply(loads, 1)
    two = Pipeline([front, front]).apply(loads, 1)
    stamps = two.times[two.padding]
    assert np.unique(stamps).size == stamps.size
    assert two.padding.sum() > one.padding.sum()


@pytest.mark.parametrize("delays", [(), (0.03, 0.0, (0.01, 0.02))])
def test_marks_follow_packets_through_delays(delays: tuple[float, ...], loads: Traces) -> None:
    split = Split("weighted", "20p", 3, delays=delays, seed=4)
    defence = parse("front:size=1000")
    done = Pipeline([defence, split]).apply(loads, 1)
    assert np.array_equal(done.padding, np.abs(done.sizes) == 1000)
    alone = split.split(defence.apply(loads, 1).bare())
    assert np.array_equal(done.times, alone.times)
    assert np.array_equal(done.sizes, alone.sizes)


def test_a_split_beside_the_pipeline_cannot_lose_marks(loads: Traces) -> None:
    done = parse("front").apply(loads, 1)
    plain = Split("weighted", "20p", 3).split(done)
    assert isinstance(plain, Defended)
    assert np.array_equal(plain.padding, done.padding)
    with pytest.raises(TraceError, match="use a Pipeline"):
        Split("weighted", "20p", 3, delays=(0.03, 0.0, 0.0)).split(done)


def test_marks_survive_selection_and_processes(loads: Traces) -> None:
    done = parse("front").apply(loads, 1)
    some = pickle.loads(pickle.dumps(done[2:4]))
    assert equal(some, done[np.array([2, 3])])
    split = Pipeline([parse("front"), Split("uniform", "1p", 2)]).apply(loads, 1)
    assert not isinstance(split.on_paths([0]), Defended)


def test_an_empty_pipeline_changes_nothing(loads: Traces) -> None:
    done = Pipeline([]).apply(loads, 1)
    assert equal(done, marked(loads))
    assert overhead(loads, done).bandwidth == 0


def test_two_splits_are_refused() -> None:
    with pytest.raises(DefenceError, match="can split only once"):
        Pipeline([Split(), parse("front"), Split()])


def test_what_cannot_be_defended_is_refused(loads: Traces) -> None:
    timeless = Builder().add("a", [0, 0, 0], [1, -1, -1]).build()
    with pytest.raises(TraceError, match="no times"):
        parse("front").apply(timeless, 1)
    for seed in (-1, 2**64):
        with pytest.raises(DefenceError, match="2\\^64"):
            parse("front").apply(loads, seed)
    with pytest.raises(TraceError, match="different loads"):
        overhead(loads, parse("front").apply(loads[1:], 1))


def test_overhead_counts_bytes_and_the_last_real_packet() -> None:
    before = Builder().add("a", [1.0, 2.0, 3.0], [100, -1000, -1000]).build()
    after = Builder().add("a", [1.0, 2.0, 3.5, 4.0, 4.0], [100, -1000, -1000, 50, -500]).build()
    padding = np.array([False, False, False, True, True])
    cost = overhead(before, marked(after, padding))
    assert (cost.up, cost.down) == (0.5, 0.25)
    assert cost.bandwidth == 550 / 2100 == cost.median_bandwidth
    assert cost.time == 0.25
    assert cost.summary()["loads"] == 1


def test_overhead_of_nothing_is_unknown() -> None:
    empty = Builder().add("a", [], []).build()
    assert set(overhead(empty, marked(empty)).summary().values()) == {1, None}


def test_a_defence_of_ones_own_fits_in(loads: Traces) -> None:
    class Silent(Maybenot):
        __slots__ = ()

    defence: Defence = Silent()
    assert not defence.apply(loads, 1).padding.any()


def _only(traces: Traces, path: int) -> Traces:
    """Returns the packets of one path, as a trace that is split over that path only."""
    return traces.on_paths([path])
