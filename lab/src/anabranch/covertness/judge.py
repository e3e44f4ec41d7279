"""All that is computed of a folder of captures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch.covertness import features, flows, forest, servers, statistics
from anabranch.covertness.detectors import DETECTORS, OF_FIRST_PACKETS
from anabranch.covertness.flows import Flow
from anabranch.covertness.manifest import Entry
from anabranch.covertness.statistics import Sample
from anabranch.metrics.bootstrap import Estimate
from anabranch.validate import TraceError

REAL = ("real-a", "real-b")
"""The classes of a browser: every other is told from both, and the second from the first."""
AFTER = (1, 10, 100)
"""Connections of a server after which it is judged."""
SETS = {"paper": len(features.PAPER), "all": len(features.NAMES)}
"""How many of the features each adversary has."""


@dataclass(slots=True)
class Group:
    """What a class did.

    Attributes:
        sessions: its connections, by session; of captures for `all`.
        sites: the site of each.
        firsts: every connection, those of captures for `detectors` too.
        headless: packets of connections that ran before a capture began.
    """

    sessions: list[list[Flow]] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    firsts: list[Flow] = field(default_factory=list)
    headless: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """How well an adversary tells a class from the browser's.

    Attributes:
        features: `paper`, `all` or `server` (totals of a session).
        apart: what no fold has on both sides, `site` or `session`.
        after: how many connections of a server he has seen; 0 is a whole session.
        positives, negatives: how many there were.
        area: under the ROC curve; None where there were too few.
        rate: of true positives at a false-positive rate of `statistics.RARE`.
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
class Hits:
    """Of how many connections with a first packet a fixed detector hit how many."""

    name: str
    detector: str
    connections: int
    hits: int


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a class is from the browser's by one feature."""

    name: str
    feature: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Judgement:
    """All numbers; the browser's classes stand first, the others by name."""

    groups: dict[str, Group]
    hits: list[Hits]
    told: list[Told]
    distances: list[Distance]


def collect(
    entries: Sequence[Entry], on_capture: Callable[[], None] = lambda: None
) -> dict[str, Group]:
    """Reads all captures.

    Raises:
        TraceError: names the capture that is damaged, or holds no connection.
    """
    groups: dict[str, Group] = {}
    for entry in entries:
        capture = flows.read(entry.file, entry.server)
        if not capture.flows:
            raise TraceError("holds no connection from its beginning", file=entry.file)
        group = groups.setdefault(entry.name, Group())
        group.firsts += capture.flows
        group.headless += capture.headless
        if entry.purpose == "all":
            group.sessions.append(capture.flows)
            group.sites.append(entry.site)
        on_capture()
    return dict(sorted(groups.items(), key=lambda each: (each[0] not in REAL, each[0])))


def hits(groups: dict[str, Group]) -> list[Hits]:
    """Of every class by every fixed detector; rules of sizes judge captures `for` all alone."""
    found = []
    for name, group in groups.items():
        every = {True: group.firsts, False: [flow for flows in group.sessions for flow in flows]}
        for word, detector in DETECTORS.items():
            spoke = [flow for flow in every[word in OF_FIRST_PACKETS] if flow.first]
            found.append(Hits(name, word, len(spoke), sum(map(detector, spoke))))
    return found


def judge(
    groups: dict[str, Group],
    resamples: int,
    seed: int,
    on_class: Callable[[str], None] = lambda name: None,
) -> Judgement:
    """Compares every class with the browser's.

    Raises:
        TraceError: if a class of `REAL` is missing, or has too few sites.
    """
    for name in REAL:
        if not groups.get(name, Group()).sessions:
            raise TraceError(
                f"there are no captures of the class '{name}', which others are told from"
            )
    judged = Judgement(groups, hits(groups), [], [])
    for name, group in groups.items():
        if name == REAL[0] or not group.sessions:
            continue
        others = REAL[:1] if name == REAL[1] else REAL
        pair = _Pair(group, [groups[each] for each in others], resamples, seed)
        on_class(name)
        try:
            judged.told.extend(pair.told(name))
        except TraceError as error:
            raise TraceError(f"class '{name}': {error.problem}") from error
        judged.distances.extend(pair.distances(name))
    return judged


class _Pair:
    """A class and the browser's."""

    def __init__(self, group: Group, real: Sequence[Group], resamples: int, seed: int) -> None:
        both = [group, *real]
        self.resamples, self.seed = resamples, seed
        self.sessions = [flows for each in both for flows in each.sessions]
        sites = [site for each in both for site in each.sites]
        _, self.site = np.unique(sites, return_inverse=True)
        self.lengths = np.array([len(flows) for flows in self.sessions])
        self.ours = np.arange(len(self.sessions)) < len(group.sessions)
        self.of = np.repeat(np.arange(len(self.sessions)), self.lengths)
        self.matrix = features.matrix(self.sessions)
        self.sample = Sample(self.ours[self.of], self.of, resamples, seed)

    def told(self, name: str) -> Iterator[Told]:
        """By connection, by server after some, and by whole sessions."""
        for word, count in SETS.items():
            for apart, groups in (("site", self.site), ("session", np.arange(len(self.sessions)))):
                scores = forest.scores(
                    self.matrix[:, :count], self.sample.positive, groups[self.of], self.seed
                )
                yield self._of(self.sample, scores, name, word, apart, 1)
                if (word, apart) == ("all", "site"):
                    for after in AFTER[1:]:
                        yield self._server(scores, name, after)
        whole = Sample(self.ours, np.arange(self.ours.size), self.resamples, self.seed)
        scores = forest.scores(servers.totals(self.sessions), self.ours, self.site, self.seed)
        yield self._of(whole, scores, name, "server", "site", 0)

    def distances(self, name: str) -> Iterator[Distance]:
        """By every feature."""
        for place, feature in enumerate(features.NAMES):
            estimate = statistics.distance(self.sample, self.matrix[:, place])
            yield Distance(name, feature, estimate)

    def _of(
        self,
        sample: Sample,
        scores: NDArray[np.float64],
        name: str,
        word: str,
        apart: str,
        after: int,
    ) -> Told:
        positives = int(sample.positive.sum())
        negatives = sample.positive.size - positives
        if min(positives, negatives) < 2:
            return Told(name, word, apart, after, positives, negatives, None, None)
        area, rate = statistics.area(sample, scores), statistics.rate(sample, scores)
        return Told(name, word, apart, after, positives, negatives, area, rate)

    def _server(self, scores: NDArray[np.float64], name: str, after: int) -> Told:
        """Servers of so many connections each, made of whole sessions one behind the other."""
        logits = np.log(scores / (1 - scores))
        chance = np.random.default_rng(self.seed)
        means: list[float] = []
        sides: list[bool] = []
        for side in (True, False):
            order = chance.permutation(np.flatnonzero(self.ours == side))
            joined = np.concatenate([logits[self.of == session] for session in order])
            blocks = joined[: joined.size // after * after].reshape(-1, after)
            means += blocks.mean(axis=1).tolist()
            sides += [side] * len(blocks)
        sample = Sample(np.array(sides, np.bool_), np.arange(len(sides)), self.resamples, self.seed)
        return self._of(sample, np.array(means), name, "all", "site", after)
