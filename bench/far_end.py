"""Goodput through a far end over emulated paths, against one path without it.

The programs are wireguard-go at both ends with TCP cubic inside, and QUIC servers. Paths have 100
Mbit/s with a queue of 250 kB. The baseline is `unsplit`: the same programs over path p0 alone,
without the splitter and far end. For unequal paths, the slowest path alone is a second baseline,
because in-order delivery has its delay. Runs take turns: unsplit, then each setting, and again. A
ratio is of two values of one turn, and the result is the median of the ratios.

`hiding` measures settings under which attacks recognise fewer page loads: short runs, and a random
delay of each datagram before the split, at both ends. A connection is measured for `--seconds`,
without its first two seconds, because its window opens more slowly over a longer round trip.

`sum` and `unlike` aggregate paths: three of 30 Mbit/s, and paths of 50, 30 and 10 Mbit/s. They
compare schedules that consider each path's window with schedules that do not. There `unsplit` is
the best path alone. `unlike` includes `by-capacity`, a random schedule that uses slow paths less.

`lines` compares with the kernel's Multipath TCP over the same lines in the same turn, and with the
sum of an unsplit tunnel's goodput over each line. Multipath TCP has one connection, cubic, without
a tunnel, whose headers cost a tenth. The lines have 50/30/10 Mbit/s and 20 ms, 50/30/10 Mbit/s and
20/35/60 ms, and 30 Mbit/s and 20 ms each. Two more quantities are measured there: the seconds for
20 parallel downloads of 1 MB, and the round trip of pings in the tunnel while TCP sends up, minus
their round trip in the idle tunnel.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

import mptcp
import parallel
from harness import farend, quic
from harness.farend import FarEnd
from harness.net import SERVER, Host, Link, Network, topology
from harness.report import table
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.wireguard import INSIDE_SERVER, PORT, Tunnel

# MTU inside the tunnel: Ethernet's minus the headers of IPv4, UDP, WireGuard and the far end.
MTU = 1500 - 20 - 8 - 32 - farend.OVERHEAD
LENGTH = 25 * MIB
# QUIC servers whose goodput through a far end is measured.
KINDS = ("quic-go", "quinn", "s2n-quic", "aioquic")


@dataclass(frozen=True)
class Setting:
    """Paths from client to server, and the far end's options; unsplit if `every` is empty.

    Delays are one way in ms, and rates in Mbit/s. `target` is the minimum ratio to `unsplit`.
    """

    name: str
    delays: tuple[int, ...]
    every: str = ""
    schedule: str = "uniform"
    rates: tuple[int, ...] = ()
    queue: str = "250kB"
    target: float = 0.0
    jitter: str = ""

    def delaying(self) -> list[str]:
        """Returns the options for either end that delay datagrams before the split."""
        return ["--jitter", self.jitter] if self.jitter else []

    def links(self) -> list[Link]:
        """Returns the paths, by default of 100 Mbit/s each."""
        rates = self.rates or (100,) * len(self.delays)
        return [
            Link(f"p{place}", rate=f"{rate}mbit", delay=f"{delay}ms", queue=self.queue)
            for place, (delay, rate) in enumerate(zip(self.delays, rates, strict=True))
        ]


EQUAL, UNEQUAL, FIVE = (20,) * 3, (20, 35, 60), (20,) * 5
# Second baseline: the slowest path alone, because in-order delivery has its delay.
SLOWEST = Setting("unsplit by 60 ms", (60, 60, 60))
TUNNELS = [
    Setting("unsplit", EQUAL),
    SLOWEST,
    Setting("far end, 20/20/20 ms, every 100ms", EQUAL, "100ms", target=0.95),
    Setting("far end, 20/20/20 ms, every 20ms", EQUAL, "20ms", target=0.95),
    Setting("far end, 20/35/60 ms, every 100ms", UNEQUAL, "100ms", target=0.95),
    Setting("far end, 20/35/60 ms, every 20ms", UNEQUAL, "20ms", target=0.95),
]
# Settings under which attacks recognise fewer loads (docs/results/schedules.md).
HIDING = [
    Setting("unsplit", EQUAL),
    SLOWEST,
    Setting("far end, every 50ms", EQUAL, "50ms", target=0.95),
    Setting("far end, every ~10p", EQUAL, "~10p", target=0.95),
    Setting("far end, every 50ms, delayed by 0-20ms", EQUAL, "50ms", jitter="0-20ms"),
    Setting("far end, every ~10p, delayed by 0-20ms", EQUAL, "~10p", jitter="0-20ms"),
    Setting("far end, every 50ms, delayed by 0-50ms", EQUAL, "50ms", jitter="0-50ms"),
    Setting("far end, every 20ms, delayed by 0-20ms", EQUAL, "20ms", jitter="0-20ms"),
    Setting("far end, 20/35/60 ms, every 50ms", UNEQUAL, "50ms", target=0.95),
    Setting("far end, 20/35/60 ms, every ~10p", UNEQUAL, "~10p", target=0.95),
    Setting("far end, five paths, every ~10p", FIVE, "~10p", target=0.95),
    Setting(
        "far end, 20/35/60 ms, every 50ms, delayed by 0-20ms",
        UNEQUAL,
        "50ms",
        jitter="0-20ms",
    ),
    Setting(
        "far end, 20/35/60 ms, every ~10p, delayed by 0-20ms",
        UNEQUAL,
        "~10p",
        jitter="0-20ms",
    ),
]
SERVERS = [
    Setting("unsplit", EQUAL),
    Setting("far end, 20/20/20 ms, every 100ms", EQUAL, "100ms", target=0.9),
    Setting("far end, 20/20/20 ms, every ~10p", EQUAL, "~10p", target=0.9),
]


def sums(rates: tuple[int, ...], target: float) -> list[Setting]:
    """Returns `unsplit`, then schedules that ignore paths' windows, then some that use them.

    Only the schedules that use windows have `target`.
    """
    ways = [
        Setting("far end, uniform, every 100ms", EQUAL, "100ms"),
        Setting("far end, uniform, every ~10p", EQUAL, "~10p"),
        Setting("far end, round-robin, every 1p", EQUAL, "1p", "round-robin"),
        Setting("far end, conflux-2013", EQUAL, "1p", "conflux-2013", target=target),
        Setting("far end, pull", EQUAL, "1p", "pull", target=target),
    ]
    return [replace(one, rates=rates, queue="100kB") for one in [Setting("unsplit", EQUAL), *ways]]


SUMS = sums((30, 30, 30), 2.5)
BY_CAPACITY = "far end, by-capacity, every ~4p"
UNLIKE = [
    *sums((50, 30, 10), 1.0),
    Setting(BY_CAPACITY, EQUAL, "~4p", "by-capacity", (50, 30, 10), "100kB", 0.95),
]
# Minimum shares of kernel Multipath TCP's goodput, and of the sum of the lines alone.
OF_MPTCP, OF_SUM = 0.92, 0.9
# Parallel downloads over `LINES`: their number, the bytes of each, and the maximum ratio of their
# time to that of kernel Multipath TCP.
FILES, FILE_LENGTH, FILES_TO_MPTCP = 20, 1_000_000, 1.1
# Maximum by which the round trip in a tunnel may be longer under load, in ms.
QUEUEING = 100
LINES = {
    "50/30/10 Mbit/s, 20 ms": ((50, 30, 10), EQUAL),
    "50/30/10 Mbit/s, 20/35/60 ms": ((50, 30, 10), UNEQUAL),
    "30/30/30 Mbit/s, 20 ms": ((30, 30, 30), EQUAL),
}
ADDING = ("eta", "conflux-2013", "pull")


def main() -> int:
    """Measures the areas on the command line and prints a table; returns 1 if a target
    was missed.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "what",
        nargs="*",
        help="wireguard, hiding, sum, unlike, lines, " + ", ".join(KINDS),
    )
    parser.add_argument("--runs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--seconds", type=int, default=8, help="seconds of a WireGuard run (8)")
    parser.add_argument(
        "--ways", default="", help="measure only the first way and those whose name has this"
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    measures: dict[str, tuple[list[Setting], Callable[[Setting], dict[str, float]]]] = {
        "wireguard": (TUNNELS, lambda setting: wireguard(setting, args.seconds)),
        "hiding": (HIDING, lambda setting: wireguard(setting, args.seconds)),
        "sum": (SUMS, lambda setting: wireguard(setting, args.seconds)),
        "unlike": (UNLIKE, lambda setting: wireguard(setting, args.seconds)),
    }
    measures |= {kind: (SERVERS, partial(download, kind)) for kind in KINDS}
    rows: list[list[object]] = []
    for what in args.what or [*measures, "lines"]:
        if what == "lines":
            rows += lines(args.runs, args.seconds, args.ways)
            continue
        settings, measure = measures[what]
        settings = settings[:1] + [one for one in settings[1:] if args.ways in one.name]
        turns = [[measured(what, one, measure) for one in settings] for _ in range(args.runs)]
        rows += compare(what, settings, turns)
    head = ["program", "way", "direction", "Mbit/s", "of unsplit", "target", ""]
    print(table(head, rows))
    return int(args.strict and any(row[-1] == "MISSED" for row in rows))


def lines(runs: int, seconds: int, ways: str) -> list[list[object]]:
    """Returns the table rows of `lines`; without Multipath TCP, only comparisons with the sum."""
    if why := mptcp.missing():
        print(f"  lines: {why}", file=sys.stderr)
    rows: list[list[object]] = []
    for name, (rates, delays) in LINES.items():
        if ways not in name:
            continue
        alone = [
            Setting(f"line {place} alone", (delay,), rates=(rate,), queue="100kB")
            for place, (rate, delay) in enumerate(zip(rates, delays, strict=True))
        ]
        far = [
            Setting(f"far end, {way}", delays, "1p", way, rates, "100kB", OF_SUM) for way in ADDING
        ]
        kernel = Setting("kernel MPTCP", delays, rates=rates, queue="100kB")
        turns: list[dict[str, dict[str, float]]] = []
        for _ in range(runs):
            turn = {} if why else {kernel.name: measured(name, kernel, multipath_tcp(seconds))}
            for setting in [*alone, *far]:
                turn[setting.name] = measured(name, setting, partial(in_tunnel, seconds))
            turns.append(turn)
        rows += compare_lines(name, [setting.name for setting in alone], turns)
    return rows


def compare_lines(
    name: str, alone: list[str], turns: list[dict[str, dict[str, float]]]
) -> list[list[object]]:
    """Returns table rows with ratios to both baselines; each ratio is of values of one turn."""
    rows: list[list[object]] = []
    for way in turns[0]:
        for direction in ("up", "down"):
            values = [turn[way][direction] for turn in turns]
            row = [name, way, direction, spread(values, 1)]
            if not way.startswith("far end"):
                rows.append([*row, "", "", ""])
                continue
            totals = [sum(turn[line][direction] for line in alone) for turn in turns]
            baselines = [("sum", OF_SUM, totals)]
            if "kernel MPTCP" in turns[0]:
                kernel = [turn["kernel MPTCP"][direction] for turn in turns]
                baselines.append(("MPTCP", OF_MPTCP, kernel))
            for baseline, target, others in baselines:
                ratios = [value / other for value, other in zip(values, others, strict=True)]
                verdict = "ok" if statistics.median(ratios) >= target else "MISSED"
                of = f"{spread(ratios, 2)} of {baseline}"
                rows.append([*row, of, f">= {target}", verdict])
        rows.append([name, way, *compare_files(way, turns)])
        if way.startswith("far end"):
            longer = [turn[way]["queueing ms"] for turn in turns]
            verdict = "ok" if statistics.median(longer) <= QUEUEING else "MISSED"
            rows.append(
                [name, way, "ms under load", spread(longer, 0), "", f"<= {QUEUEING}", verdict]
            )
    return rows


def compare_files(way: str, turns: list[dict[str, dict[str, float]]]) -> list[object]:
    """Returns the end of a table row: seconds for the parallel downloads, and their ratio to
    kernel Multipath TCP's.
    """
    seconds = [turn[way]["files s"] for turn in turns]
    row = [f"{FILES} x 1 MB, s", spread(seconds, 2)]
    if not way.startswith("far end") or "kernel MPTCP" not in turns[0]:
        return [*row, "", "", ""]
    kernel = [turn["kernel MPTCP"]["files s"] for turn in turns]
    ratios = [value / other for value, other in zip(seconds, kernel, strict=True)]
    verdict = "ok" if statistics.median(ratios) <= FILES_TO_MPTCP else "MISSED"
    return [*row, f"{spread(ratios, 2)} of MPTCP", f"<= {FILES_TO_MPTCP}", verdict]


def multipath_tcp(seconds: int) -> Callable[[Setting], dict[str, float]]:
    """Returns a function that measures the kernel's Multipath TCP, one direction after
    the other.
    """

    def measure(setting: Setting) -> dict[str, float]:
        with Network(topology(setting.links())) as network:
            for host in (network.client, network.server):
                host.must(["sysctl", "-q", "-w", "net.mptcp.enabled=1"])
                limits = ["subflows", "8", "add_addr_accepted", "8"]
                host.must(["ip", "mptcp", "limits", "set", *limits])
            for place in range(len(setting.delays)):
                endpoint = [f"10.77.{place}.2", "dev", f"p{place}", "subflow"]
                network.client.must(["ip", "mptcp", "endpoint", "add", *endpoint])
            with network.server.start(mptcp.command("serve", SERVER, mptcp.PORT)) as server:
                server.wait_bound(mptcp.PORT, "tcp")
                rates = {
                    way: float(
                        network.client.must(
                            mptcp.command("run", SERVER, mptcp.PORT, way, seconds, 2),
                            timeout=seconds + 20,
                        )
                    )
                    for way in ("up", "down")
                }
            return rates | {"files s": files(network.server, network.client, SERVER, "mptcp")}

    return measure


def files(server: Host, client: Host, address: str, protocol: str) -> float:
    """Returns the seconds for the parallel downloads from ``address``."""
    with server.start(parallel.command("serve", protocol, address, parallel.PORT)) as serving:
        serving.wait_bound(parallel.PORT, "tcp")
        command = parallel.command("fetch", protocol, address, parallel.PORT, FILES, FILE_LENGTH)
        return float(client.must(command, timeout=120))


def round_trip(client: Host, count: int) -> float:
    """Returns the median round trip of ``count`` pings in the tunnel, in ms."""
    output = client.must(["ping", "-i", "0.1", "-c", str(count), INSIDE_SERVER], timeout=60)
    return statistics.median(float(found) for found in re.findall(r"time=([0-9.]+)", output))


def measured(
    what: str, setting: Setting, measure: Callable[[Setting], dict[str, float]]
) -> dict[str, float]:
    """Runs one measurement and reports it on standard error."""
    values = measure(setting)
    shown = ", ".join(f"{way} {value:.1f}" for way, value in values.items())
    print(f"  {what}: {setting.name}: {shown}", file=sys.stderr, flush=True)
    return values


def compare(
    what: str, settings: list[Setting], turns: list[list[dict[str, float]]]
) -> list[list[object]]:
    """Returns the table rows of one program: its goodput with each setting, and ratios."""
    rows: list[list[object]] = []
    for place, setting in enumerate(settings):
        for way in turns[0][0]:
            values = [turn[place][way] for turn in turns]
            ratios = [turn[place][way] / turn[0][way] for turn in turns]
            ratio = statistics.median(ratios)
            verdict = "ok" if ratio >= setting.target else "MISSED"
            target = f">= {setting.target}" if setting.target else ""
            rows.append(
                [what, setting.name, way, spread(values, 1), spread(ratios, 2), target,
                 verdict if target else ""]
            )  # fmt: skip
    return rows


@contextlib.contextmanager
def wireguard_tunnel(setting: Setting) -> Iterator[Tunnel]:
    """Yields a new tunnel that works, over the paths of ``setting``."""
    with (
        way(setting, f"{SERVER}:{PORT}", LISTEN) as (network, endpoint),
        Tunnel(network.server, network.client, endpoint) as tunnel,
    ):
        for host, name in [
            (network.client, tunnel.name),
            (network.server, tunnel.server.name),
        ]:
            host.must(["ip", "link", "set", name, "mtu", str(MTU)])
        tunnel.ping()
        yield tunnel


def wireguard(setting: Setting, seconds: int) -> dict[str, float]:
    """Returns Mbit/s of TCP cubic in a new tunnel, up and then down, without the first 2 s."""
    with wireguard_tunnel(setting) as tunnel:
        up, down = (iperf(tunnel, seconds, options) for options in ([], ["-R"]))
        return {"up": up, "down": down}


def in_tunnel(seconds: int, setting: Setting) -> dict[str, float]:
    """Returns the rates of `wireguard`, the time of the parallel downloads, and by how much the
    round trip is longer while TCP sends up.
    """
    with wireguard_tunnel(setting) as tunnel, ThreadPoolExecutor(1) as pool:
        idle = round_trip(tunnel.client, 10)
        # The pings end before TCP does.
        loaded = pool.submit(round_trip, tunnel.client, seconds * 10)
        up = iperf(tunnel, seconds, [])
        queueing = loaded.result() - idle
        down = iperf(tunnel, seconds, ["-R"])
        took = files(tunnel.server.host, tunnel.client, INSIDE_SERVER, "tcp")
        return {"up": up, "down": down, "files s": took, "queueing ms": queueing}


def iperf(tunnel: Tunnel, seconds: int, options: list[str]) -> float:
    """Returns the receiver's rate in Mbit/s."""
    command = ["iperf3", "-c", INSIDE_SERVER, "-J", "-C", "cubic", "-O", "2"]
    command += ["-t", str(seconds), *options]
    with tunnel.server.iperf():
        end = json.loads(tunnel.client.must(command, timeout=seconds + 20))["end"]
    return float(end["sum_received"]["bits_per_second"]) / 1e6


def download(kind: str, setting: Setting) -> dict[str, float]:
    """Runs one download with quic-go's client, and checks its hash."""
    listen = f"127.0.0.1:{quic.PORT}"
    with (
        tempfile.TemporaryDirectory() as folder,
        way(setting, f"{SERVER}:{quic.PORT}", listen) as (network, endpoint),
        quic.serving(kind, network.server, Path(folder)),
    ):
        transfer = quic.download(network.client, kind, endpoint, LENGTH, seconds=120)
        if fault := transfer.fault(LENGTH):
            raise SystemExit(f"{kind}, {setting.name}: {fault}")
        return {"down": transfer.goodput_mbits}


@contextlib.contextmanager
def way(setting: Setting, server: str, listen: str) -> Iterator[tuple[Network, str]]:
    """Yields the network, and the address to which the client's program sends."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(topology(setting.links())))
        if not setting.every:
            yield network, server
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        far_key, home_key = farend.make_keys(folder)
        far = FarEnd(
            network.server, server, far_key, every=setting.every,
            schedule=setting.schedule, options=setting.delaying(),
        )  # fmt: skip
        stack.enter_context(far)
        splitter = Splitter(
            network.client, f"{SERVER}:{farend.PORT}", interfaces(len(setting.delays)),
            every=setting.every, schedule=setting.schedule, listen=listen,
            options=["--key", str(home_key), *setting.delaying()],
        )  # fmt: skip
        stack.enter_context(splitter)
        splitter.wait_event("far_end", state="up")
        yield network, listen


def spread(values: list[float], digits: int) -> str:
    """Formats values as `median (lowest-highest)`."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
