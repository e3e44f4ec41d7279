"""Rates against counts by hand, intervals against the binomial distribution."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from anabranch import metrics
from anabranch.metrics import Outcomes, bootstrap
from anabranch.metrics.rates import Rates, rates


def outcomes(
    page: ArrayLike,
    guess: ArrayLike,
    *,
    score: ArrayLike | None = None,
    monitored: ArrayLike | None = None,
    packets: ArrayLike | None = None,
    share: ArrayLike | None = None,
) -> Outcomes:
    pages = np.asarray(page, np.int32)
    n = pages.size

    def column(values: ArrayLike | None, default: float, kind: type) -> np.ndarray:
        return np.full(n, default, kind) if values is None else np.asarray(values, kind)

    count = column(packets, 50, np.int64)
    return Outcomes(
        run=np.zeros(n, np.int32),
        load=np.arange(n),
        path=np.zeros(n, np.int16),
        page=pages,
        monitored=column(monitored, 1, np.bool_),
        packets=count,
        share=column(share, 0.5, np.float64),
        guess=np.asarray(guess, np.int32),
        score=np.where(count > 0, column(score, 0.5, np.float64), -1.0),
        rest=np.zeros(n),
        fold=np.zeros(n, np.int16),
    )


HAND = outcomes(
    page=[1, 1, 1, 2, 2, 8, 8, 9, 9],
    guess=[1, 1, 2, 2, 2, 1, 2, 1, 1],
    score=[0.9, 0.4, 0.8, 0.7, 0.9, 0.6, 0.2, 0.1, 0.9],
    monitored=[1, 1, 1, 1, 1, 0, 0, 0, 0],
    packets=[50, 50, 50, 3, 0, 50, 50, 50, 0],
)
"""At 0.5: true 1 and (2, short); wrong (1 as 2); rejected 1; empty 2; false 8; empty 9."""


def test_rates_by_hand() -> None:
    found = rates(metrics.count(HAND, HAND.score[:, None] >= 0.5))
    assert found.true.tolist() == [2 / 5]
    assert found.wrong.tolist() == [1 / 5]
    assert found.false.tolist() == [1 / 4]
    assert metrics.r_precision(found, 20)[0] == pytest.approx(0.4 / (0.4 + 0.2 + 5))
    precision = 0.4 / 5.6
    assert metrics.f1_score(found, 20)[0] == pytest.approx(2 * precision * 0.4 / (precision + 0.4))


def test_an_empty_subtrace_is_a_miss_or_a_true_negative() -> None:
    """Even where every other rule would accept the prediction."""
    found = rates(metrics.count(HAND, np.ones((9, 1), np.bool_)))
    assert found.true.tolist() == [3 / 5]
    assert found.false.tolist() == [3 / 4]
    assert not HAND.right[4]


def test_precision_of_nothing_is_not_a_number_and_f1_is_0() -> None:
    none = Rates(np.zeros(1), np.zeros(1), np.zeros(1))
    assert np.isnan(metrics.r_precision(none, 20)).all()
    assert metrics.f1_score(none, 20).tolist() == [0]


def test_closed_world_accuracy() -> None:
    found = metrics.closed_world(HAND[HAND.monitored], 2, 200, 0)
    assert found["accuracy"].value == 3 / 5
    assert found["unseen"] == 1
    assert found["chance"] == 1 / 2


def test_intervals_are_of_pages_not_of_loads() -> None:
    """50 equal loads of each page are as uncertain as one load of each."""
    right = np.arange(40) % 4 > 0
    guess = np.where(right, np.arange(40), -5)
    once = metrics.closed_world(outcomes(np.arange(40), guess), 40, 4000, 1)["accuracy"]
    often = outcomes(np.repeat(np.arange(40), 50), np.repeat(guess, 50))
    many = metrics.closed_world(often, 40, 4000, 1)["accuracy"]
    assert once == many
    deviation = (0.75 * 0.25 / 40) ** 0.5
    assert once.low == pytest.approx(0.75 - 1.96 * deviation, abs=0.03)
    assert once.high == pytest.approx(0.75 + 1.96 * deviation, abs=0.03)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    chance = np.random.default_rng(5)
    held = 0
    for trial in range(200):
        easy = chance.beta(2, 2, 60)
        right = chance.random((60, 5)) < easy[:, None]
        guess = np.where(right, np.arange(60)[:, None], -5).ravel()
        rows = outcomes(np.repeat(np.arange(60), 5), guess)
        found = metrics.closed_world(rows, 60, 300, trial)["accuracy"]
        held += found.low <= 0.5 <= found.high
    assert 178 <= held <= 199, held  # 95 % of 200, within 4 standard deviations below


def test_of_no_loads_no_rate_is_known() -> None:
    found = metrics.closed_world(HAND[~HAND.monitored], 2, 50, 0)
    assert np.isnan(found["accuracy"].value)


def test_many_unmonitored_pages_are_drawn_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    page = np.arange(70)
    rows = outcomes(page, np.where(page < 20, page, 0), monitored=page < 30)
    accepted = np.random.default_rng(1).random((len(rows), 1)) < 0.5
    whole = metrics.open_world(rows, accepted[:, 0], accepted, 20.0, 100, 5)
    monkeypatch.setattr(bootstrap, "BLOCK", 7 * 40)
    blocks = metrics.open_world(rows, accepted[:, 0], accepted, 20.0, 100, 5)
    assert whole == blocks


def test_equal_seeds_give_equal_intervals() -> None:
    page = np.repeat(np.arange(20), np.arange(1, 21))
    rows = outcomes(page, np.random.default_rng(0).integers(0, 20, page.size))
    one, same, other = (metrics.closed_world(rows, 20, 100, seed)["accuracy"] for seed in (1, 1, 2))
    assert one == same
    assert (one.low, one.high) != (other.low, other.high)


def test_the_threshold_is_the_best_of_the_validation_set() -> None:
    rows = outcomes(
        page=[1, 1, 1, 1, 9, 9],
        guess=[1, 1, 1, 2, 1, 1],
        score=[0.9, 0.8, 0.7, 0.3, 0.6, 0.1],
        monitored=[1, 1, 1, 1, 0, 0],
    )
    grid = metrics.thresholds(rows)
    assert (grid.min(), grid.max()) == (0.3, 0.9)
    threshold = metrics.best_threshold(rows, grid, 20)
    assert 0.6 < threshold <= 0.7, "all three rights and neither wrong nor false"


def test_thresholds_without_any_score_cover_all() -> None:
    rows = outcomes([1, 2], [1, 2], packets=[0, 0])
    assert metrics.thresholds(rows)[[0, -1]].tolist() == [0, 1]


def test_the_open_world_curve_falls_with_the_threshold() -> None:
    grid = np.linspace(0, 1, 11)
    curve = HAND.score[:, None] >= grid
    found = metrics.open_world(HAND, HAND.score >= 0.5, curve, 20, 100, 0)
    recall = [estimate.value for estimate in found["curve"]["recall"]]
    assert recall == sorted(recall, reverse=True)
    assert recall[0] == 3 / 5
    assert found["recall"].value == 2 / 5
    assert np.isnan(found["curve"]["r_precision"][-1].value)
    assert (found["monitored_pages"], found["unmonitored_pages"]) == (2, 2)


def test_accuracy_by_share_in_quarters() -> None:
    share = np.linspace(0, 1, 80)
    page = np.tile(np.arange(8), 10)
    guess = np.where(share > 0.5, page, -5)
    parts = metrics.by_share(outcomes(page, guess, share=share), np.ones(80, np.bool_), 50, 0)
    assert [part["predictions"] for part in parts] == [20] * 4
    assert [part["accuracy"].value for part in parts] == [0, 0, 1, 1]
    assert parts[0]["greatest_share"] < parts[1]["least_share"]


def test_equal_shares_make_one_part() -> None:
    rows = outcomes([1, 2], [1, 2], share=[1, 1])
    assert len(metrics.by_share(rows, np.ones(2, np.bool_), 10, 0)) == 1


def test_the_resolution_is_told_plainly() -> None:
    few = {"unmonitored_pages": 24, "unmonitored_predictions": 1176, "r": 20.0}
    said = metrics.resolution(few, unseen=True)
    assert "24 unmonitored pages (1176 loads)" in said
    assert "4.2%" in said
    assert "up to 11.7%" in said
    assert "the rate for other pages is unknown" in metrics.resolution(few, unseen=False)
    several = metrics.resolution(few, unseen=True, most=2000)
    assert "(1176 loads in the result with the fewest loads, 2000 in the one with" in several
    assert metrics.resolution(few, unseen=True, most=1176) == said
    none = few | {"unmonitored_pages": 0}
    assert "no unmonitored pages" in metrics.resolution(none, unseen=True)
