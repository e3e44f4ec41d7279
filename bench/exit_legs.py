"""CPU cost of an exit whose clients have several legs, for our exit and C tor's.

Our client downloads through C tor's guards and middles, and either C tor's or our exit (one
thread). It uses one circuit, or a set of two legs by proposal 329 (``conflux``), or with our exit,
a set by our own version, whose legs may fail (``anabranch``). CPU is the run time of the exit's
threads during a download, divided by the bytes of the file; the exit has no other traffic
meanwhile. Runs are interleaved; the result is the median of the ratios to one leg within a round.
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

# Maximum CPU per byte with two legs, as a multiple of that with one leg.
TARGET = 1.1
ONE, CONFLUX, OWN = "1 leg", "2 legs, conflux", "2 legs, anabranch"
STOCK, OURS = "C tor", "ours"
WAYS = {
    ONE: ["--legs", "1"],
    CONFLUX: ["--legs", "2", "--multipath", "conflux"],
    OWN: ["--legs", "2", "--multipath", "anabranch"],
}
# The exit (`STOCK` or `OURS`), and the client's legs (a key of `WAYS`).
Case = tuple[str, str]


def main() -> int:
    """Prints a line for each download and a table; returns 1 if the target was missed."""
    parser = rounds.options(__doc__)
    line.add_option(parser)
    args = parser.parse_args()
    line.enter(args.mtu)
    with rounds.scratch() as folder:
        found = measure(folder, args.runs, rounds.length(args))
    rows = [[*case, *row([one[case] for one in found])] for case in found[0]]
    print(table(["exit", "client", "CPU ms/MB", "MB/s"], rows))
    met = []
    for exit_, way in found[0]:
        if way != ONE:
            ratios = rounds.ratios(found, (exit_, way), (exit_, ONE), Run.cpu)
            met.append(rounds.verdict(f"{exit_}, {way}", ratios, "one leg's", TARGET))
    return int(args.strict and not all(met))


def measure(folder: Path, runs: int, length: int) -> list[dict[Case, Run]]:
    """Returns the rounds: in each, one run of every case."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TorNetwork(folder, relays=4, exits=1))
        options = ("--exit", "accept *:*", "--threads", "1")
        own = stack.enter_context(OurRelay(network, folder / "oursexit", "oursexit", *options))
        network.others = {"oursexit": own.fingerprint}
        network.other_exits = ["oursexit"]
        server = stack.enter_context(FileServer())
        network.start()
        (stock,) = network.of("exit")
        assert stock.process is not None, "it runs"
        exits = {
            STOCK: (stock.fingerprint, stock.process.pid),
            OURS: (own.fingerprint, own.process.pid),
        }
        ways: dict[Case, Way] = {}
        for name, (fingerprint, pid) in exits.items():
            for way, how in WAYS.items():
                # Only our client and exit support our own version.
                if (name, way) == (STOCK, OWN):
                    continue
                place = folder / f"client{len(ways)}"
                made = OurClient(network, place, *how, "--exit", fingerprint)
                client = stack.enter_context(made)
                ready(client, server, folder, 0 if way == ONE else 2)
                ways[name, way] = Way(client, pid)
        cases = {
            case: partial(run, ", ".join(case), server, way, folder, length)
            for case, way in ways.items()
        }
        return rounds.interleaved(runs, cases)


if __name__ == "__main__":
    sys.exit(main())
