"""What a middle relay's CPU costs: ours beside C tor's, in the same network and minutes.

A stock client downloads by a pinned path whose middle relay is now C tor's and now ours, with one
thread or with two (C tor has one for cells); guard, exit, file server and consensus are the same.
CPU is utime and stime of the middle relay's process during a download, divided by the bytes of the
file: a process carries nothing else meanwhile. C tor's KIST runs every millisecond (its default of
2 ms costs it more). Runs are interleaved; what counts is the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

from harness.report import median_and_spread, table
from harness.seeded import MIB
from harness.tornet import Node, TorNetwork
from harness.torours import OurRelay
from harness.webfiles import FileServer, fetch

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
# Bytes a second that nobody reaches here: C tor's relays are not held to a rate either.
FREELY = "1000000000"
# CPU of ours, as a share of C tor's.
TARGET = 0.5
STOCK = "C tor"
# Ours, by how many threads carry cells.
THREADS = {"ours, 1 thread": 1, "ours, 2 threads": 2}


@dataclass(frozen=True)
class Run:
    """One download."""

    cpu_ms_a_mb: float
    mb_a_second: float


def main() -> int:
    """Prints a line for each download and a table; 1 if the target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=9, help="rounds of downloads (9)")
    parser.add_argument("--mib", type=int, default=100, help="MiB of a download (100)")
    parser.add_argument("--strict", action="store_true", help="a missed target is a failure")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        rounds = measure(Path(folder), args.runs, args.mib * MIB)
    print(
        table(
            ["middle relay", "CPU ms/MB", "MB/s"],
            [row(who, rounds) for who in rounds[0]],
        )
    )
    missed = 0
    for who in THREADS:
        ratios = [found[who].cpu_ms_a_mb / found[STOCK].cpu_ms_a_mb for found in rounds]
        ratio = statistics.median(ratios)
        verdict = "ok" if ratio <= TARGET else "MISSED"
        missed += verdict != "ok"
        print(
            f"{who} / {STOCK}: {ratio:.2f} (median of {len(rounds)}; target {TARGET:g}) {verdict}"
        )
    return int(args.strict and missed > 0)


def measure(folder: Path, runs: int, length: int) -> list[dict[str, Run]]:
    """Rounds of runs, by who the middle relay is."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TorNetwork(folder, relays=2, exits=1))
        ours = {
            who: stack.enter_context(
                OurRelay(
                    network, folder / f"ours{threads}", f"ours{threads}",
                    "--rate", FREELY, "--threads", str(threads),
                )
            )
            for who, threads in THREADS.items()
        }  # fmt: skip
        server = stack.enter_context(FileServer())
        network.others = {relay.name: relay.fingerprint for relay in ours.values()}
        network.start()
        (guard, stock), (exit_,) = network.of("relay"), network.of("exit")
        assert stock.process is not None, "it runs"
        middles = {STOCK: (stock.fingerprint, stock.process.pid)}
        middles |= {who: (relay.fingerprint, relay.process.pid) for who, relay in ours.items()}
        ways = {}
        for number, (who, (middle, pid)) in enumerate(middles.items()):
            path = (guard.fingerprint, middle, exit_.fingerprint)
            client = network.client(f"by{number}", "ConfluxEnabled 0", path=path)
            ways[who] = (client, pid)
            # The first download opens links and windows; it is for nobody's count.
            download(server, client, folder, 5 * MIB)
        return [one_round(server, ways, folder, length) for _ in range(runs)]


def one_round(
    server: FileServer, ways: dict[str, tuple[Node, int]], folder: Path, length: int
) -> dict[str, Run]:
    """A download by each relay."""
    found = {}
    for who, (client, pid) in ways.items():
        before = cpu_ms(pid)
        seconds = download(server, client, folder, length)
        found[who] = Run((cpu_ms(pid) - before) / length * 1e6, length / 1e6 / seconds)
        run = found[who]
        told = f"  {who}: {run.cpu_ms_a_mb:.2f} ms/MB, {run.mb_a_second:.1f} MB/s"
        print(told, file=sys.stderr, flush=True)
    return found


def download(server: FileServer, client: Node, folder: Path, length: int) -> float:
    """Seconds that it took."""
    got = fetch(server.url(length), client.proxy, folder / "got", 300.0)
    if fault := got.fault(length):
        raise SystemExit(f"bench: a download by {client.name} failed: {fault}")
    return got.seconds


def cpu_ms(pid: int) -> float:
    """User and system time of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) * TICK_MS


def row(who: str, rounds: list[dict[str, Run]]) -> list[object]:
    """One line of the table: medians and spreads."""
    runs = [found[who] for found in rounds]
    return [
        who,
        median_and_spread([run.cpu_ms_a_mb for run in runs], 2),
        median_and_spread([run.mb_a_second for run in runs]),
    ]


if __name__ == "__main__":
    sys.exit(main())
