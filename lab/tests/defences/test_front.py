from __future__ import annotations

import numpy as np
import pytest
from bursty import bursty

from anabranch.defences import DefenceError, Front, overhead
from anabranch.defences.front import rayleigh
from anabranch.traces import Builder


def test_the_published_overhead() -> None:
    """FT-1 costs 33 % and FT-2 49 % on the paper's loads, some 5,000 cells of up to a minute.

    850 (1,250) dummies each way on average. The deviation of a mean over 200 loads is 1.0 (1.5)
    points, and a longest window of 14 s puts few dummies after the end of such loads.
    """
    loads = bursty(200, bursts=160, pause=0.35)
    for budget, published in ((1700, 0.33), (2500, 0.49)):
        cost = overhead(loads, Front(budget, budget).apply(loads, 3))
        assert cost.bandwidth == pytest.approx(published, abs=0.05)
        assert cost.time == 0


def test_budgets_and_the_end_of_the_load_are_kept() -> None:
    loads = bursty(60, bursts=20)
    done = Front(40, 70, 0.1, 0.5).apply(loads, 2)
    added = done.owners[done.padding], done.sizes[done.padding]
    up = np.bincount(added[0][added[1] > 0], minlength=60)
    down = np.bincount(added[0][added[1] < 0], minlength=60)
    assert up.max() <= 40
    assert down.max() <= 70
    assert up.max() > 30  # 60 draws of 1 to 40: all below 31 once in 10^7 times
    assert down.max() > 55
    for k in range(60):
        packets = done.packets(k)
        real = done.times[packets][~done.padding[packets]]
        assert done.times[packets].min() == real.min()
        assert done.times[packets].max() == real.max()


def test_the_server_counts_from_its_first_packet() -> None:
    loads = Builder().add("a", [1.0, 1.1, 9.0, 60.0], [1, 1, -1, -1]).build()
    done = Front(1700, 1700, 1.0, 1.0).apply(loads, 1)
    down = done.times[done.padding & (done.sizes < 0)]
    up = done.times[done.padding & (done.sizes > 0)]
    assert down.min() > 9.0
    assert 1.0 < up.min() < 2.0
    # The mean of a Rayleigh time is sqrt(pi/2) of its window.
    assert up.mean() - 1.0 == pytest.approx(np.sqrt(np.pi / 2), rel=0.2)


def test_no_budget_is_no_padding_and_no_answer_no_server() -> None:
    loads = Builder().add("a", [0.0, 50.0], [1, 1]).build()
    assert not Front(0, 500).apply(loads, 1).padding.any()
    done = Front(500, 500).apply(loads, 1)
    assert (done.sizes[done.padding] > 0).all()


def test_rayleigh_numbers_are_the_inverse_distribution() -> None:
    quantiles = np.array([0.0, 0.25, 0.5, 0.99])
    numbers = rayleigh(quantiles, 3.0)
    assert np.allclose(1 - np.exp(-(numbers**2) / (2 * 9.0)), quantiles)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"client": -1}, "client=-1"),
        ({"server": 10**9}, "server=1000000000"),
        ({"w_min": 0.0}, "w_min=0"),
        ({"w_min": 5.0, "w_max": 4.0}, "w_max=4"),
        ({"w_max": float("inf")}, "w_max=inf"),
        ({"w_max": float("nan")}, "w_max=nan"),
        ({"size": 0}, "size=0"),
        ({"size": 70_000}, "size=70000"),
    ],
)
def test_numbers_out_of_range(settings: dict[str, float], problem: str) -> None:
    with pytest.raises(DefenceError, match=problem):
        Front(**settings)  # type: ignore[arg-type]
