"""All measurements on a folder of captures: hits of detectors, areas, distances, requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.covertness import flows, requests
from anabranch.covertness.detectors import DETECTORS, OF_FIRST_PACKETS
from anabranch.covertness.manifest import Entry
from anabranch.covertness.pair import Distance, ForestScore, Group, Pair
from anabranch.covertness.requests import Requests
from anabranch.validate import TraceError

REAL = ("real-a", "real-b")
"""The browser's two classes. The second is compared with the first, as a control.

Every other class is compared with both together.
"""


@dataclass(frozen=True, slots=True)
class Hits:
    """Number of connections of class `name` that a fixed detector hits.

    `connections` is the number of connections in which the client sent payload.
    """

    name: str
    detector: str
    connections: int
    hits: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """All results about covertness. The browser's classes are first, then others by name.

    Attributes:
        groups: the connections of each class.
        hits: hits of each fixed detector in each class.
        scores: area and rate of each forest, by class, features, folds and connections seen.
        distances: distance from the browser in each feature, by class.
        requests: cleartext HTTP requests of each class that has any.
    """

    groups: dict[str, Group]
    hits: list[Hits]
    scores: list[ForestScore]
    distances: list[Distance]
    requests: list[Requests]


def collect(
    entries: Sequence[Entry], on_capture: Callable[[], None] = lambda: None
) -> dict[str, Group]:
    """Reads all captures.

    Raises:
        TraceError: names the capture that is damaged, or has no connection.
    """
    groups: dict[str, Group] = {}
    for entry in entries:
        capture = flows.read(entry.file, entry.server)
        if not capture.flows:
            raise TraceError(
                "has no connection from its first packet on: start the capture before the "
                "connection",
                file=entry.file,
            )
        group = groups.setdefault(entry.name, Group())
        group.firsts += capture.flows
        group.headless += capture.headless
        if entry.purpose == "all":
            group.sessions.append(capture.flows)
            group.sites.append(entry.site)
            group.numbers.append(entry.session)
        on_capture()
    return dict(sorted(groups.items(), key=lambda each: (each[0] not in REAL, each[0])))


def hits(groups: dict[str, Group]) -> list[Hits]:
    """Counts the hits of each fixed detector in each class.

    Detectors that use more than the first packet skip captures whose field `for` is `detectors`.
    """
    found = []
    for name, group in groups.items():
        every = {True: group.firsts, False: [flow for flows in group.sessions for flow in flows]}
        for word, detector in DETECTORS.items():
            spoke = [flow for flow in every[word in OF_FIRST_PACKETS] if flow.first]
            found.append(Hits(name, word, len(spoke), sum(map(detector, spoke))))
    return found


def request_counts(groups: dict[str, Group]) -> list[Requests]:
    """Counts the requests of the browser (over all of its classes) and of each other class.

    Classes without requests are left out.
    """
    real = [session for name in REAL if name in groups for session in groups[name].sessions]
    every = {", ".join(REAL): real}
    every |= {name: group.sessions for name, group in groups.items() if name not in REAL}
    found = [requests.count(name, sessions) for name, sessions in every.items()]
    return [each for each in found if each is not None]


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
                f"there are no captures of the class '{name}', with which the others are "
                "compared: add them to the manifest"
            )
    judged = Judgement(groups, hits(groups), [], [], request_counts(groups))
    for name, group in groups.items():
        if name == REAL[0] or not group.sessions:
            continue
        others = REAL[:1] if name == REAL[1] else REAL
        pair = Pair(group, [groups[each] for each in others], resamples, seed)
        on_class(name)
        try:
            judged.scores.extend(pair.scores(name))
        except TraceError as error:
            raise TraceError(f"class '{name}': {error.problem}") from error
        judged.distances.extend(pair.distances(name))
    return judged
