"""Usual notices of C tor in networks of C tor only.

Any other notice of a C tor in a network with our relays counts as a complaint, because tor often
logs problems with a neighbour at level notice only, and yet never uses that neighbour again.

The list comes from networks of C tor only. Every line was reviewed, and belongs to a group that
explains why it does not concern other nodes. ``test_tor_baseline.py`` fails if a network of C tor
logs a notice outside the list, so that the list is complete; ``python -m harness.notices LOG...``
prints the missing lines.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

NOTICE = re.compile(r"\[notice\] (?:\{[^}]*\} )?(?P<message>.*)")
# Beginnings of messages, by topic.
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
        r"auth\d+ posted a vote|Retrieved auth\d+'s vote|We're missing votes|Got votes",
        r"(Got a|Added a|Added \d+ pending) signature",
        r"Published (ns|microdesc) consensus|Exported consensus transparency",
        r"Choosing valid-after time|Scheduling voting|Discarding a vote we already have",
        r"Bandwidth-weight Case|Computed bandwidth weights",
    ),
    "its tester asks it how it is": (r"New control connection opened",),
    "a name or a port that is not there was asked for": (
        r"Have tried resolving or connecting to address '[^']*' at 3 different places",
    ),
    "among so few relays a guard is often an exit's neighbour, and an exit alone of its kind": (
        r"All current guards excluded by path restriction",
        # This follows the warning that no vanguard fits.
        r"Failed to find node for hop #\d+ of our path",
        r"All routers are down or won't exit -- choosing a doomed exit at random",
        r"Our circuit \d+ \(id: \d+\) died due to an invalid selected path",
    ),
    "on one machine circuits are built faster than it believes": (
        r"Set buildtimeout to low value",
    ),
}
# Any tor without an exit's descriptor logs this: all tors during start-up, relays and authorities
# until exits are in the consensus. A client that logs it after bootstrap has given up all exits.
NO_EXITS = "The current consensus has no exit nodes"
EXITS_AGAIN = "The current consensus contains exit nodes"
_KNOWN = re.compile(
    "|".join([*(beginning for group in USUAL.values() for beginning in group), EXITS_AGAIN])
)


def unusual(lines: Iterable[str], *, is_client: bool) -> list[str]:
    """Returns the lines with notices that no C tor logs in a network of C tor only."""
    found, is_up = [], False
    for line in lines:
        notice = NOTICE.search(line)
        if notice is None:
            continue
        message = notice["message"]
        if begun := re.match(r"Bootstrapped (\d+)%", message):
            is_up = begun[1] == "100"
        may_lack = message.startswith(NO_EXITS) and not (is_client and is_up)
        if not may_lack and not _KNOWN.match(message):
            found.append(line)
    return found


def main() -> None:
    """Prints the unusual lines of logs, without times and numbers, and their counts."""
    logs = [Path(name).read_text(errors="replace").splitlines() for name in sys.argv[1:]]
    lines = [line for log in logs for line in unusual(log, is_client=True)]
    bare = [re.sub(r"[0-9A-F]{40}|\d+", "#", line.partition("[notice]")[2]) for line in lines]
    for line, count in Counter(bare).most_common():
        print(f"{count:6} {line.strip()}")


if __name__ == "__main__":
    main()
