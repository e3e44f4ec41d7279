"""QUIC's goodput while the splitter switches paths, against the same server unsplit.

Three emulated paths of 100 Mbit/s, 10 ms each way and a queue of 250 kB. In each round quic-go's
client downloads for a fixed time: first unsplit (without the splitter, over the first path), then
with each set of options. A ratio is of two values of one round. A split run counts only if each
path, which has a client address of its own, carried 20-50 % of the downlink's bytes. Medians are
over the runs that count; `count` is their number. The shares are over all runs.

    bench/quic.py --server s2n-quic --split "--every 100ms" --split "--every 100ms --in-order 30ms"
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

from harness import quic
from harness.fair import difference
from harness.interface import interface
from harness.net import SERVER, Counts, Network, links, topology
from harness.report import table
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import site

TO = f"{SERVER}:{quic.PORT}"
RATE = 12.5e6  # bytes a second of a path
UNSPLIT = "unsplit"
WARMING = 20.0  # time in which a server may make its bytes, in seconds
FAIR = (0.2, 0.5)
FILES = {"gtlsserver", "caddy"}  # file servers, which need a file of that length


@dataclass(frozen=True)
class Run:
    """One download: goodput in Mbit/s, each path's share of downlink bytes, changes of path."""

    goodput: float
    shares: tuple[float, ...] = ()
    switches: int = 0
    seconds: float = 0.0

    @property
    def is_split(self) -> bool:
        """Whether the run counts as split: every path carried 20-50 % of the downlink's bytes."""
        return all(FAIR[0] <= share <= FAIR[1] for share in self.shares)


def main() -> int:
    """Measures the servers on the command line and prints a table; returns 1 if a target was
    missed.
    """
    args = arguments()
    rows, missed = [], False
    for kind in args.server:
        for name, runs in measure(kind, args).items():
            verdict = judge(runs, args.target)
            rows.append([kind, *row(name, runs), verdict])
            missed |= verdict != "ok"
    head = ["server", "options", "count", "Mbit/s", "of unsplit", "downlink shares", "run ms", ""]
    print(table(head, rows))
    return int(missed and args.strict)


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--server", action="append", choices=list(quic.KINDS), help="server to measure; repeatable"
    )
    parser.add_argument("--split", action="append", help="options of `anabranch split`; repeatable")
    parser.add_argument("--runs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--seconds", type=int, default=10, help="seconds of a download (10)")
    parser.add_argument("--ports", type=int, default=1, help="source ports of each path (1)")
    parser.add_argument("--delay", default="10ms", help="one-way delay, or one per path (10ms)")
    parser.add_argument("--schedule", default="round-robin", help="the schedule (round-robin)")
    parser.add_argument("--tun", action="store_true", help="use --tun --route, not a local port")
    parser.add_argument(
        "--target", type=float, default=0.8, help="least share of unsplit goodput (0.8)"
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    parsed = parser.parse_args()
    parsed.server = parsed.server or ["s2n-quic", "quiche"]
    parsed.split = parsed.split or ["--every 100ms"]
    return parsed


def measure(kind: str, args: argparse.Namespace) -> dict[str, list[tuple[Run, Run]]]:
    """Returns pairs of runs (unsplit, split) for each set of options."""
    pairs: dict[str, list[tuple[Run, Run]]] = defaultdict(list)
    delays = (args.delay.split(",") * 3)[:3]
    fixed = f"--schedule {args.schedule}"
    length = int(RATE * args.seconds * 1.1) // MIB * MIB
    paths = [replace(link, delay=delay) for link, delay in zip(links(3), delays, strict=True)]
    whole = topology(paths, default_routes=args.tun)
    with tempfile.TemporaryDirectory() as folder, Network(whole) as network:
        site(Path(folder) / "site", *([length] if kind in FILES else []))
        with quic.serving(kind, network.server, Path(folder)):
            quic.download(network.client, kind, TO, length, seconds=WARMING)
            for number in range(args.runs):
                unsplit = direct(network, kind, length, args.seconds)
                say(kind, UNSPLIT, unsplit, unsplit)
                for options in args.split:
                    run = split(
                        network,
                        kind,
                        [f"{path},ports:{args.ports}" for path in interfaces(3)],
                        f"{fixed} --seed {number + 1} {options}",
                        length=length,
                        seconds=args.seconds,
                        tun=args.tun,
                    )
                    say(kind, options, run, unsplit)
                    pairs[options].append((unsplit, run))
    return pairs


def direct(network: Network, kind: str, length: int, seconds: int) -> Run:
    """Runs a download without the splitter."""
    return Run(quic.goodput(network.client, kind, TO, length, seconds))


def split(
    network: Network,
    kind: str,
    paths: list[str],
    options: str,
    *,
    length: int,
    seconds: int,
    tun: bool = False,
) -> Run:
    """Runs a download through the splitter over `paths` with `options`."""
    before = network.stats()
    words = options.split()
    unset: dict[str, Any] = dict.fromkeys(("every", "schedule", "seed"))
    if tun:
        splitter = interface(network.client, paths, "--udp", str(quic.PORT), *words, **unset)
    else:
        splitter = Splitter(network.client, TO, paths, options=words, **unset)
    with splitter:
        goodput = quic.goodput(network.client, kind, TO if tun else LISTEN, length, seconds)
        summary = splitter.stop()
    shares = downlink(difference(network.stats(), before))
    switches = sum(path["switches"] for path in summary["paths"])
    return Run(goodput, shares, switches, seconds)


def downlink(carried: dict[str, Counts]) -> tuple[float, ...]:
    """Returns each path's share of the downlink's bytes."""
    total = sum(counts.down_bytes for counts in carried.values()) or 1
    return tuple(counts.down_bytes / total for counts in carried.values())


def say(kind: str, name: str, run: Run, unsplit: Run) -> None:
    """Prints one line of progress, with the machine's load."""
    shares = " ".join(f"{share:.2f}" for share in run.shares)
    load = os.getloadavg()[0]
    each = 1000 * run.seconds / run.switches if run.switches else 0
    ratio = run.goodput / max(unsplit.goodput, 1e-9)
    verdict = "" if run.is_split else "  NOT SPLIT"
    print(
        f"  {kind:10} {name:40} {run.goodput:6.1f}  {ratio:.3f}  [{shares}] "
        f"run {each:.0f} ms  load {load:.1f}{verdict}",
        file=sys.stderr,
        flush=True,
    )


def row(name: str, pairs: list[tuple[Run, Run]]) -> list[object]:
    """Returns one line of the table, without its verdict."""
    every_share = [share for _, run in pairs for share in run.shares]
    means = [1000 * run.seconds / run.switches for _, run in pairs if run.switches]
    return [
        name,
        f"{len(counted(pairs))}/{len(pairs)}",
        spread([run.goodput for _, run in counted(pairs)], 1),
        spread(ratios(pairs), 2),
        f"{min(every_share):.2f}-{max(every_share):.2f}",
        f"{statistics.median(means):.0f}" if means else "",
    ]


def judge(pairs: list[tuple[Run, Run]], target: float) -> str:
    """Returns the verdict of the table: `ok`, `MISSED`, or `NOT SPLIT` if no run counts."""
    if not counted(pairs):
        return "NOT SPLIT"
    return "ok" if statistics.median(ratios(pairs)) >= target else "MISSED"


def counted(pairs: list[tuple[Run, Run]]) -> list[tuple[Run, Run]]:
    """Returns the pairs whose second run was split."""
    return [(unsplit, run) for unsplit, run in pairs if run.is_split]


def ratios(pairs: list[tuple[Run, Run]]) -> list[float]:
    """Returns split goodput over the same round's unsplit goodput, for the pairs that count."""
    return [run.goodput / unsplit.goodput for unsplit, run in counted(pairs)]


def spread(values: list[float], digits: int) -> str:
    """Formats values as `median (lowest-highest)`; a dash if there are no values."""
    if not values:
        return "-"
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
