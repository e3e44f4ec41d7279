from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score

from anabranch.covertness import forest, statistics
from anabranch.covertness.pooled import Pool
from anabranch.covertness.statistics import Sample
from anabranch.validate import TraceError


def sample(n: int = 400, sites: int = 40) -> Sample:
    """Returns a sample with the same number of connections of either class at each site."""
    return Sample(np.arange(n) % 2 == 0, np.repeat(np.arange(sites), n // sites), 300, 1)


def test_distance_and_area_are_those_of_scipy_and_scikit_learn() -> None:
    of = sample()
    values = np.round(np.random.default_rng(2).normal(size=400) + of.positive, 1)  # with ties
    found = of.distance(values)
    assert found.value == pytest.approx(
        ks_2samp(values[of.positive], values[~of.positive]).statistic
    )
    area = of.area(values)
    assert area.value == pytest.approx(roc_auc_score(of.positive, values))
    assert area.low < area.value < area.high


def test_a_rate_is_that_above_the_lowest_threshold_that_few_negatives_pass() -> None:
    of = sample()
    scores = np.where(of.positive, 0.9, 0.1)
    scores[np.flatnonzero(of.positive)[:100]] = 0.05
    assert of.rate(scores).value == pytest.approx(0.5)
    scores[np.flatnonzero(~of.positive)[0]] = 1.0  # one of 200 is more than one of 1,000
    assert of.rate(scores).value == 0.0
    assert of.rate(scores, 0.01).value == pytest.approx(0.5)


def test_intervals_hold_what_is_so_of_other_sites() -> None:
    """Scores depend mostly on the site, so that an interval over connections would be far too
    narrow.

    A useless forest is judged on new sites each time: in 95 % of such trials the interval contains
    .5.
    """
    held = []
    for trial in range(300):
        chance = np.random.default_rng([3, trial])
        of = sample(n=400, sites=10)
        # A site is harder for one class than for the other, by the same amount either way.
        scores = chance.normal(size=10)[of.site] * of.positive + 0.1 * chance.normal(size=400)
        area = Sample(of.positive, of.site, 300, trial).area(scores)
        assert 0 <= area.low <= area.value <= area.high <= 1
        held.append(area.low <= 0.5 <= area.high)
    assert 0.91 <= np.mean(held) <= 0.99


def test_intervals_stay_within_0_and_1_and_hold_their_value() -> None:
    of = sample(sites=4)
    scores = np.where(of.positive, 1.0, 0.0)
    scores[:3] = 0.5
    for found in (of.area(scores), of.distance(scores), of.rate(scores, 0.1)):
        assert 0 <= found.low <= found.value <= found.high <= 1


def test_one_site_has_no_interval_and_a_resample_without_a_class_is_left_out() -> None:
    of = sample(sites=1)
    assert np.isnan(of.area(np.arange(400.0)).low)
    alone = Sample(of.positive, np.arange(400) % 2 + 0 * of.site, 200, 1)  # a class for each site
    found = alone.area(np.where(of.positive, 1.0, 0.0))
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def pool(shift: float, sites: int = 12, sessions: int = 3, connections: int = 8) -> Pool:
    """Returns sessions of both classes at each site; positives' scores are higher by `shift`."""
    chance = np.random.default_rng(5)
    site = np.repeat(np.arange(sites), 2 * sessions)
    positive = np.tile([True, False], sites * sessions)
    logits = chance.normal(size=(site.size, connections)) + shift * positive[:, None]
    return Pool(list(1 / (1 + np.exp(-logits))), positive, site)


def test_more_connections_tell_a_server_better() -> None:
    of = pool(0.5)
    few, many = of.area(8, 60, 1), of.area(80, 60, 1)
    assert few is not None
    assert many is not None
    assert 0.6 < few.value < many.value
    assert many.value > 0.95
    none = pool(0.0).area(40, 200, 1)
    assert none is not None
    assert none.low <= 0.5 <= none.high


def test_a_server_has_whole_sessions_and_two_of_a_class_can_be_apart() -> None:
    of = pool(0.5, sites=3, sessions=2)  # 48 connections of each class
    assert of.connections() == (48, 48)
    assert of.area(24, 20, 1) is not None
    assert of.area(25, 20, 1) is None
    # A session of one hundred connections is not cut: all of them decide.
    scores = [np.full(100, 0.9), np.full(100, 0.1), np.array([0.2]), np.array([0.3])]
    one = Pool(scores, np.array([True, False, True, False]), np.array([0, 0, 1, 1]))
    found = one.area(2, 20, 1)
    assert found is not None
    assert found.value == 1.0  # 90.2 of 101 either way round: the long session is in each server


def test_missing_values_count_as_a_value() -> None:
    of = sample()
    values = np.where(of.positive, np.nan, 1.0)
    assert of.distance(values).value == 1.0
    nothing = of.distance(np.full(400, np.nan))
    assert (nothing.value, nothing.high) == (0.0, 0.0)


def test_three_by_n() -> None:
    assert statistics.fewest_false(10_000) == 3e-4
    assert statistics.fewest_false(0) == 1.0


def test_a_forest_knows_what_holds_on_other_sites_and_not_what_holds_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forest, "TREES", 30)
    chance = np.random.default_rng(4)
    site = np.repeat(np.arange(10), 40)
    positive = np.tile([True, False], 200)
    mark = positive + 0.1 * chance.normal(size=400)
    good = forest.scores(mark[:, None], positive, site, 1)
    assert roc_auc_score(positive, good) > 0.98
    noise = forest.scores(chance.normal(size=(400, 3)), positive, site, 1)
    assert 0.4 < roc_auc_score(positive, noise) < 0.6
    # A number unique to each site separates within it, and not for other sites.
    own = chance.normal(size=(10, 2))[site, positive.astype(int)][:, None]
    assert roc_auc_score(positive, forest.scores(own, positive, np.arange(400), 1)) > 0.98
    assert roc_auc_score(positive, forest.scores(own, positive, site, 1)) < 0.8


def test_one_site_is_too_few() -> None:
    with pytest.raises(TraceError, match="two sites"):
        forest.scores(np.zeros((4, 1)), np.array([1, 0, 1, 0], bool), np.zeros(4, np.int64), 1)
