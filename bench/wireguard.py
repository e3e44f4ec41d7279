"""WireGuard's goodput over three paths compared with one path, through the same splitter.

There are two settings, both with wireguard-go at both ends and TCP cubic inside:

* `emulated`: three paths of 100 Mbit/s, 10 ms each way, a queue of 250 kB; switching every 100 ms.
  The CoMPS paper lost 5-6 %.
* `loopback`: the paths are on one host's loopback without shaping, and the CPU is the limit.

Runs are interleaved (one path, three paths, one path, …). A ratio is of two consecutive runs, and
the result is the median of the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

from harness.net import SERVER, Host, Network, links, topology
from harness.report import table
from harness.splitter import Splitter, interfaces
from harness.wireguard import INSIDE_SERVER, PORT, ServerEnd, Tunnel

TARGET = 0.97
Measure = Callable[[Host, ServerEnd, bool], float]


def main() -> int:
    """Measures the settings on the command line and prints a table; returns 1 if a target was
    missed.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs (5)")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of a run (5)")
    parser.add_argument("--every", default="100ms", help="change the path after this time (100ms)")
    parser.add_argument("--schedule", default="round-robin", help="the schedule (round-robin)")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    rows, missed = [], False
    for setting, open_tunnel, target in [
        ("emulated", emulated, TARGET),
        ("loopback", loopback, None),
    ]:
        for downward in [False, True]:
            pairs = measure(open_tunnel, args, downward)
            rows.append(row(setting, downward, pairs, target))
            missed |= rows[-1][-1] == "MISSED"
    head = ["setting", "direction", "one path Mbit/s", "three paths Mbit/s", "ratio", "target", ""]
    print(table(head, rows))
    return int(missed and args.strict)


def measure(
    open_tunnel: Callable[[int, argparse.Namespace], contextlib.AbstractContextManager[Tunnel]],
    args: argparse.Namespace,
    downward: bool,
) -> list[tuple[float, float]]:
    """Returns pairs of goodputs in Mbit/s: (over one path, over three)."""
    pairs = []
    for _ in range(args.runs):
        one, three = (goodput(open_tunnel, count, args, downward) for count in (1, 3))
        pairs.append((one, three))
        print(f"  {one:8.1f} {three:8.1f}  {three / one:.3f}", file=sys.stderr, flush=True)
    return pairs


def goodput(
    open_tunnel: Callable[[int, argparse.Namespace], contextlib.AbstractContextManager[Tunnel]],
    count: int,
    args: argparse.Namespace,
    downward: bool,
) -> float:
    """Returns the receiver's Mbit/s of TCP cubic through a new tunnel over `count` paths.

    The first second is left out, because slow start is the same for both and independent of
    switching.
    """
    with open_tunnel(count, args) as tunnel:
        tunnel.ping()
        command = ["iperf3", "-c", INSIDE_SERVER, "-J", "-C", "cubic", "-O", "1"]
        command += ["-t", str(args.seconds), *(["-R"] if downward else [])]
        with tunnel.server.iperf():
            end = json.loads(tunnel.client.must(command, timeout=args.seconds + 20))["end"]
    return float(end["sum_received"]["bits_per_second"]) / 1e6


@contextlib.contextmanager
def emulated(count: int, args: argparse.Namespace) -> Iterator[Tunnel]:
    """Yields a tunnel over the first `count` of three emulated paths."""
    with (
        Network(topology(links(3))) as network,
        Splitter(
            network.client,
            f"{SERVER}:{PORT}",
            interfaces(count),
            every=args.every,
            schedule=args.schedule,
        ) as splitter,
        Tunnel(network.server, network.client, splitter.listen) as tunnel,
    ):
        yield tunnel


@contextlib.contextmanager
def loopback(count: int, args: argparse.Namespace) -> Iterator[Tunnel]:
    """Yields a tunnel whose ends communicate over one host's loopback.

    The server's interface is moved to another network namespace, but its socket stays on this host.
    """
    paths = [f"l{i}=addr:127.0.0.{2 + i}" for i in range(count)]
    with (
        Network(topology(links(1))) as network,
        Splitter(
            network.client,
            f"127.0.0.1:{PORT}",
            paths,
            every=args.every,
            schedule=args.schedule,
            listen="127.0.0.1:51821",  # wireguard-go binds its port on all addresses
            options=["--same-egress"],
        ) as splitter,
        Tunnel(network.client, network.client, splitter.listen, inside=network.server) as tunnel,
    ):
        yield tunnel


def row(
    setting: str, downward: bool, pairs: list[tuple[float, float]], target: float | None
) -> list[object]:
    """Returns one line of the table."""
    ratios = [three / one for one, three in pairs]
    ratio = statistics.median(ratios)
    verdict = "" if target is None else "ok" if ratio >= target else "MISSED"
    return [
        setting,
        "down" if downward else "up",
        spread([one for one, _ in pairs], 1),
        spread([three for _, three in pairs], 1),
        spread(ratios, 3),
        "" if target is None else f">= {target}",
        verdict,
    ]


def spread(values: list[float], digits: int) -> str:
    """Formats values as `median (lowest-highest)`."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
