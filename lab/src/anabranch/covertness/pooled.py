"""A server's score after many connections, from whole sessions.

A simulated server takes the sessions of a random site in random order, then those of another site,
until it has enough connections. A session is used as a whole or not at all. The scores of
connections are from forests that were not trained on their sites.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.covertness.statistics import interval
from anabranch.metrics.bootstrap import Estimate, draws

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SERVERS = 100
"""Number of servers drawn per class, for the value and for each resample of the sites."""


class Pool:
    """Sessions of both classes, with the sum of the scores of each session's connections."""

    def __init__(
        self,
        scores: Sequence[Floats],
        positive: NDArray[np.bool_],
        site: Ints,
    ) -> None:
        """Takes one sequence of scores (0 to 1, both excluded) for each session.

        Args:
            scores: scores of each session's connections, at least one.
            positive: bool (sessions,), whether a session is of the positive class.
            site: int64 (sessions,), the site of each session.
        """
        self.lengths = np.array([each.size for each in scores], np.int64)
        self.sums = np.array([np.log(each / (1 - each)).sum() for each in scores])
        self.positive = positive
        _, self.site = np.unique(site, return_inverse=True)

    def connections(self) -> tuple[int, int]:
        """Returns the numbers of connections of the positive and of the negative class."""
        own = int(self.lengths[self.positive].sum())
        return own, int(self.lengths.sum()) - own

    def area(self, after: int, resamples: int, seed: int) -> Estimate | None:
        """Returns the area under the ROC curve of servers with `after` or a few more connections.

        The interval is over sites, as in `statistics`. None if a class has too few connections for
        two servers without a common session.
        """
        if min(self.connections()) < 2 * after:
            return None
        chance = np.random.default_rng(seed)
        sites = int(self.site.max()) + 1
        value = self._area(np.ones(sites), after, chance)
        spread = [self._area(drawn, after, chance) for drawn in draws(chance, sites, resamples)]
        return interval(value, np.array(spread), sites)

    def _area(self, drawn: Floats, after: int, chance: np.random.Generator) -> float:
        """Returns the area for sites drawn `drawn` times each; NaN if there are too few."""
        times = drawn.astype(np.int64)
        # A site that was drawn twice counts as two sites.
        copies = [np.flatnonzero(times > each) for each in range(int(times.max()))]
        place = [np.flatnonzero(np.isin(self.site, sites)) for sites in copies]
        session = np.concatenate(place)
        site = np.concatenate([self.site[part] + number * times.size
                               for number, part in enumerate(place)])  # fmt: skip
        scores = []
        for side in (True, False):
            own = self.positive[session] == side
            scores.append(self._scores(session[own], site[own], after, chance))
        if any(each is None for each in scores):
            return float("nan")
        ours, real = scores
        assert ours is not None
        assert real is not None
        above = ours[:, None] > real
        equal = ours[:, None] == real
        return float(above.mean() + equal.mean() / 2)

    def _scores(
        self, session: Ints, site: Ints, after: int, chance: np.random.Generator
    ) -> Floats | None:
        """Returns mean scores of servers of one class, (`SERVERS`,); None if there are too few."""
        if self.lengths[session].sum() < after:
            return None
        _, site = np.unique(site, return_inverse=True)
        sites = int(site.max()) + 1
        first = chance.permuted(np.tile(np.arange(sites), (SERVERS, 1)), axis=1)
        order = np.argsort(first[:, site] + chance.random((SERVERS, site.size)), axis=1)
        lengths = self.lengths[session][order].cumsum(axis=1)
        sums = self.sums[session][order].cumsum(axis=1)
        last = (lengths < after).sum(axis=1)
        rows = np.arange(SERVERS)
        found: Floats = sums[rows, last] / lengths[rows, last]
        return found
