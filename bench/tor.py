"""CPU cost of a middle relay: ours against C tor's, interleaved in one network.

C tor's client downloads over a pinned path, on one circuit and on four at the same time. The
middle relay is either C tor's, which has one thread for cells, or ours with one or two threads.
Guard, exit, file server and consensus are the same. C tor's client negotiates CGO only with its
exit, so the middle relay's layer is tor1 in either case. With two threads, the cost depends on
whether the same thread has the link to the guard and the link to the exit, which depends on the
order in which the links opened. Therefore there are two relays with two threads, of which only one
has carried a circuit that begins at the exit. The table names each by the observed distribution
over its threads.

CPU is the run time of the middle relay's threads during a download, divided by the bytes of the
file; the relay has no other traffic meanwhile. C tor's KIST runs every millisecond (its default of
2 ms costs it more). Loopback's segments of 64 KiB are cheap; ``--mtu 1500`` sets Ethernet's MTU.
Runs are interleaved; the result is the median of the ratios within a round.
"""

from __future__ import annotations

import contextlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

import line
import rounds
from downloads import at_once
from harness.report import median_and_spread, table
from harness.seeded import MIB
from harness.tornet import Node, TorNetwork
from harness.torours import OurRelay
from harness.webfiles import FileServer

# Maximum of our CPU per byte, as a share of C tor's.
TARGET = 0.5
STOCK = "C tor"
CIRCUITS = (1, 4)
# Minimum share of the process's CPU for a thread to count as carrying cells.
BUSY = 0.1
# The relay's name, and the number of simultaneous circuits.
Case = tuple[str, int]


@dataclass(frozen=True)
class Build:
    """A build of our relay: its program (if empty, that of ``ANABRANCH``) and its threads."""

    program: str
    threads: int


OURS = {"ours, 1 thread": Build("", 1), "ours, 2 threads": Build("", 2)}
APART, TOGETHER = "links apart", "links together"


@dataclass(frozen=True)
class Run:
    """Results of the downloads of one case (relay and number of circuits) in one round."""

    cpu_ms_a_mb: float
    mb_a_second: float

    def cpu(self) -> float:
        """Returns the value that targets refer to: CPU in ms per MB."""
        return self.cpu_ms_a_mb


def main() -> int:
    """Prints a line for each download and a table; returns 1 if the target was missed."""
    parser = rounds.options(__doc__)
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="NAME=PROGRAM[@THREADS]",
        help="also measure a relay of this other build (1 thread), to compare two builds",
    )
    line.add_option(parser, 0)
    args = parser.parse_args()
    line.enter(args.mtu)
    with rounds.scratch() as folder:
        builds = OURS | dict(map(also, args.also))
        found = measure(folder, builds, args.runs, rounds.length(args))
    heads = ["middle relay", "circuits", "CPU ms/MB", "MB/s"]
    print(table(heads, [row(case, found) for case in found[0]]))
    ours = [who for who, circuits in found[0] if circuits == 1 and who.startswith(tuple(OURS))]
    met = [verdict(who, circuits, found) for circuits in CIRCUITS for who in ours]
    return int(args.strict and not all(met))


def also(word: str) -> tuple[str, Build]:
    """Parses a name and a build from the option's value.

    Raises:
        SystemExit: if `word` is not NAME=PROGRAM[@THREADS].
    """
    parts = re.fullmatch(r"([^=]+)=([^@]+)(?:@(\d+))?", word)
    if parts is None:
        raise SystemExit(f"bench: --also takes NAME=PROGRAM[@THREADS], not {word}")
    return parts[1], Build(parts[2], int(parts[3] or 1))


def measure(
    folder: Path, builds: dict[str, Build], runs: int, length: int
) -> list[dict[Case, Run]]:
    """Returns the rounds: in each, one run of every middle relay and number of circuits."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TorNetwork(folder, relays=2, exits=2))
        ours = {
            who: [
                stack.enter_context(relay(network, f"ours{number}n{one}", build))
                for one in range(min(build.threads, 2))
            ]
            for number, (who, build) in enumerate(builds.items())
        }
        server = stack.enter_context(FileServer())
        network.others = {one.name: one.fingerprint for relays in ours.values() for one in relays}
        network.start()
        (guard, stock), (exit_, other) = network.of("relay"), network.of("exit")
        assert stock.process is not None, "it runs"

        def way(middle: str, pid: int, exit_first: bool = False) -> Way:
            if exit_first:
                back = (exit_.fingerprint, middle, other.fingerprint)
                first = network.client(f"first{pid}", "ConfluxEnabled 0", path=back)
                at_once(server, first.proxy, folder, MIB, 1)
            path = (guard.fingerprint, middle, exit_.fingerprint)
            client = network.client(f"by{pid}", "ConfluxEnabled 0", path=path)
            # The first download opens links and windows; it is not measured.
            before = threads_ms(pid)
            at_once(server, client.proxy, folder, 5 * MIB, max(CIRCUITS))
            spent = [after - before[thread] for thread, after in threads_ms(pid).items()]
            return Way(client, pid, sum(ms > BUSY * sum(spent) for ms in spent))

        ways = {STOCK: way(stock.fingerprint, stock.process.pid)}
        for who, relays in ours.items():
            for place, one in enumerate(relays):
                found = way(one.fingerprint, one.process.pid, place > 0)
                links = f", {APART if found.busy > 1 else TOGETHER}" if len(relays) > 1 else ""
                ways.setdefault(f"{who}{links}", found)
        return [one_round(server, ways, folder, length) for _ in range(runs)]


@dataclass(frozen=True)
class Way:
    """A client with circuits through one middle relay, that relay's process ID, and the number of
    its threads that carry cells.
    """

    client: Node
    pid: int
    busy: int


def relay(network: TorNetwork, name: str, build: Build) -> OurRelay:
    """Returns a relay of ours without a rate limit."""
    options = ("--threads", str(build.threads))
    return OurRelay(network, network.folder / name, name, *options, program=build.program)


def one_round(
    server: FileServer, ways: dict[str, Way], folder: Path, length: int
) -> dict[Case, Run]:
    """Downloads the same number of bytes through each relay, on one circuit and on several."""
    found = {}
    for circuits in CIRCUITS:
        for who, way in ways.items():
            before = cpu_ms(way.pid)
            seconds = at_once(server, way.client.proxy, folder, length // circuits, circuits)
            run = Run((cpu_ms(way.pid) - before) / length * 1e6, length / 1e6 / seconds)
            found[who, circuits] = run
            told = f"{run.cpu_ms_a_mb:.2f} ms/MB, {run.mb_a_second:.1f} MB/s"
            print(f"  {who}, {circuits} circuit(s): {told}", file=sys.stderr, flush=True)
    return found


def cpu_ms(pid: int) -> float:
    """Returns the CPU time of a process's current threads so far, in ms.

    This is the time of the whole process, because threads of relays do not end.
    """
    return sum(threads_ms(pid).values())


def threads_ms(pid: int) -> dict[str, float]:
    """Returns the CPU time of each thread of a process so far, in ms, by thread ID.

    The clock ticks of ``/proc/PID/stat`` are too coarse for 50 MB.
    """
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return {task.parent.name: int(task.read_text().split()[0]) / 1e6 for task in tasks}


def row(case: Case, found: list[dict[Case, Run]]) -> list[object]:
    """Returns one line of the table: medians and spreads."""
    runs = [one[case] for one in found]
    return [
        *case,
        median_and_spread([run.cpu_ms_a_mb for run in runs], 2),
        median_and_spread([run.mb_a_second for run in runs]),
    ]


def verdict(who: str, circuits: int, found: list[dict[Case, Run]]) -> bool:
    """Prints the result for the target; returns whether it was met."""
    ratios = rounds.ratios(found, (who, circuits), (STOCK, circuits), Run.cpu)
    return rounds.verdict(f"{who}, {circuits} circuit(s)", ratios, f"{STOCK}'s", TARGET)


if __name__ == "__main__":
    sys.exit(main())
