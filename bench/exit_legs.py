"""What an exit's CPU costs when its clients come by several legs, ours beside C tor's.

A client of ours downloads through stock guards and middles by an exit that is now C tor's and now
ours (one thread), on one circuit, and by sets of two legs: as proposal 329 has them (``conflux``),
and with our own ends' version, whose legs may die (``anabranch``), at our exit alone. CPU is utime
and stime of the exit's process during a download, divided by the bytes of the file; it carries
nothing else meanwhile. Runs are interleaved; what counts is the median of the ratios to one leg
within a round.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

import line
from harness.report import median_and_spread, table
from harness.seeded import MIB
from harness.tornet import TorNetwork
from harness.torours import OurClient, OurRelay
from harness.webfiles import FileServer
from legs import Way, ready, row, run
from tor import Run

# CPU for each byte by two legs, as a share of that by one.
TARGET = 1.1
ONE, CONFLUX, OWN = "1 leg", "2 legs, conflux", "2 legs, anabranch"
STOCK, OURS = "C tor", "ours"
WAYS = {
    ONE: ["--legs", "1"],
    CONFLUX: ["--legs", "2", "--multipath", "conflux"],
    OWN: ["--legs", "2", "--multipath", "anabranch"],
}
# An exit, and how a client comes there.
Case = tuple[str, str]


def main() -> int:
    """Prints a line for each download and a table; 1 if the target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=9, help="rounds of downloads (9)")
    parser.add_argument("--mib", type=int, default=100, help="MiB of a download (100)")
    parser.add_argument("--strict", action="store_true", help="a missed target is a failure")
    line.add_option(parser)
    args = parser.parse_args()
    line.enter(args.mtu)
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        rounds = measure(Path(folder), args.runs, args.mib * MIB)
    rows = [[*case, *row([one[case] for one in rounds])] for case in rounds[0]]
    print(table(["exit", "client", "CPU ms/MB", "MB/s"], rows))
    met = [verdict(case, rounds) for case in rounds[0] if case[1] != ONE]
    return int(args.strict and not all(met))


def measure(folder: Path, runs: int, length: int) -> list[dict[Case, Run]]:
    """Rounds of runs, by exit and way."""
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
                # Only our ends know their own version.
                if (name, way) == (STOCK, OWN):
                    continue
                place = folder / f"client{len(ways)}"
                made = OurClient(network, place, *how, "--exit", fingerprint)
                client = stack.enter_context(made)
                ready(client, server, folder, 0 if way == ONE else 2)
                ways[name, way] = Way(client, pid)
        return [one_round(server, ways, folder, length) for _ in range(runs)]


def one_round(
    server: FileServer, ways: dict[Case, Way], folder: Path, length: int
) -> dict[Case, Run]:
    """As many bytes by each way."""
    return {case: run(", ".join(case), server, way, folder, length) for case, way in ways.items()}


def verdict(case: Case, rounds: list[dict[Case, Run]]) -> bool:
    """Prints what several legs cost beside one, and whether that met the target."""
    exit_, way = case
    ratios = [one[case].cpu_ms_a_mb / one[exit_, ONE].cpu_ms_a_mb for one in rounds]
    met = statistics.median(ratios) <= TARGET
    told = f"{median_and_spread(ratios, 2)} of one leg's (target {TARGET:g})"
    print(f"{exit_}, {way}: {told} {'ok' if met else 'MISSED'}")
    return met


if __name__ == "__main__":
    sys.exit(main())
