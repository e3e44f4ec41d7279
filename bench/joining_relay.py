"""CPU cost of a relay where clients' legs join, compared with a middle relay.

Our client downloads and uploads through one relay of ours (one thread): as the middle of one
circuit, and as the joining relay of two legs (``--multipath merged``,
`docs/spec/middle-merge.md`). Guards and the exit are C tor's. CPU is the run time of the relay's
threads during a transfer, divided by the file's bytes. It includes links, their records and the
kernel. The relay has no other traffic meanwhile. Runs are interleaved; the result is the median of
the ratios to the middle within a round.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

import line
import rounds
from harness.report import table
from harness.tornet import TorNetwork
from harness.torours import OurClient, OurRelay
from harness.webfiles import FileServer
from legs import Way, ready, row, run
from tor import Run

# Maximum CPU per byte of a joining relay, as a multiple of that of a middle relay.
TARGET = 1.5
MIDDLE, JOINING = "middle of one circuit", "joins two legs"
WAYS = {MIDDLE: ["--legs", "1"], JOINING: ["--legs", "2", "--multipath", "merged"]}
DOWN, UP = "down", "up"
# The relay's role, and the direction of the file.
Case = tuple[str, str]


def main() -> int:
    """Prints a line for each run and a table; returns 1 if the target was missed."""
    parser = rounds.options(__doc__)
    line.add_option(parser)
    args = parser.parse_args()
    line.enter(args.mtu)
    with rounds.scratch() as folder:
        found = measure(folder, args.runs, rounds.length(args))
    rows = [[*case, *row([one[case] for one in found])] for case in found[0]]
    print(table(["relay", "file", "CPU ms/MB", "MB/s"], rows))
    met = []
    for direction in (DOWN, UP):
        ratios = rounds.ratios(found, (JOINING, direction), (MIDDLE, direction), Run.cpu)
        met.append(rounds.verdict(direction, ratios, "a middle's", TARGET))
    return int(args.strict and not all(met))


def measure(folder: Path, runs: int, length: int) -> list[dict[Case, Run]]:
    """Returns the rounds: in each, one run of every role and direction."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TorNetwork(folder, relays=4, exits=1))
        own = stack.enter_context(OurRelay(network, folder / "ours", "ours", "--threads", "1"))
        network.others = {"ours": own.fingerprint}
        server = stack.enter_context(FileServer())
        network.start()
        (exit_,) = network.of("exit")
        guards = [word for node in network.of("relay") for word in ("--entry", node.fingerprint)]
        pinned = [*guards, "--middle", own.fingerprint, "--exit", exit_.fingerprint]
        ways = {}
        for number, (name, how) in enumerate(WAYS.items()):
            made = OurClient(network, folder / f"client{number}", *how, *pinned)
            client = stack.enter_context(made)
            ready(client, server, folder, 2 if name == JOINING else 0)
            ways[name] = Way(client, own.process.pid)
        cases = {
            (name, direction): partial(
                run, f"{name}, {direction}", server, way, folder, length, up=direction == UP
            )
            for direction in (DOWN, UP)
            for name, way in ways.items()
        }
        return rounds.interleaved(runs, cases)


if __name__ == "__main__":
    sys.exit(main())
