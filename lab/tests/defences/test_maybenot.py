from __future__ import annotations

import time

import numpy as np
import pytest
from bursty import bursty

from anabranch import _core
from anabranch.defences import DefenceError, Maybenot, overhead
from anabranch.defences.maybenot import NAMED
from anabranch.traces import Builder, Traces

AFTER_RECEIVED = "02eNpti1EJACAQQzcjWEjMYCEjGsUCojiUg+Pex2CPbe0HxCz4JCVJoJvF7SEjt+qUtnY+gDUNIg=="
"""A known machine of maybenot-machines' tests: a dummy 5 s after each packet from the tunnel."""

ASKED = Builder().add("a", [0.0, 1.0, 20.0], [514, -514, -514]).build()


def dummies(loads: Traces, defence: Maybenot, seed: int = 1) -> tuple[np.ndarray, ...]:
    done = defence.apply(loads, seed)
    return tuple(done.times[done.padding & (sign * done.sizes > 0)] for sign in (1, -1))


@pytest.mark.parametrize("name", ["none", "netflow"])
def test_what_does_nothing_in_a_short_load_changes_nothing(name: str) -> None:
    loads = bursty(4)
    done = Maybenot(name).apply(loads, 1)
    assert np.array_equal(done.times, loads.times)
    assert np.array_equal(done.sizes, loads.sizes)


def test_a_serialised_machine_answers_at_a_known_time() -> None:
    up, down = dummies(ASKED, Maybenot(client=(AFTER_RECEIVED,)))
    assert up.tolist() == [pytest.approx(6.0)]
    assert down.size == 0


def test_the_servers_dummies_arrive_a_delay_later() -> None:
    """The server receives the first packet at 0.25 s, and its dummy arrives at 5.5 s."""
    up, down = dummies(ASKED, Maybenot(server=(AFTER_RECEIVED,), delay=0.25))
    assert up.size == 0
    assert down.tolist() == [pytest.approx(5.5)]


def test_a_bottleneck_delays_real_packets_where_padding_takes_its_room() -> None:
    loads = bursty(4)
    free = overhead(loads, Maybenot("front").apply(loads, 1))
    narrow = overhead(loads, Maybenot("front", pps=100).apply(loads, 1))
    assert free.time == 0
    assert narrow.time > 0.05


def test_fronts_budget_is_kept() -> None:
    machine = "front 40 100000 500000 10"
    done = Maybenot(client=(machine,), server=(machine,)).apply(bursty(30, bursts=20), 1)
    for sign in (1, -1):
        chosen = done.padding & (sign * done.sizes > 0)
        counts = np.bincount(done.owners[chosen], minlength=30)
        # Each of 10 states draws 1 to a tenth of the budget, at least 1.
        assert 10 < counts.max() <= 40


def test_machines_that_only_pad_take_no_time_and_those_that_block_do() -> None:
    loads = bursty(10, bursts=40)
    pads, blocks = (
        overhead(loads, Maybenot(name).apply(loads, 1)) for name in ("interspace", "regulator")
    )
    assert pads.time == 0 < blocks.time
    assert min(pads.bandwidth, blocks.bandwidth) > 0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"machines": "daita"}, "machines=daita is unknown; expected one of none, front"),
        ({"client": ("daita",)}, "machine 'daita': invalid static machine"),
        ({"server": ("02AAAA",)}, "machine '02AAAA'"),
        ({"client": ("02eNp",)}, "machine '02eNp'"),
        ({"client": ("front 1 1 2 5",)}, "out of range"),
        ({"client": ("front 100 2 1 5",)}, "out of range"),
        ({"client": ("front 100 nan 1 5",)}, "out of range"),
        ({"client": ("front 100 1 2 0",)}, "out of range"),
        ({"server": ("tamaraw 0 5",)}, "out of range"),
        ({"server": ("regulator_server 277 1 3.55 3550 100",)}, "out of range"),
        ({"client": ("front x 1 2 0",)}, "padding_budget_max"),
        ({"client": ("front 1700 1000000 14000000 4200",)}, "out of range"),
        ({"server": ("regulator_server 277 0.94 3.55 0.5 100",)}, "out of range"),
        ({"delay": -0.1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": 1e9}, "delay"),
        ({"pps": 0}, "pps"),
        ({"pps": -5}, "maybenot: pps=-5 is not from 1"),
        ({"pps": 1 << 32}, "maybenot: pps=4294967296 is not from 1"),
        ({"most_events": 0}, "at least 1"),
        ({"size": 0}, "size=0"),
    ],
)
def test_settings_out_of_range(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(DefenceError, match=problem) as error:
        Maybenot(**settings)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_machines_that_never_let_go_are_given_up() -> None:
    defence = Maybenot("tamaraw", most_events=100)
    begin = time.process_time()
    with pytest.raises(DefenceError, match=r"load 0 of run 0: .* back after 100 steps"):
        defence.apply(bursty(1), 1)
    assert time.process_time() - begin < 5


def test_every_name_makes_machines() -> None:
    for client, server in NAMED.values():
        _core.maybenot_check([*client, *server])


def test_the_binding_refuses_unsound_traces() -> None:
    ok = np.array([0.0, 1.0])
    up = np.array([True, False])
    for times, directions in [
        (np.array([1.0, 0.0]), up),
        (np.array([np.nan, 0.0]), up),
        (np.array([-1.0, 0.0]), up),
        (np.array([0.0, 1e300]), up),
        (ok, up[:1]),
    ]:
        with pytest.raises(ValueError, match=r"times|a time and a direction"):
            _core.maybenot_defend(times, directions, [], [], 1, 0.01)
