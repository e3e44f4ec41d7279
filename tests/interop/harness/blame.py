"""Checks whether a C tor that warns about its guard (path bias) has a reason.

C tor warns about a guard if fewer than half of the circuits that it began there were built. In a
network of seven relays many circuits cannot be built: for onion services C tor picks a last hop
without regard to the guard, and every middle relay refuses to extend a circuit back to the guard
that it came from (tor-spec, "EXTEND and EXTENDED cells").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

BLAME = re.compile(r"Guard \S+ \(\$([0-9A-F]{40})\) is failing an? \w+ large amount of circuits")
# Pattern of tor's log lines for each circuit (at level "details") with a guard.
BEGUN = r"entry_guard_inc_circ_attempt_count\(\): .* for guard \S+ \(\$%s\)"
BUILT = r"pathbias_count_build_success\(\): .* for guard \S+ \(\$%s\)"
TURNS_BACK = r"circ \(length 3[^)]*\): \$%s\(open\) \$[0-9A-F]{40}\(open\) \$%s\(closed\)"
# Share of built circuits from which on C tor does not warn.
ENOUGH = 0.5


def is_unjust(line: str, details: Callable[[], Sequence[str]]) -> bool:
    """Returns whether ``line`` blames a guard without reason: enough circuits were built, not
    counting circuits that lead back to the guard.

    ``details`` returns the lines of the detailed log of the same tor, one for each circuit.
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
