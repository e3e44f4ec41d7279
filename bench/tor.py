"""What a middle relay's CPU costs: ours beside C tor's, in the same network and minutes.

A stock client downloads by a pinned path whose middle relay is now C tor's and now ours; guard,
exit, file server and consensus are the same. CPU is utime and stime of the middle relay's process
during a download, divided by the bytes of the file: a process carries nothing else meanwhile. C
tor's KIST runs every millisecond (its default of 2 ms costs it more). Runs are interleaved; what
counts is the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

from harness.report import table
from harness.seeded import MIB
from harness.tornet import Node, TorNetwork
from harness.torours import OurRelay
from harness.webfiles import FileServer, fetch

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
# Bytes a second that nobody reaches here: C tor's relays are not held to a rate either.
FREELY = "1000000000"
# CPU of ours, as a share of C tor's.
TARGET = 1.0


@dataclass(frozen=True)
class Run:
    """One download."""

    cpu_ms_a_mb: float
    mb_a_second: float


def main() -> int:
    """Prints a line for each pair of runs and a table; 1 if the target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=9, help="pairs of downloads (9)")
    parser.add_argument("--mib", type=int, default=100, help="MiB of a download (100)")
    parser.add_argument("--strict", action="store_true", help="a missed target is a failure")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        pairs = measure(Path(folder), args.runs, args.mib * MIB)
    ratio = statistics.median(ours.cpu_ms_a_mb / stock.cpu_ms_a_mb for stock, ours in pairs)
    rows = [row("C tor", [stock for stock, _ in pairs]), row("ours", [ours for _, ours in pairs])]
    print(table(["middle relay", "CPU ms/MB", "MB/s"], rows))
    verdict = "ok" if ratio <= TARGET else "MISSED"
    print(f"ours / C tor: {ratio:.2f} (median of {len(pairs)} pairs; target {TARGET:g}) {verdict}")
    return int(args.strict and verdict != "ok")


def measure(folder: Path, runs: int, length: int) -> list[tuple[Run, Run]]:
    """Pairs of runs: by C tor's relay, by ours."""
    with (
        TorNetwork(folder, relays=2, exits=1) as network,
        OurRelay(network, folder / "ours0", "ours0", "--rate", FREELY) as ours,
        FileServer() as server,
    ):
        network.others = {ours.name: ours.fingerprint}
        network.start()
        (guard, stock), (exit_,) = network.of("relay"), network.of("exit")
        clients = [
            network.client(
                f"by{name}", "ConfluxEnabled 0", path=(guard.fingerprint, middle, exit_.fingerprint)
            )
            for name, middle in [("stock", stock.fingerprint), ("ours", ours.fingerprint)]
        ]
        assert stock.process is not None, "it runs"
        middles = (stock.process.pid, ours.process.pid)
        # The first downloads open links and windows; they are for nobody's count.
        for client in clients:
            download(server, client, folder, 5 * MIB)
        return [pair(server, clients, middles, folder, length) for _ in range(runs)]


def pair(
    server: FileServer, clients: list[Node], middles: tuple[int, int], folder: Path, length: int
) -> tuple[Run, Run]:
    """A download by each relay."""
    found = []
    for client, middle in zip(clients, middles, strict=True):
        before = cpu_ms(middle)
        seconds = download(server, client, folder, length)
        found.append(Run((cpu_ms(middle) - before) / length * 1e6, length / 1e6 / seconds))
    stock, ours = found
    print(
        f"  {stock.cpu_ms_a_mb:6.2f} {ours.cpu_ms_a_mb:6.2f} ms/MB"
        f"  {stock.mb_a_second:6.1f} {ours.mb_a_second:6.1f} MB/s",
        file=sys.stderr,
        flush=True,
    )
    return stock, ours


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


def row(who: str, runs: list[Run]) -> list[object]:
    """One line of the table: medians and spreads."""
    return [
        who,
        spread([run.cpu_ms_a_mb for run in runs], 2),
        spread([run.mb_a_second for run in runs], 1),
    ]


def spread(values: list[float], digits: int) -> str:
    """Median, least and most."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
