"""Conclusions from a judgement, as sentences of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.covertness import statistics
from anabranch.covertness.detectors import LEAST_HIT, MUST_HIT, OF_FIRST_PACKETS
from anabranch.covertness.judge import REAL, Hits, Judgement
from anabranch.covertness.pair import AFTER, ForestScore
from anabranch.metrics.bootstrap import Estimate
from anabranch.report.markdown import escaped

BAR = 0.6
"""Goal for the HTTP classes: maximum area under the ROC curve with the paper's features.

A class counts as recognised if its area with all features is larger than this number.
"""
WANTED = 10_000
"""Minimum number of first packets, over all HTTP classes, to conclude that no detector matches."""
HTTP = "http-"
"""Prefix of the names of HTTP classes."""


def caught(found: Judgement) -> Iterator[str]:
    """Yields sentences on faults of the measurement, then on each class, then on detectors' hits.

    Classes are sorted by the area for one connection with all features, the largest first.
    """
    yield from _leaks(found)
    yield from _broken(found)
    rows = [each for each in found.scores
            if (each.features, each.apart, each.after) == ("all", "site", 1)
            and each.name not in REAL]  # fmt: skip
    for each in sorted(rows, key=lambda row: -_value(row.area)):
        parts = [f"one connection {estimate(each.area)}", *_later(found, each.name)]
        yield f"**{escaped(each.name)}: {_word(each.area)}.** Area for {'; '.join(parts)}."
    for hit in found.hits:
        if hit.name not in REAL and hit.hits and not _must(hit):
            yield (
                f"{escaped(hit.name)}: the detector '{hit.detector}' matches {hit.hits:,} of "
                f"{hit.connections:,} connections."
            )


def controls(found: Judgement) -> Iterator[str]:
    """Yields sentences on the results of controls.

    Controls are the browser compared with itself, and detectors' required hits and false alarms.
    """
    own = [each for each in found.scores if each.name == REAL[1] and each.area is not None]
    below = [each for each in own if each.area and each.area.high < 0.5]
    if below:
        yield (
            f"**The control fails**: for the browser compared with itself, {len(below)} of "
            f"{len(own)} intervals of the area lie below .5, for example "
            f"{estimate(below[0].area)}. This helps no forest to recognise a class. But sessions, "
            "also those of other classes, vary more than the intervals show."
        )
    if own and not below and not any(map(_leaky, own)):
        yield (
            f"No forest distinguishes the browser from itself: .5 lies within each of {len(own)} "
            f"intervals of the area; for one connection the area is {estimate(_first(own))}."
        )
    for hit in found.hits:
        text = f"'{hit.detector}' matches {hit.hits:,} of {hit.connections:,}"
        if _must(hit) and _share(hit) >= LEAST_HIT:
            yield f"{escaped(hit.name)}: {text}, as it must."
        elif hit.name in REAL and hit.hits:
            yield f"**False alarms**: {escaped(hit.name)}: {text}."
    if not any(hit.hits for hit in found.hits if hit.name in REAL):
        yield "No fixed detector matches a connection of the browser."


def bars(found: Judgement) -> Iterator[str]:
    """Yields sentences on the goals for HTTP classes, which were set beforehand: met or missed."""
    for each in found.scores:
        if each.name.startswith(HTTP) and (each.features, each.apart) == ("paper", "site"):
            word = "met" if _value(each.area) <= BAR else "missed"
            yield (
                f"With the paper's features, the area for {escaped(each.name)} should be at most "
                f"{BAR}: **{word}**, {estimate(each.area)}."
            )
    rows = [each for each in found.hits if each.name.startswith(HTTP)]
    if rows:
        hits = sum(each.hits for each in rows)
        count = sum(each.connections for each in rows if each.detector == OF_FIRST_PACKETS[0])
        word = "missed" if hits else "met" if count >= WANTED else "undecided, too few connections"
        none = f": a rate of at most {statistics.fewest_false(count):.1g}" if not hits else ""
        yield (
            f"No fixed detector should match any of {WANTED:,} first packets of HTTP: **{word}**, "
            f"{hits} matches in {count:,}{none}."
        )


def seen(each: ForestScore) -> str:
    """Returns the number of a server's connections that the adversary saw (`after`), as text."""
    known = {0: "totals of a session", 1: "1 connection"}
    return known.get(each.after, f"{each.after} connections")


def estimate(each: Estimate | None) -> str:
    """Formats a value with its interval; `too few` for None."""
    if each is None:
        return "too few"
    return f"{each.value:.3f} ({each.low:.3f}–{each.high:.3f})"


def _leaks(found: Judgement) -> Iterator[str]:
    own = [each for each in found.scores if each.name == REAL[1] and each.area is not None]
    bad = [each for each in own if _leaky(each)]
    for each in bad:
        yield (
            f"**The measurement has a fault**: a forest distinguishes the browser from itself with "
            f"{seen(each)}, {each.features} features, folds by {each.apart}: area "
            f"{estimate(each.area)}. The same areas of other classes are too high, or this is "
            f"chance ({len(bad)} of {len(own)} intervals lie above .5)."
        )


def _leaky(each: ForestScore) -> bool:
    """Returns whether the whole interval is above .5: a forest separates the browser's halves."""
    return each.area is not None and each.area.low > 0.5


def _broken(found: Judgement) -> Iterator[str]:
    for hit in found.hits:
        if _must(hit) and _share(hit) < LEAST_HIT:
            yield (
                f"**The detector '{hit.detector}' is broken**: it matches {hit.hits:,} of "
                f"{hit.connections:,} connections of {escaped(hit.name)}, and must match "
                f"{100 * LEAST_HIT:.0f} %. Few matches in other classes mean nothing."
            )


def _must(hit: Hits) -> bool:
    return hit.name in MUST_HIT.get(hit.detector, ())


def _share(hit: Hits) -> float:
    return hit.hits / max(hit.connections, 1)


def _later(found: Judgement, name: str) -> Iterator[str]:
    """Yields the areas of a class, as text, after 10 and 100 connections and a whole session."""
    for after in (*AFTER[1:], 0):
        for each in found.scores:
            if (each.name, each.after) == (name, after):
                yield f"{seen(each)} {estimate(each.area)}"


def _word(area: Estimate | None) -> str:
    if area is None or area.value > BAR:
        return "recognised" if area else "not judged"
    return "recognised a little" if area.low > 0.5 else "not distinguished from the browser"


def _first(rows: list[ForestScore]) -> Estimate | None:
    return next((each.area for each in rows if (each.features, each.after) == ("all", 1)), None)


def _value(area: Estimate | None) -> float:
    return area.value if area else float("nan")
