from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score

from anabranch.covertness import forest, statistics
from anabranch.covertness.statistics import Sample
from anabranch.validate import TraceError


def sample(n: int = 400, sessions: int = 40) -> Sample:
    session = np.repeat(np.arange(sessions), n // sessions)
    return Sample(session % 2 == 0, session, 300, 1)


def test_distance_and_area_are_those_of_scipy_and_scikit_learn() -> None:
    of = sample()
    values = np.round(np.random.default_rng(2).normal(size=400) + of.positive, 1)  # with ties
    found = statistics.distance(of, values)
    assert found.value == pytest.approx(
        ks_2samp(values[of.positive], values[~of.positive]).statistic
    )
    area = statistics.area(of, values)
    assert area.value == pytest.approx(roc_auc_score(of.positive, values))
    assert area.low < area.value < area.high


def test_a_rate_is_that_above_the_lowest_threshold_that_few_negatives_pass() -> None:
    of = sample()
    scores = np.where(of.positive, 0.9, 0.1)
    scores[np.flatnonzero(of.positive)[:100]] = 0.05
    assert statistics.rate(of, scores).value == pytest.approx(0.5)
    scores[np.flatnonzero(~of.positive)[0]] = 1.0  # one of 200 is more than one of 1,000
    assert statistics.rate(of, scores).value == 0.0
    assert statistics.rate(of, scores, 0.01).value == pytest.approx(0.5)


def test_intervals_are_wide_where_sessions_are_few() -> None:
    values = np.random.default_rng(3).normal(size=400)
    for_many, for_few = (
        statistics.area(sample(sessions=sessions), np.repeat(values[:sessions], 400 // sessions))
        for sessions in (200, 10)
    )
    assert for_few.high - for_few.low > 2 * (for_many.high - for_many.low)


def test_missing_values_count_as_a_value() -> None:
    of = sample()
    values = np.where(of.positive, np.nan, 1.0)
    assert statistics.distance(of, values).value == 1.0
    nothing = statistics.distance(of, np.full(400, np.nan))
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
    # A number that is each site's own tells within it, and nothing of other sites.
    own = chance.normal(size=(10, 2))[site, positive.astype(int)][:, None]
    assert roc_auc_score(positive, forest.scores(own, positive, np.arange(400), 1)) > 0.98
    assert roc_auc_score(positive, forest.scores(own, positive, site, 1)) < 0.8


def test_one_site_is_too_few() -> None:
    with pytest.raises(TraceError, match="two sites"):
        forest.scores(np.zeros((4, 1)), np.array([1, 0, 1, 0], bool), np.zeros(4, np.int64), 1)
