"""Compares TCP connections to a far end, as paths, with UDP paths over the same lines.

* `sum`: goodput of WireGuard (TCP cubic inside) over one and over three `tcp:` paths of 30 Mbit/s
  and 20 ms, over two such paths and one UDP path, and over three UDP paths, with a schedule that
  aggregates paths (`--schedule`). Both directions are measured, one after the other. `--rate 10`,
  also for `loss`, makes lines of 10 Mbit/s: if the ratios grow, the limit was the machine and not
  the paths.
* `delay`: the time that one `tcp:` path adds to the round trip of a ping in the idle tunnel,
  compared with a ping on the line itself. The rows without a target compare with a tunnel without
  a splitter, and with a tunnel over a UDP path.
* `cpu`: CPU time of the near end for each packet, over one `tcp:` path and over one UDP path, at a
  steady load of UDP in the tunnel.
* `loss`: goodput over one path that loses 0, 1 and 3 % of its packets: UDP, `tcp:`, and `tcp:`
  without the age limit (`--stream-age 1h` at both ends).
* `circuits`: goodput over three circuits of `anabranch up` on loopback, whose MTU is set to that of
  Ethernet, and over three `tcp:` paths on the same loopback. All programs share this machine's
  cores.

In each round every case runs once. A ratio is of two values of one round, and the result is the
median of the ratios. Numbers from a machine with other load are worthless.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

import rounds
from far_end import iperf, spread
from harness import farend
from harness.farend import FarEnd
from harness.net import SERVER, Host, Link, Network, topology
from harness.report import table
from harness.splitter import LISTEN, Splitter
from harness.tools import anabranch
from harness.torours import events_of
from harness.wireguard import INSIDE_SERVER, PORT, Tunnel

STREAMS = 443
# MTU inside the tunnel: Ethernet's minus the headers of IPv4, UDP, WireGuard and the far end.
MTU = 1500 - 20 - 8 - 32 - farend.OVERHEAD
OF_ONE, OF_UDP, ADDED_MS, OF_UDP_CPU, OF_CIRCUITS = 2.5, 0.9, 1.0, 2.5, 100
HOME = "127.0.0.1"
# SOCKS port of the onion network's client, and maximum seconds until its circuits are open.
SOCKS, CIRCUITS_READY = 9150, 60.0
PINGS = 50
# Bytes of a line's queue per Mbit/s of its rate: 100 kB at 30 Mbit/s.
QUEUE = 100_000 / 30
# Load of `cpu`: payload of a datagram in bytes, and rate in Mbit/s.
LOAD_LENGTH, LOAD_MBITS = 1_200, 60
WITHOUT_AGE = ("--stream-age", "1h")
# Kinds of paths of a case without a splitter.
NONE = ("none",)


@dataclass(frozen=True)
class Case:
    """A case: paths of one or several kinds (`udp`, `tcp`), and the lines that carry them."""

    name: str
    kinds: tuple[str, ...]
    rate: str = "30mbit"
    delay: str = "20ms"
    queue: str = "100kB"
    loss: float = 0.0
    schedule: str = "uniform"
    every: str = "~10p"
    options: tuple[str, ...] = ()

    def links(self) -> list[Link]:
        """Returns a line for each path."""
        line = Link("", self.rate, self.delay, self.loss, self.queue)
        return [replace(line, name=f"p{place}") for place in range(len(self.kinds))]

    def paths(self) -> list[str]:
        """Returns the paths as arguments of `anabranch split`."""
        streams = {"udp": "", "tcp": ",tcp:"}
        return [f"p{place}=if:p{place}{streams[kind]}" for place, kind in enumerate(self.kinds)]


Turn = Mapping[str, Mapping[str, float]]


def main() -> int:
    """Measures the areas on the command line and prints a table.

    Returns 1 if a target was missed with `--strict`.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="*", help="sum, delay, cpu, loss, circuits (all)")
    parser.add_argument("--runs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--seconds", type=int, default=8, help="seconds of a run (8)")
    parser.add_argument(
        "--rate", type=int, default=30, help="Mbit/s of a line in `sum` and `loss` (30)"
    )
    parser.add_argument("--schedule", default="pull", help="what adds paths up in `sum` (pull)")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    areas: dict[str, Callable[[], list[list[object]]]] = {
        "sum": lambda: sums(args.runs, args.seconds, args.schedule, args.rate),
        "delay": lambda: delay(args.runs),
        "cpu": lambda: cpu(args.runs, args.seconds),
        "loss": lambda: loss(args.runs, args.seconds, args.rate),
        "circuits": lambda: circuits(args.runs, args.seconds),
    }
    rows: list[list[object]] = []
    for what in args.what or areas:
        rows += areas[what]()
    print(table(["area", "case", "value", "median (lowest-highest)", "target", ""], rows))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    return int(args.strict and any(row[-1] == "MISSED" for row in rows))


def sums(runs: int, seconds: int, schedule: str, mbits: int) -> list[list[object]]:
    """Returns rows of `sum`: three streams against one, mixed paths against UDP alone."""
    one = Case("1 tcp", ("tcp",), *line_of(mbits), schedule=schedule, every="1p")
    cases = [
        one,
        replace(one, name="3 tcp", kinds=("tcp",) * 3),
        replace(one, name="2 tcp, 1 udp", kinds=("tcp", "tcp", "udp")),
        replace(one, name="3 udp", kinds=("udp",) * 3),
    ]
    turns = turns_of(cases, runs, lambda case: goodput(case, seconds))
    rows = values("sum", turns, 1)
    for case, beside, target in [("3 tcp", "1 tcp", OF_ONE), ("2 tcp, 1 udp", "3 udp", OF_UDP)]:
        for way in ("up", "down"):
            found = [turn[case][way] / turn[beside][way] for turn in turns]
            rows.append(at_least("sum", f"{case} / {beside}", way, found, target))
    return rows


def line_of(mbits: int) -> tuple[str, str, str]:
    """Returns rate, delay and queue of a line of `mbits` Mbit/s, as fields of :class:`Case`."""
    return f"{mbits}mbit", "20ms", f"{QUEUE * mbits / 1000:.0f}kB"


def loss(runs: int, seconds: int, mbits: int) -> list[list[object]]:
    """Returns rows of `loss`: goodput of one path that loses packets, without a target."""
    cases = []
    for share in (0.0, 0.01, 0.03):
        udp = Case(f"udp, {share:.0%}", ("udp",), *line_of(mbits), loss=share)
        tcp = replace(udp, name=f"tcp, {share:.0%}", kinds=("tcp",))
        cases += [udp, tcp, replace(tcp, name=f"tcp without age, {share:.0%}", options=WITHOUT_AGE)]
    return values("loss", turns_of(cases, runs, lambda case: goodput(case, seconds)), 1)


def circuits(runs: int, seconds: int) -> list[list[object]]:
    """Returns rows of `circuits`: goodput in Mbit/s over three circuits, and over three streams."""
    onion, tcp = Case("3 circuits", ("onion",) * 3), Case("3 tcp, no circuits", ("tcp",) * 3)
    turns = turns_of([onion, tcp], runs, lambda case: by_loopback(case, seconds))
    rows = values("circuits", [{tcp.name: turn[tcp.name]} for turn in turns], 1)
    for way in ("up", "down"):
        found = [turn[onion.name][way] for turn in turns]
        rows.append(at_least("circuits", onion.name, way, found, OF_CIRCUITS))
    return rows


def delay(runs: int) -> list[list[object]]:
    """Returns rows of `delay`: milliseconds that a stream adds to a ping's round trip."""
    kinds = {"1 tcp": "tcp", "1 udp": "udp", "no splitter": "none"}
    cases = [Case(name, (kind,)) for name, kind in kinds.items()]
    turns = turns_of(cases, runs, lambda case: alone(case) if case.kinds == NONE else pings(case))
    rows = values("delay", turns, 2)
    added = [turn["1 tcp"]["tunnel_ms"] - turn["1 tcp"]["line_ms"] for turn in turns]
    met = "ok" if statistics.median(added) <= ADDED_MS else "MISSED"
    rows.append(["delay", "1 tcp", "added ms", spread(added, 2), f"<= {ADDED_MS:g}", met])
    for other in ("no splitter", "1 udp"):
        more = [turn["1 tcp"]["tunnel_ms"] - turn[other]["tunnel_ms"] for turn in turns]
        rows.append(["delay", f"1 tcp - {other}", "added ms", spread(more, 2), "", ""])
    return rows


def cpu(runs: int, seconds: int) -> list[list[object]]:
    """Returns rows of `cpu`: microseconds of the near end for each packet that arrives."""
    # The line's rate is high enough for a stream to carry the whole load.
    udp = Case("1 udp", ("udp",), rate="200mbit", delay="1ms", queue="1MB")
    cases = [replace(udp, name="1 tcp", kinds=("tcp",)), udp]
    turns = turns_of(cases, runs, lambda case: cost(case, seconds))
    rows = values("cpu", turns, 2)
    found = [turn["1 tcp"]["us"] / turn["1 udp"]["us"] for turn in turns]
    met = "ok" if statistics.median(found) <= OF_UDP_CPU else "MISSED"
    return [*rows, ["cpu", "1 tcp / 1 udp", "", spread(found, 2), f"<= {OF_UDP_CPU:g}", met]]


def turns_of(
    cases: Sequence[Case], runs: int, measure: Callable[[Case], dict[str, float]]
) -> list[Turn]:
    """Measures each case once in each round, and prints each value as it is measured."""

    def told(case: Case) -> Callable[[], dict[str, float]]:
        def run() -> dict[str, float]:
            found = measure(case)
            words = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
            print(f"  {case.name}: {words}", file=sys.stderr, flush=True)
            return found

        return run

    return list(rounds.interleaved(runs, {case.name: told(case) for case in cases}))


def values(area: str, turns: Sequence[Turn], digits: int) -> list[list[object]]:
    """Returns one table row for each measured value of each case."""
    return [
        [area, case, name, spread([turn[case][name] for turn in turns], digits), "", ""]
        for case, found in turns[0].items()
        for name in found
    ]


def at_least(
    area: str, case: str, name: str, found: Sequence[float], target: float
) -> list[object]:
    """Returns a table row of ratios whose median has to reach `target`."""
    met = "ok" if statistics.median(found) >= target else "MISSED"
    return [area, case, name, spread(list(found), 2), f">= {target:g}", met]


@dataclass(frozen=True)
class Ends:
    """The network and the running programs of one case."""

    network: Network
    splitter: Splitter
    tunnel: Tunnel


@contextlib.contextmanager
def running(case: Case) -> Iterator[Ends]:
    """Yields near and far end in a new network, all paths up, with a WireGuard tunnel."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(topology(case.links())))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        far_key, home_key = farend.make_keys(folder)
        own = ["--listen-tcp", f"{SERVER}:{STREAMS}", *case.options]
        stack.enter_context(
            FarEnd(
                network.server, f"{SERVER}:{PORT}", far_key, every=case.every,
                schedule=case.schedule, options=own,
            )
        )  # fmt: skip
        ends = ["--key", str(home_key), "--to-tcp", f"{SERVER}:{STREAMS}", *case.options]
        splitter = Splitter(
            network.client, f"{SERVER}:{farend.PORT}", case.paths(), every=case.every,
            schedule=case.schedule, options=ends,
        )  # fmt: skip
        stack.enter_context(splitter)
        splitter.wait_event("far_end", state="up")
        for place, kind in enumerate(case.kinds):
            if kind == "tcp":
                splitter.wait_event("path", path=f"p{place}", state="up")
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        for host, name in [(network.client, tunnel.name), (network.server, tunnel.server.name)]:
            host.must(["ip", "link", "set", name, "mtu", str(MTU)])
        tunnel.ping()
        yield Ends(network, splitter, tunnel)


def goodput(case: Case, seconds: int) -> dict[str, float]:
    """Returns Mbit/s of TCP cubic in the tunnel, up and then down, without slow start."""
    with running(case) as ends:
        up, down = (iperf(ends.tunnel, seconds, options) for options in ([], ["-R"]))
        return {"up": up, "down": down}


def by_loopback(case: Case, seconds: int) -> dict[str, float]:
    """Returns goodput as :func:`goodput`; the paths are on the client's loopback."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(topology([Link("p0")])))
        here, folder = network.client, Path(stack.enter_context(tempfile.TemporaryDirectory()))
        here.must(["ip", "link", "set", "lo", "mtu", "1500"])
        far_key, home_key = farend.make_keys(folder)
        streams, far_at = f"{HOME}:{STREAMS}", f"{HOME}:{farend.PORT}"
        own = ["--listen-tcp", streams]
        stack.enter_context(
            FarEnd(here, f"{HOME}:{PORT}", far_key, every="~10p", listen=far_at, options=own)
        )
        paths, names = [f"t{n}=addr:127.0.0.{n},tcp:" for n in (2, 3, 4)], ["t2", "t3", "t4"]
        if case.kinds[0] == "onion":
            stack.enter_context(onion_network(here, folder))
            paths, names = ["o=onion:3"], ["o-1", "o-2", "o-3"]
        ends = ["--key", str(home_key), "--to-tcp", streams, "--onion-socks", f"{HOME}:{SOCKS}"]
        listen = f"{HOME}:{PORT + 1}"
        splitter = stack.enter_context(
            Splitter(
                here, far_at, paths, every="~10p", schedule="uniform", listen=listen, options=ends
            )
        )
        for name in names:
            splitter.wait_event("path", CIRCUITS_READY, path=name, state="up")
        tunnel = stack.enter_context(Tunnel(here, here, listen, network.server))
        for host, name in [(here, tunnel.name), (network.server, tunnel.server.name)]:
            host.must(["ip", "link", "set", name, "mtu", str(MTU)])
        tunnel.ping()
        up, down = (iperf(tunnel, seconds, options) for options in ([], ["-R"]))
        return {"up": up, "down": down}


@contextlib.contextmanager
def onion_network(host: Host, folder: Path) -> Iterator[None]:
    """Runs `anabranch up` on `host`, with its state in `folder`; yields when a circuit is open."""
    command = [anabranch(), "up", "--json", "--listen", f"{HOME}:{SOCKS}"]
    with host.start([*command, "--data", str(folder / "up")]) as network:
        built = partial(events_of, network, "circuit_built")
        network.wait_until("a circuit", lambda: bool(built()), CIRCUITS_READY)
        yield


def pings(case: Case) -> dict[str, float]:
    """Returns the median round trips in the tunnel and on the line, in milliseconds."""
    with running(case) as ends:
        client = ends.network.client
        return {
            "tunnel_ms": round_trip(client.must(ping(INSIDE_SERVER), timeout=60)),
            "line_ms": round_trip(client.must([*ping(SERVER), "-I", "p0"], timeout=60)),
        }


def alone(case: Case) -> dict[str, float]:
    """Returns round trips in ms, as `pings`, for a tunnel without splitter and far end."""
    with (
        Network(topology(case.links())) as network,
        Tunnel(network.server, network.client, f"{SERVER}:{PORT}") as tunnel,
    ):
        tunnel.ping()
        return {
            "tunnel_ms": round_trip(network.client.must(ping(INSIDE_SERVER), timeout=60)),
            "line_ms": round_trip(network.client.must([*ping(SERVER), "-I", "p0"], timeout=60)),
        }


def ping(to: str) -> list[str]:
    """Returns the command of `PINGS` pings, five each second."""
    return ["ping", "-c", str(PINGS), "-i", "0.2", to]


def round_trip(told: str) -> float:
    """Returns the median round trip in milliseconds of ping's output."""
    return statistics.median(float(found) for found in re.findall(r"time=([\d.]+) ms", told))


def cost(case: Case, seconds: int) -> dict[str, float]:
    """Returns the near end's CPU time for each uplink packet that arrived, and the loss in %.

    The time is in microseconds.
    """
    with running(case) as ends:
        load = ["iperf3", "-c", INSIDE_SERVER, "-J", "-u", "-b", f"{LOAD_MBITS}M"]
        load += ["-l", str(LOAD_LENGTH), "-t", str(seconds)]
        with ends.tunnel.server.iperf():
            before = ticks(ends.splitter.pid)
            end = json.loads(ends.tunnel.client.must(load, timeout=seconds + 20))["end"]
            spent = ticks(ends.splitter.pid) - before
        lost = float(end["sum"]["lost_percent"])
        packets = int(end["sum"]["packets"]) * (1 - lost / 100)
        return {"us": spent / os.sysconf("SC_CLK_TCK") * 1e6 / packets, "lost_percent": lost}


def ticks(pid: int) -> int:
    """Returns the user and system time of a process so far, in clock ticks."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(stat[11]) + int(stat[12])


if __name__ == "__main__":
    sys.exit(main())
