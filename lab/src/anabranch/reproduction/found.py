"""Our result for a claim, with its verdict.

A verdict follows from the whole interval, never from the point alone: it is `OPEN` if the interval
contains the bound. Bounds are in `claims.toml` or in the module of the function that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

HOLDS = "holds"
FAILS = "does not hold"
ALIKE = "alike"
OPEN = "cannot be judged"
MISSING = "not measured"
VERDICTS = (HOLDS, FAILS, ALIKE, OPEN, MISSING)

SAME = 0.1
"""Maximum distance from 1 of a ratio, over its whole interval, to count as equal (`ALIKE`)."""


@dataclass(frozen=True, slots=True)
class Found:
    """Our result for a claim.

    Attributes:
        text: our numbers with their intervals, as the index prints them.
        verdict: one of `VERDICTS`.
        why: the reason of `OPEN` and `MISSING`; otherwise a remark, or empty.
        quotes: texts that the claim's page must contain, compared without line breaks.
    """

    text: str
    verdict: str
    why: str = ""
    quotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval.

    Attributes:
        value: the point.
        low, high: the interval; None if there are too few rounds for one.
    """

    value: float
    low: float | None
    high: float | None


def at_most(found: Interval, bound: float) -> str:
    """Judges whether a value is at most `bound`."""
    if found.low is None or found.high is None:
        return OPEN
    return HOLDS if found.high <= bound else FAILS if found.low > bound else OPEN


def at_least(found: Interval, bound: float) -> str:
    """Judges whether a value is at least `bound`."""
    if found.low is None or found.high is None:
        return OPEN
    return HOLDS if found.low >= bound else FAILS if found.high < bound else OPEN


def below(found: Interval, bound: float) -> str:
    """Judges whether a ratio is below `bound`, or within `SAME` of 1."""
    if found.low is None or found.high is None:
        return OPEN
    if found.low >= 1 - SAME and found.high <= 1 + SAME:
        return ALIKE
    return HOLDS if found.high < bound else FAILS if found.low > bound else OPEN


def above(found: Interval, bound: float) -> str:
    """Judges whether a ratio is above `bound`, or within `SAME` of 1."""
    if found.low is None or found.high is None:
        return OPEN
    if found.low >= 1 - SAME and found.high <= 1 + SAME:
        return ALIKE
    return HOLDS if found.low > bound else FAILS if found.high < bound else OPEN


def within(found: Interval, most: float) -> str:
    """Judges whether a ratio is within `most` of 1."""
    if found.low is None or found.high is None:
        return OPEN
    if found.low > 1 - most and found.high < 1 + most:
        return HOLDS
    return FAILS if found.low > 1 + most or found.high < 1 - most else OPEN


def all_of(verdicts: Sequence[str]) -> tuple[str, str]:
    """Returns the verdict of a claim about several designs, and its reason.

    The claim holds, or fails, if it does so for every design. If verdicts differ, there is no
    common verdict.
    """
    kinds = sorted(set(verdicts), key=VERDICTS.index)
    if len(kinds) == 1:
        return kinds[0], "every interval contains the bound" if kinds[0] == OPEN else ""
    counts = ", ".join(f"{kind}: {list(verdicts).count(kind)}" for kind in kinds)
    return OPEN, f"of {len(verdicts)} {counts}"


def compared(of: str, ratios: dict[str, Interval], judge: Callable[[Interval], str]) -> Found:
    """Returns one verdict on several ratios.

    Args:
        of: base of the ratios, as text.
        ratios: ratios by the name of the design.
        judge: returns the verdict on a ratio.
    """
    verdict, why = all_of([judge(ratio) for ratio in ratios.values()])
    text = of + ", ".join(f"{name}: {in_words(ratio)}" for name, ratio in ratios.items())
    return Found(text, verdict, why, (text,))


def in_words(ratio: Interval) -> str:
    """Returns a ratio with its interval as text, with two decimal places."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
