"""A judgement as a page of Markdown: what is caught is said first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from anabranch.covertness import statistics
from anabranch.covertness.detectors import DETECTORS, LEAST_HIT, MUST_HIT
from anabranch.covertness.judge import REAL, Judgement, Told
from anabranch.metrics.bootstrap import Estimate

BEGIN = "<!-- anabranch-lab covertness: from here to the end mark, all is generated -->"
END = "<!-- anabranch-lab covertness: end -->"
BAR = 0.6
"""Area by the paper's features that a class keeps below, to be called like the browser by them."""
WANTED = 10_000
"""First packets of a class of HTTP that no fixed detector may hit, and negatives that tell a rate
of 1 in 1,000."""
HTTP = "http-"
"""What names of such classes begin with."""
FARTHEST = 6
"""Features of a class that are shown."""


def document(found: Judgement, command: str) -> str:
    """What stands between the marks, with them."""
    lines = [BEGIN, "", f"    {command}", "", *_captures(found)]
    lines += ["", "### What is caught", "", *(f"* {line}" for line in findings(found))]
    lines += ["", "### Fixed detectors", "", *detectors(found)]
    lines += ["", "### One connection", "", *_connections(found)]
    lines += ["", "### One server", "", *_servers(found)]
    lines += ["", "### Farthest features", "", *_features(found)]
    return "\n".join([*lines, "", END, ""])


def findings(found: Judgement) -> list[str]:
    """What follows, worst first: a set-up that leaks, a broken detector, then what is caught."""
    return [*_leaks(found), *_broken(found), *_caught(found), *_hit(found), *_bars(found)]


def _leaks(found: Judgement) -> Iterator[str]:
    own = [each for each in found.told if each.name == REAL[1] and each.area is not None]
    bad = [each for each in own if each.area and each.area.low > 0.5]
    for each in bad:
        yield (
            f"**The set-up leaks**: the browser is told from itself by {_of(each)}: area "
            f"{_estimate(each.area)}. What is told of others by these is too much, or chance "
            f"({len(bad)} of {len(own)} intervals lie above .5)."
        )
    if own and not bad:
        most = max((each.area for each in own if each.area), key=lambda area: area.value)
        yield (
            "The browser is not told from itself: no interval of an area lies above .5; the "
            f"greatest area is {_estimate(most)}."
        )


def _broken(found: Judgement) -> Iterator[str]:
    for each in found.hits:
        if each.detector == "fully encrypted" and each.name in MUST_HIT:
            share = each.hits / max(each.connections, 1)
            said = f"the rule for fully encrypted traffic hits {each.hits} of {each.connections}"
            if share < LEAST_HIT:
                yield f"**The detector is broken**: {each.name}: {said}; it has to hit nearly all."
            else:
                yield f"{each.name}: {said}, as it has to."


def _caught(found: Judgement) -> Iterator[str]:
    """The strongest adversary a connection, the most caught class first."""
    rows = [each for each in found.told
            if (each.features, each.apart, each.after) == ("all", "site", 1)]  # fmt: skip
    rows = [each for each in rows if each.name not in REAL and each.area is not None]
    for each in sorted(rows, key=lambda row: -(row.area.value if row.area else 0)):
        area = each.area.value if each.area else float("nan")
        word = "caught" if area > BAR else "not told from a browser by this forest"
        yield (
            f"**{each.name}**: {word}; all features, one connection: area {_estimate(each.area)}, "
            f"{_rate(each)}."
        )


def _hit(found: Judgement) -> Iterator[str]:
    for each in found.hits:
        if each.name in REAL or each.name in MUST_HIT or not each.hits:
            continue
        yield f"{each.name}: '{each.detector}' hits {each.hits} of {each.connections} connections."


def _bars(found: Judgement) -> Iterator[str]:
    for each in found.told:
        if each.name.startswith(HTTP) and (each.features, each.apart) == ("paper", "site"):
            area = each.area.value if each.area else float("nan")
            word = "met" if area <= BAR else "missed"
            yield (
                f"Bar of {BAR} by the paper's features, {each.name}: {word}, "
                f"{_estimate(each.area)}."
            )
    for name in dict.fromkeys(each.name for each in found.hits):
        if not name.startswith(HTTP):
            continue
        rows = [each for each in found.hits if each.name == name]
        hits, count = sum(each.hits for each in rows), rows[0].connections
        word = "missed" if hits else "met" if count >= WANTED else "not decided, too few"
        yield (
            f"Bar of no hit in {WANTED:,} first packets, {name}: {word}; {hits} hits in "
            f"{count:,} (a rate of at most {statistics.fewest_false(count):.2g} if none)."
        )


def _captures(found: Judgement) -> list[str]:
    head = ["class", "sessions", "sites", "connections", "a session", "kB up", "kB down"]
    rows = []
    for name, group in found.groups.items():
        count = [float(len(flows)) for flows in group.sessions]
        sums = [[sum(int(abs(flow.sizes[flow.sizes * side > 0]).sum()) for flow in flows) / 1000
                 for flows in group.sessions] for side in (1, -1)]  # fmt: skip
        middle = [f"{np.median(each):.3g}" if each else "–" for each in (count, *sums)]
        rows.append([name, len(count), len(set(group.sites)), f"{sum(count):,.0f}", *middle])
    note = "Medians of a session's connections and of its payload. Others that began before a "
    note += f"capture: {sum(group.headless for group in found.groups.values())} packets, left out."
    return [*_table(head, rows), "", note]


def detectors(found: Judgement) -> list[str]:
    """A table of what each fixed detector hits."""
    rows = []
    for name in found.groups:
        own = [each for each in found.hits if each.name == name]
        rows.append([name, *(f"{each.hits:,} of {each.connections:,}" for each in own)])
    return _table(["class", *DETECTORS], rows)


def _connections(found: Judgement) -> list[str]:
    rows = [[each.name, each.features, each.apart, f"{each.positives:,}/{each.negatives:,}",
             _estimate(each.area), _rate(each)]
            for each in found.told if each.after == 1]  # fmt: skip
    head = ["class", "features", "no fold shares a", "connections/real", "area", "caught"]
    return _table(head, rows)


def _servers(found: Judgement) -> list[str]:
    seen = {0: "totals of a session", 1: "1 connection"}
    rows = [[each.name, seen.get(each.after, f"{each.after} connections"),
             f"{each.positives:,}/{each.negatives:,}", _estimate(each.area), _rate(each)]
            for each in found.told
            if each.after != 1 or (each.features, each.apart) == ("all", "site")]  # fmt: skip
    return _table(["class", "seen", "servers/real", "area", "caught"], rows)


def _features(found: Judgement) -> list[str]:
    rows = []
    for name in dict.fromkeys(each.name for each in found.distances):
        own = [each for each in found.distances if each.name == name]
        paper = own[:5]
        others = sorted(own[5:], key=lambda each: -each.estimate.value)[:FARTHEST]
        rows += [[name, each.feature, _estimate(each.estimate)] for each in (*paper, *others)]
    return _table(["class", "feature", "distance (KS)"], rows)


def _of(each: Told) -> str:
    if each.after == 0:
        return "totals of a session"
    seen = "one connection" if each.after == 1 else f"{each.after} connections of a server"
    return f"{seen}, {each.features} features, folds by {each.apart}"


def _rate(each: Told) -> str:
    """The true-positive rate, and what its false-positive rate really may be."""
    if each.rate is None:
        return "–"
    few = each.negatives < WANTED
    bound = max(statistics.fewest_false(each.negatives), statistics.RARE)
    said = f"≤ {bound:.1g}, of {each.negatives:,} negatives" if few else f"{statistics.RARE:g}"
    return f"{_estimate(each.rate)} at a false rate of {said}"


def _estimate(each: Estimate | None) -> str:
    if each is None:
        return "too few"
    return f"{each.value:.3f} ({each.low:.3f}–{each.high:.3f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]
