"""What stock tors say at the level of notices where all others are stock tors, too.

Anything else that one says beside our relays is a complaint: what is odd about a neighbour is often
worth no more than a notice to tor, and yet it never uses that neighbour again.

The list is learnt from networks of stock tors alone, with every line looked at: each belongs to a
group that says why it tells nothing of others. ``test_tor_baseline.py`` fails if a stock network
says what is not in it, so that the list cannot be too short; ``python -m harness.notices LOG...``
prints what would have to be added.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

NOTICE = re.compile(r"\[notice\] (?:\{[^}]*\} )?(?P<message>.*)")
# Beginnings of messages, by what they are about.
USUAL = {
    "how it was built, what it was told, and its end": (
        r"Tor [\d.]+ (running on|opening (new )?log file)",
        r"Tor can't help you if you use it wrong",
        r"We compiled with OpenSSL",
        r"Read configuration file",
        r"(Opening|Opened) .*listener",
        r"Set list of supported TLS groups",
        r"Based on detected system memory",
        r"Configured to measure directory request statistics",
        r"Your Tor server's identity key",
        r"Starting with guard context",
        r"Catching signal",
    ),
    "how far it has come up": (
        r"Bootstrapped \d+%",
        r"(I learned some more|We now have enough|Our) directory information",
        r"Self-testing indicates your ORPort",
        r"Performing bandwidth self-test",
    ),
    "authorities vote, and weigh what there is": (
        r"Time to (vote|fetch any|compute|publish)",
        r"Uploaded (my vote|signature)",
        r"Vote posted|Signature\(s\) posted|Consensus computed",
        r"auth\d+ posted a vote|Retrieved auth\d+'s vote",
        r"(Got a|Added a|Added \d+ pending) signature",
        r"Published (ns|microdesc) consensus|Exported consensus transparency",
        r"Choosing valid-after time|Scheduling voting",
        r"Bandwidth-weight Case|Computed bandwidth weights",
    ),
    "its tester asks it how it is": (r"New control connection opened",),
    "a name or a port that is not there was asked for": (
        r"Have tried resolving or connecting to address '[^']*' at 3 different places",
    ),
    "among so few relays a guard is often an exit's neighbour": (
        r"All current guards excluded by path restriction",
    ),
}
# A relay and an authority come up before any exit is voted for. A client starts later.
BEFORE_THE_FIRST_VOTES = r"The current consensus (has no|contains) exit nodes"
_KNOWN = re.compile("|".join(pattern for group in USUAL.values() for pattern in group))


def unusual(lines: Iterable[str], *, is_client: bool) -> list[str]:
    """The notices among these lines of a log that no stock tor among its own kind says."""
    found = []
    for line in lines:
        notice = NOTICE.search(line)
        if notice is None or _KNOWN.match(notice["message"]):
            continue
        if is_client or not re.match(BEFORE_THE_FIRST_VOTES, notice["message"]):
            found.append(line)
    return found


def main() -> None:
    """Prints the unusual lines of logs, without times and numbers, and how often they came."""
    logs = [Path(name).read_text(errors="replace").splitlines() for name in sys.argv[1:]]
    lines = [line for log in logs for line in unusual(log, is_client=True)]
    bare = [re.sub(r"[0-9A-F]{40}|\d+", "#", line.partition("[notice]")[2]) for line in lines]
    for line, count in Counter(bare).most_common():
        print(f"{count:6} {line.strip()}")


if __name__ == "__main__":
    main()
