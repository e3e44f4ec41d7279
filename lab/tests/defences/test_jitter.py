from __future__ import annotations

import numpy as np
import pytest
from bursty import bursty

from anabranch import _core
from anabranch.defences import DefenceError, Jitter, Pipeline, overhead
from anabranch.splitting import Split
from anabranch.traces import Builder, Traces


def _late(loads: Traces, jitter: Jitter, up: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns when the packets of one direction of each load arrived, and when they left."""
    done = jitter.apply(loads, 3)
    pairs = []
    for k in range(len(loads)):
        before, after = loads.packets(k), done.packets(k)
        came = loads.times[before][(loads.sizes[before] > 0) == up]
        left = done.times[after][(done.sizes[after] > 0) == up]
        pairs.append((came, left))
    return pairs


@pytest.mark.parametrize("up", [True, False])
def test_each_direction_is_late_within_the_range_and_in_order(up: bool) -> None:
    loads = bursty(20, bursts=40)
    late = np.concatenate([left - came for came, left in _late(loads, Jitter("3-20ms"), up)])
    assert late.min() >= 0.003 - 1e-9
    assert late.max() <= 0.020 + 1e-9
    assert np.unique(np.round(late, 9)).size > 0.2 * late.size  # no grid
    sizes = Jitter("3-20ms").apply(loads, 3)
    assert not sizes.padding.any()
    assert sorted(sizes.sizes) == sorted(loads.sizes)


def test_an_unaltered_server_does_not_delay() -> None:
    loads = bursty(5, bursts=20)
    client = Jitter("5-20ms", "client")
    assert all((came == left).all() for came, left in _late(loads, client, up=False))
    assert all((left > came).all() for came, left in _late(loads, client, up=True))


@pytest.mark.parametrize("delay", ["0-20ms", "10-30ms", "500-1500us", "0-1s"])
def test_its_mean_is_that_of_a_packet_that_waits_for_no_other(delay: str) -> None:
    """A second between packets; the twin, a burst, waits for nearly the longest delay."""
    n = 20_000
    apart, dense = np.arange(n, dtype=float), np.arange(n) / 1e9
    sizes: np.ndarray = np.full(n, 100, np.int32)
    up, down = Jitter(delay).drawn
    assert up == down
    late = _core.delayed(delay, 5, apart, sizes) - apart
    assert late.mean() == pytest.approx(up, rel=0.02)
    assert (_core.delayed(delay, 5, dense[:1000], sizes[:1000]) - dense[:1000]).mean() > 1.3 * up
    assert Jitter(delay, "client").drawn == (up, 0.0)


def test_it_is_the_queue_of_the_splitter() -> None:
    """By direction; the delayed load is then split like any other."""
    times = np.array([0.0, 0.001, 0.002, 0.5])
    left = _core.delayed("0-20ms", 5, times, np.full(4, 100, np.int32))
    assert (np.diff(left) >= 0).all()
    assert ((left - times >= 0) & (left - times <= 0.02)).all()
    assert left.tolist() == _core.delayed("0-20ms", 5, times, np.full(4, 100, np.int32)).tolist()
    # The queue holds at most 4 MiB.
    large = np.full(4, 2 << 20, np.int32)
    assert _core.delayed("100-200ms", 5, times, large)[0] == pytest.approx(0.002)
    with pytest.raises(ValueError, match="not sorted"):
        _core.delayed("0-20ms", 5, times[::-1].copy(), np.ones(4, np.int32))


def test_a_pipeline_delays_then_splits_and_draws_both_anew() -> None:
    loads = bursty(6, bursts=30)
    pipeline = Pipeline([Jitter(), Split("uniform", "20ms", 3)])
    first, again, other = (pipeline.apply(loads, 1, replica) for replica in (0, 0, 1))
    assert (first.times == again.times).all()
    assert (first.times != other.times).any()
    assert first.paths is not None
    assert overhead(loads, first).bandwidth == 0


def test_what_is_no_jitter_is_refused() -> None:
    for text, problem in (
        ("20ms", "delays all datagrams equally"),
        ("20-0ms", "shorter first"),
        ("0-20p", "is not a range of delays"),
        ("-5-20ms", "is not a range of delays"),
    ):
        with pytest.raises(DefenceError, match=problem):
            Jitter(text)
    with pytest.raises(DefenceError, match="ends=server is unknown; expected one of both, client"):
        Jitter(ends="server")
    lone = Builder().add("a", [0.5], [1]).build()
    assert Jitter().apply(lone, 0).times.size == 1
