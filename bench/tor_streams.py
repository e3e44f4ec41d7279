"""Speeds for users: our client and relays, compared with C tor's client and relays.

Both clients use pinned paths of three relays to the same file server, in one private network with
one consensus. All processes share this machine: throughput is limited by CPU, and round trips take
a millisecond. C tor's KIST runs every millisecond. Relay crypto is CGO at the exit and tor1 at the
other hops for both clients. The result is the median of the ratios within a round: both sides take
turns, so that other load of the machine affects both.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

from downloads import at_once, download
from harness.report import median_and_spread, table
from harness.seeded import MIB
from harness.tornet import TorNetwork
from harness.torours import OurClient
from harness.webfiles import Download, FileServer
from threefold import pins, three_relays

STOCK, OURS = "C tor", "ours"
CIRCUITS = 4


@dataclass(frozen=True)
class Round:
    """Results of one side, a client and its relays. Speeds are in MB/s."""

    bootstrap_s: float
    one_mb_s: float
    four_mb_s: float
    first_byte_ms: float
    kib320_ms: float
    mib_ms: float


# Targets of our value divided by C tor's: lower bounds for rates, upper bounds for times.
LEAST = {"one_mb_s": 3.0, "four_mb_s": 2.0}
MOST = {"bootstrap_s": 1.0, "first_byte_ms": 1 / 3, "kib320_ms": 1 / 3, "mib_ms": 1 / 3}
NAMES = {
    "bootstrap_s": "bootstrap, s",
    "one_mb_s": "one stream, MB/s",
    "four_mb_s": "four circuits, MB/s",
    "first_byte_ms": "first byte, ms",
    "kib320_ms": "320 KiB, ms",
    "mib_ms": "1 MiB, ms",
}


def main() -> int:
    """Prints a table and a line for each target; returns 1 if one was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--mib", type=int, default=200, help="MiB of the single stream (200)")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        rounds = measure(Path(folder), args.runs, args.mib * MIB)
    rows = [
        [
            NAMES[field.name],
            *(
                median_and_spread([getattr(one[who], field.name) for one in rounds])
                for who in (STOCK, OURS)
            ),
        ]
        for field in fields(Round)
    ]
    print(table(["through three relays", STOCK, OURS], rows))
    missed = sum(not verdict(rounds, field.name) for field in fields(Round))
    return int(args.strict and missed > 0)


def measure(folder: Path, runs: int, length: int) -> list[dict[str, Round]]:
    """Returns the rounds: in each, the results of `STOCK` and of `OURS`."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TorNetwork(folder, relays=2, exits=1))
        ours = three_relays(stack, network, folder)
        server = stack.enter_context(FileServer())
        network.start()
        path = [node.fingerprint for node in (*network.of("relay"), *network.of("exit"))]
        stock = network.client("bystock", "ConfluxEnabled 0", path=path)
        client = stack.enter_context(OurClient(network, folder / "client", *pins(ours)))
        client.wait_ready()
        proxies = {STOCK: stock.proxy, OURS: client.proxy}
        for proxy in proxies.values():
            at_once(server, proxy, folder, MIB, CIRCUITS)
        rounds = []
        for number in range(runs):
            boots = {STOCK: boot_stock(network, number), OURS: boot_ours(network, number)}
            rounds.append(one_round(server, proxies, folder, length, boots))
        return rounds


def boot_stock(network: TorNetwork, number: int) -> float:
    """Returns the seconds from the start of a stateless C tor client to its first circuit."""
    node = network.client(f"new{number}", "ConfluxEnabled 0")
    assert node.process is not None, "it runs"
    took = age(node.process.pid)
    node.close()
    return took


def boot_ours(network: TorNetwork, number: int) -> float:
    """Returns the seconds from the start of a new client of ours until it is ready."""
    with OurClient(network, network.folder / f"ours-new{number}") as client:
        client.wait_ready()
        return age(client.process.pid)


def age(pid: int) -> float:
    """Returns the age of a process in seconds, with the resolution of a clock tick."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(stat[19]) / os.sysconf("SC_CLK_TCK")


def one_round(
    server: FileServer, proxies: dict[str, str], folder: Path, length: int, boots: dict[str, float]
) -> dict[str, Round]:
    """Runs each measurement once for our programs and once for C tor's."""
    found = {}
    for who, proxy in proxies.items():
        got = download(server, proxy, folder / "got", length)
        one = length / 1e6 / (got.seconds - got.first_byte_s)
        took = at_once(server, proxy, folder, length // CIRCUITS, CIRCUITS)
        small = [download(server, proxy, folder / "got", 320 * 1024) for _ in range(5)]
        large = [download(server, proxy, folder / "got", MIB) for _ in range(5)]
        found[who] = Round(
            boots[who], one, length / 1e6 / took,
            middle(small, lambda got: got.first_byte_s), middle(small, seconds),
            middle(large, seconds),
        )  # fmt: skip
        told = [f"{name} {getattr(found[who], field):.1f}" for field, name in NAMES.items()]
        print(f"  {who}: {'; '.join(told)}", file=sys.stderr, flush=True)
    return found


def seconds(got: Download) -> float:
    """Returns the seconds of the whole download."""
    return got.seconds


def middle(downloads: list[Download], of: Callable[[Download], float]) -> float:
    """Returns the median over downloads of `of` (in seconds), in milliseconds."""
    return statistics.median(of(got) for got in downloads) * 1000


def verdict(rounds: list[dict[str, Round]], name: str) -> bool:
    """Prints the result for a target; returns whether it was met."""
    ratio = statistics.median(
        getattr(one[OURS], name) / getattr(one[STOCK], name) for one in rounds
    )
    target = LEAST.get(name) or MOST[name]
    met = bool(ratio >= target if name in LEAST else ratio <= target)
    bound = "at least" if name in LEAST else "at most"
    told = "ok" if met else "MISSED"
    print(f"{NAMES[name]}: ours / C tor {ratio:.2f} (target {bound} {target:.2f}) {told}")
    return met


if __name__ == "__main__":
    sys.exit(main())
