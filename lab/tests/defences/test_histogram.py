from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from anabranch.defences import DefenceError
from anabranch.defences.histogram import Fit, Histogram, Tokens, exponential_edges

FOUR = Tokens((0.0, 1.0, 2.0, 4.0), (3, 0, 2), 1)


def test_edges_double_up_to_the_longest() -> None:
    assert exponential_edges(8.0, 4) == [0.0, 1.0, 2.0, 4.0, 8.0]
    edges = exponential_edges(10.0, 30)
    assert len(edges) == 31
    assert edges[-2:] == [5.0, 10.0]
    assert edges[1] == 10 / 2**29


def test_known_tokens_of_the_published_client_burst() -> None:
    """N(1.56 ms, 52.3 ms), 10,000 tokens, those below zero dropped: from a table of Phi.

    Edges at 39.1, 78.1, 156.3 and 312.5 ms are at 0.717, 1.463, 2.956 and 5.942 deviations, where
    Phi is 0.7632, 0.9283, 0.9984 and 1.0000.
    """
    tokens = Fit(9, 0.001564159, 0.052329599).tokens("burst")
    assert tokens.finite[-8:] == (1651, 702, 16, 0, 0, 0, 0, 0)
    assert sum(tokens.finite) == pytest.approx(10_000 * 0.5119, abs=10)
    assert tokens.infinite == math.ceil(sum(tokens.finite) / 9)


def test_known_tokens_of_a_log_normal_fit() -> None:
    """Half of the tokens are below the median, exp(mean); 68.3 % within one deviation."""
    tokens = Fit(21, math.log(0.15625), math.log(2.0), "log-normal").tokens("gap")
    place = tokens.edges.index(0.15625)
    assert sum(tokens.finite[:place]) == pytest.approx(5000, abs=5)
    assert sum(tokens.finite[place - 1 : place + 1]) == pytest.approx(6827, abs=2)


def test_a_gap_ends_after_as_many_draws_as_a_burst_is_long() -> None:
    tokens = Fit(21, 0.06129599, 0.03995375).tokens("gap")
    total = sum(tokens.finite) + tokens.infinite
    assert total / tokens.infinite == pytest.approx(21, abs=0.1)


def test_draws_follow_tokens() -> None:
    histogram, chance = Histogram(FOUR), Random(1)
    draws = np.array([histogram.draw(chance) for _ in range(6000)])
    counts = [(draws < 1).sum(), ((draws >= 1) & (draws < 2)).sum(), np.isinf(draws).sum()]
    # Binomial: four standard deviations of a count are at most 155.
    assert counts == [pytest.approx(3000, abs=155), 0, pytest.approx(1000, abs=116)]
    assert draws[np.isfinite(draws)].max() < 4


def test_tokens_go_where_time_went_or_next_to_it() -> None:
    histogram = Histogram(FOUR)
    histogram.remove(3.0)
    assert list(histogram.counts) == [3, 0, 1, 1]
    histogram.remove(1.5)  # empty: the next to the left
    assert list(histogram.counts) == [2, 0, 1, 1]
    histogram.remove(99.0)  # beyond the last edge: infinity
    assert list(histogram.counts) == [2, 0, 1, 0]
    histogram.remove(0.0)
    histogram.remove(0.5)
    assert list(histogram.counts) == [0, 0, 1, 0]
    histogram.remove(0.5)  # none to the left: to the right. It was the last: all come back
    assert list(histogram.counts) == [3, 0, 2, 1]


def test_drawing_removes_nothing() -> None:
    histogram, chance = Histogram(FOUR), Random(1)
    for _ in range(50):
        histogram.draw(chance)
    assert list(histogram.counts) == [3, 0, 2, 1]


@pytest.mark.parametrize(
    "fit", [(0.5, 1, 1), (9, math.nan, 1), (9, 1, 0), (9, 1, -1), (9, 1, 1, "cauchy")]
)
def test_fits_that_are_none(fit: tuple[float, ...]) -> None:
    with pytest.raises(DefenceError, match="is not a histogram"):
        Fit(*fit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("edges", "finite", "infinite"),
    [
        ((0.0, 1.0), (1, 1), 0),
        ((1.0, 0.0), (1,), 0),
        ((-1.0, 0.0), (1,), 0),
        ((0.0, 1.0), (0,), 0),
        ((0.0, 1.0), (-1,), 5),
    ],
)
def test_tokens_that_fit_nothing(
    edges: tuple[float, ...], finite: tuple[int, ...], infinite: int
) -> None:
    with pytest.raises(DefenceError, match="histogram"):
        Tokens(edges, finite, infinite)
