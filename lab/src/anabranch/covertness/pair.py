"""Comparison of one class with the browser: how well features distinguish it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch.covertness import features, forest, servers, statistics
from anabranch.covertness.flows import Flow
from anabranch.covertness.pooled import Pool
from anabranch.covertness.statistics import Sample
from anabranch.metrics.bootstrap import Estimate

AFTER = (1, 10, 100)
"""Numbers of a server's connections that an adversary sees before it judges the server."""
SETS = {"paper": len(features.PAPER), "all": len(features.NAMES)}
"""Number of features that each adversary uses."""


@dataclass(slots=True)
class Group:
    """The connections of a class.

    Attributes:
        sessions: the connections of each session, from captures for `all`.
        sites: the site of each session.
        numbers: the ID of each session (`session` in the manifest). Sessions of different classes
            with the same ID were captured at about the same time.
        firsts: all connections, including those of captures for `detectors`.
        headless: number of packets of connections that began before the capture.
    """

    sessions: list[list[Flow]] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    firsts: list[Flow] = field(default_factory=list)
    headless: int = 0


@dataclass(frozen=True, slots=True)
class ForestScore:
    """How well an adversary distinguishes one class's connections from the browser's.

    Attributes:
        name: the class.
        features: `paper`, `all` or `server` (totals of a session).
        apart: `site`: the connections of a site are never in both training and test, and therefore
            those of a session are not either. `session`: only those of a session are separated, so
            the adversary has seen the site in other sessions.
        after: number of a server's connections that the adversary has seen; 0 is a whole session.
        positives, negatives: numbers of connections, or of sessions if `after` is 0.
        area: area under the ROC curve; None if there are too few connections.
        rate: true-positive rate at a false-positive rate of `statistics.RARE`; None with fewer than
            `statistics.NEGATIVES` negatives.
    """

    name: str
    features: str
    apart: str
    after: int
    positives: int
    negatives: int
    area: Estimate | None
    rate: Estimate | None


@dataclass(frozen=True, slots=True)
class Distance:
    """Kolmogorov-Smirnov distance of class `name` from the browser's in one feature, 0 to 1."""

    name: str
    feature: str
    estimate: Estimate


class Pair:
    """A comparison of a class with the browser's."""

    def __init__(self, group: Group, real: Sequence[Group], resamples: int, seed: int) -> None:
        both = [group, *real]
        self.resamples, self.seed = resamples, seed
        self.sessions = [flows for each in both for flows in each.sessions]
        _, self.site = np.unique(
            [site for each in both for site in each.sites], return_inverse=True
        )
        self.number = np.array([number for each in both for number in each.numbers])
        self.ours = np.arange(len(self.sessions)) < len(group.sessions)
        self.of = np.repeat(np.arange(len(self.sessions)), [len(each) for each in self.sessions])
        self.matrix = features.matrix(self.sessions)
        self.sample = self._sample(self.of)

    def scores(self, name: str) -> Iterator[ForestScore]:
        """Yields results for one connection, several of the same server, and whole sessions."""
        for word, count in SETS.items():
            for apart, groups in (("site", self.site), ("session", self.number)):
                scores = forest.scores(
                    self.matrix[:, :count], self.sample.positive, groups[self.of], self.seed
                )
                yield self._of(self.sample, scores, name, word, apart, 1)
                if (word, apart) == ("all", "site"):
                    yield from self._servers(scores, name)
        whole = self._sample(np.arange(len(self.sessions)))
        scores = forest.scores(servers.totals(self.sessions), self.ours, self.site, self.seed)
        yield self._of(whole, scores, name, "server", "site", 0)

    def distances(self, name: str) -> Iterator[Distance]:
        """Yields the distance in every feature."""
        for place, feature in enumerate(features.NAMES):
            yield Distance(name, feature, self.sample.distance(self.matrix[:, place]))

    def _sample(self, sessions: NDArray[np.int64]) -> Sample:
        """Returns a sample for statistics with one row for each element of `sessions` (indices)."""
        return Sample(self.ours[sessions], self.site[sessions], self.resamples, self.seed)

    def _of(
        self,
        sample: Sample,
        scores: NDArray[np.float64],
        name: str,
        word: str,
        apart: str,
        after: int,
    ) -> ForestScore:
        positives = int(sample.positive.sum())
        negatives = sample.positive.size - positives
        rate = sample.rate(scores) if negatives >= statistics.NEGATIVES else None
        return ForestScore(
            name, word, apart, after, positives, negatives, sample.area(scores), rate
        )

    def _servers(self, scores: NDArray[np.float64], name: str) -> Iterator[ForestScore]:
        """Yields the results for servers after several connections."""
        by_session = np.split(scores, np.flatnonzero(np.diff(self.of)) + 1)
        pool = Pool(by_session, self.ours, self.site)
        for after in AFTER[1:]:
            area = pool.area(after, self.resamples, self.seed)
            yield ForestScore(name, "all", "site", after, *pool.connections(), area, None)
