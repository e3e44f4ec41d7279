"""Checks whether a stock tor that blames its guard has reason to.

C tor warns of a guard when fewer than half of the circuits that it began there were built (path
bias). In a network of seven relays many of those cannot be built: for onion services it picks a
last hop without regard to the guard, and a circuit from a guard by a middle relay back to the guard
is refused by every middle relay (tor-spec, "EXTEND and EXTENDED cells").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

BLAME = re.compile(r"Guard \S+ \(\$([0-9A-F]{40})\) is failing an? \w+ large amount of circuits")
# Lines of tor's log at level "details", one for each circuit.
BEGUN = r"entry_guard_inc_circ_attempt_count\(\): .* for guard \S+ \(\$%s\)"
BUILT = r"pathbias_count_build_success\(\): .* for guard \S+ \(\$%s\)"
TURNS_BACK = r"circ \(length 3[^)]*\): \$%s\(open\) \$[0-9A-F]{40}\(open\) \$%s\(closed\)"
# Share of built circuits that satisfies C tor.
ENOUGH = 0.5


def is_unjust(line: str, details: Callable[[], Sequence[str]]) -> bool:
    """Returns whether ``line`` blames a guard that built enough circuits, not counting circuits
    that turn back to it.

    ``details`` reads the detailed log of the same tor, which has a line for each circuit.
    """
    blame = BLAME.search(line)
    if blame is None:
        return False
    guard, lines = blame[1], details()
    begun, built, turned = (
        sum(re.search(kind.replace("%s", guard), detail) is not None for detail in lines)
        for kind in (BEGUN, BUILT, TURNS_BACK)
    )
    return turned > 0 and built >= ENOUGH * (begun - turned)
