"""A mixed network of eight relays, some of which are killed, and a twin of C tor only.

Both networks run at the same time. Four C tor clients fetch from servers through exits and from an
onion service of C tor. From the same seed, both networks kill the relay at the same position at
the same time, and draw the same streams. In the mixed network every second relay is ours,
including one of the two exits. The trial counts failed streams; :func:`judge` has the rules.
"""

from __future__ import annotations

import math
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Barrier

from harness.report import table
from harness.soak import AFTERMATH_S, LAST_STREAMS_S, SAMPLE_S, helper
from harness.soaknet import Killer, Victim
from harness.tools import Background, wait_for
from harness.tornet import PATIENT, Node, TorNetwork, free_ports
from harness.torours import BACK, OurRelay, events_of
from harness.webfiles import FileServer, fetch

KINDS = ("mixed", "stock")
RELAYS, EXITS = 6, 2
EXIT = ("--exit", "accept *:*")
PUBLISHED_S = 120.0
# Significance level at which the mixed network counts as failing more streams than the twin.
CHANCE = 0.05
PLACES = {False: "by exits", True: "to the service"}
OUR_WORDS = ("panicked at", '"event":"violation"', '"event":"out_of_memory"')
# Messages that any stock tor may log when relays die, even if the twin logged none.
WHERE_RELAYS_DIE = re.compile(r"Tried for \d+ seconds to get a connection")
_NAMES = re.compile(r"\$?[0-9A-F]{40}([~=]\w+)?|\b(relay|exit|ours|auth|client|host)\d+\b")
# A log line's prefix (time and domains), which is removed for comparison.
_HEAD = re.compile(r"^.*?\[(warn|err|notice)\] (\{[^}]*\} )?")


@dataclass(frozen=True)
class MixedPlan:
    """Duration and parameters of a trial."""

    seconds: int = 1200
    seed: int = 1
    clients: int = 4
    #: Users of each client; each has one stream at a time.
    users: int = 4
    #: Mean time between two kills.
    kill_s: float = 20.0
    #: Mean pause of a user between streams.
    pause_s: float = 4.0
    #: Duration of the longest slow stream.
    lasting_s: int = 10


@dataclass
class Seen:
    """Results of one of the networks."""

    kind: str
    # : Second, and name of the relay; our names begin with ``ours``.
    kills: list[tuple[float, str]] = field(default_factory=list)
    streams: list[dict[str, object]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    #: Forbidden lines in the logs of our relays.
    ours: list[str] = field(default_factory=list)
    #: Relays that exited by themselves.
    gone: list[str] = field(default_factory=list)
    load: list[float] = field(default_factory=list)

    def to(self, onion: bool) -> list[dict[str, object]]:
        """Returns the streams to the onion service, or the streams that left by exits."""
        return [one for one in self.streams if str(one["host"]).endswith(".onion") == onion]

    def killed(self, ours: bool) -> list[float]:
        """Returns the times when relays of ours, or stock relays, were killed."""
        return [at for at, name in self.kills if name.startswith("ours") == ours]


def failed(streams: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Returns the streams that were not complete."""
    return [stream for stream in streams if stream["end"] != "complete"]


def _after(streams: Sequence[dict[str, object]], kills: Sequence[float]) -> int:
    """Returns the number of streams that ended in the seconds after a kill."""
    ends = [float(str(stream["ended"])) for stream in streams]
    return sum(any(-1 <= end - kill <= AFTERMATH_S for kill in kills) for end in ends)


class _StockRelay:
    """A stock relay that can be killed and started again."""

    def __init__(self, network: TorNetwork, node: Node):
        self.name = node.name
        self._network, self._node = network, node

    def start(self) -> None:
        """Starts the relay with its saved state."""
        self._network.restart(self._node)

    def end(self, how: signal.Signals) -> int:
        """Sends a signal, waits, and returns the exit status."""
        assert self._node.process, "it runs"
        status = self._node.process.stop(how)
        self._node.process = None
        return status


class _OurRelay:
    """A relay of ours; the output of each life is kept."""

    def __init__(self, relay: OurRelay):
        self.name = relay.name
        self._relay = relay
        self._said: list[str] = []

    def start(self) -> None:
        """Starts the relay with its saved state."""
        self._relay.start()

    def end(self, how: signal.Signals) -> int:
        """Sends a signal, waits, and returns the exit status."""
        self._said.append(self._relay.process.output())
        return self._relay.process.stop(how)

    def faults(self) -> list[str]:
        """Returns the forbidden lines of the relay's output."""
        lives = [*self._said, self._relay.process.output()]
        lines = [line for life in lives for line in life.splitlines()]
        told = [line for line in lines if any(word in line for word in OUR_WORDS)]
        return [f"{self.name}: {line}" for line in told if BACK not in line]


def trial(
    plan: MixedPlan, folder: Path, say: Callable[[str], None] = lambda _: None
) -> dict[str, Seen]:
    """Runs both networks at once, so that both see the same load of the machine."""
    begin = Barrier(len(KINDS))

    def run(kind: str) -> Seen:
        try:
            with _World(kind, plan, folder / kind) as world:
                say(f"{kind}: the service is found by all clients")
                begin.wait()
                world.run(lambda line: say(f"{kind}: {line}"))
                return world.seen
        finally:
            # If this network did not start, the other one must not wait for it.
            begin.abort()

    with ThreadPoolExecutor(len(KINDS)) as pool:
        return dict(zip(KINDS, pool.map(run, KINDS), strict=True))


class _World(ExitStack):
    """One of the networks, with its service and its clients."""

    def __init__(self, kind: str, plan: MixedPlan, folder: Path):
        super().__init__()
        folder.mkdir(parents=True)
        self.plan, self.folder, self.seen = plan, folder, Seen(kind)
        try:
            self._build(kind)
        except BaseException:
            self.close()
            raise

    def _build(self, kind: str) -> None:
        places = range(RELAYS + EXITS)
        stock = [place for place in places if kind == "stock" or place % 2 == 0]
        exits = sum(place >= RELAYS for place in stock)
        made = TorNetwork(self.folder, relays=len(stock) - exits, exits=exits)
        self.network = self.enter_context(made)
        self.ours = {
            place: _OurRelay(self._our_relay(place)) for place in places if place not in stock
        }
        theirs = [_StockRelay(made, node) for role in ("relay", "exit") for node in made.of(role)]
        both: dict[int, Victim] = {**self.ours, **dict(zip(stock, theirs, strict=True))}
        self.victims = [both[place] for place in places]
        made.start()
        self._service_and_clients()

    def _our_relay(self, place: int) -> OurRelay:
        name = f"ours{place}"
        options = EXIT if place >= RELAYS else ()
        threads = ("--threads", str(1 + place // 2 % 2))
        relay = OurRelay(self.network, self.folder / name, name, *options, *threads)
        self.enter_context(relay)
        self.network.others[name] = relay.fingerprint
        if place >= RELAYS:
            self.network.other_exits.append(name)
        return relay

    def _service_and_clients(self) -> None:
        (self.port,) = free_ports(1)
        service = self.folder / "service"
        with FileServer() as scouted:
            self.network.client(
                "host0", PATIENT, f"HiddenServiceDir {service}",
                f"HiddenServicePort 80 127.0.0.1:{self.port}",
                f"HiddenServicePort 81 127.0.0.1:{scouted.port}",
            )  # fmt: skip
            self.hostname = (service / "hostname").read_text().strip()
            names = [f"client{number}" for number in range(self.plan.clients)]
            self.clients = [self.network.client(name, PATIENT) for name in names]
            for client in self.clients:
                wait_for("the service to be found", partial(self._is_found, client), PUBLISHED_S)

    def _is_found(self, client: Node) -> bool:
        url = f"http://{self.hostname}:81/bytes/1"
        return not fetch(url, client.proxy, self.folder / "scouted").fault(1)

    def run(self, say: Callable[[str], None]) -> None:
        """Runs all streams, and the kills at the same time."""
        plan, ports = self.plan, self.folder / "ports"
        ports.write_text("\n".join(f"127.0.0.1:{client.socks}" for client in self.clients))
        command = [helper(), "load", "--clients", str(ports), "--seconds", str(plan.seconds)]
        command += ["--seed", str(plan.seed), "--users", str(plan.users)]
        command += ["--pause", str(plan.pause_s), "--lasting", str(plan.lasting_s)]
        command += ["--port", str(self.port), "--to", "127.0.0.1", f"{self.hostname}:80"]
        chance = random.Random(plan.seed)
        killer = Killer(self.victims, chance, plan.kill_s, plan.seconds, self.seen.kills)
        with Background(command) as load:
            self._watch(load, killer, say)
            self.seen.streams = events_of(load, "stream")
        killer.restore()
        self.seen.gone = killer.gone
        self.seen.complaints = self.network.complaints()
        self.seen.ours = [line for relay in self.ours.values() for line in relay.faults()]

    def _watch(self, load: Background, killer: Killer, say: Callable[[str], None]) -> None:
        begun, samples = time.monotonic(), 0
        while load.is_running:
            now = time.monotonic() - begun
            killer.work(now)
            if now >= samples * SAMPLE_S:
                samples += 1
                self.seen.load.append(os.getloadavg()[0])
                kills = len(self.seen.kills)
                say(f"{now:6.0f} s  {kills} kills  load {self.seen.load[-1]:.1f}")
            if now > self.plan.seconds + LAST_STREAMS_S:
                self.seen.gone.append("the last stream did not end")
                return
            time.sleep(0.1)


def kind_of(line: str) -> str:
    """Returns a log line without the parts that vary: names, addresses, numbers."""
    return re.sub(r"\d+", "#", _NAMES.sub("NAME", _HEAD.sub("", line.partition(": ")[2])))


def new_complaints(seen: dict[str, Seen]) -> list[str]:
    """Returns the first line of each complaint of stock tors in the mixed network that the twin
    lacks.
    """
    usual = {kind_of(line) for line in seen["stock"].complaints}
    first: dict[str, str] = {}
    for line in seen["mixed"].complaints:
        if not WHERE_RELAYS_DIE.search(line):
            first.setdefault(kind_of(line), line)
    return [line for kind, line in first.items() if kind not in usual]


def by_chance(mixed: tuple[int, int], stock: tuple[int, int]) -> float:
    """Fisher's exact test, one-sided.

    Returns the probability that at least this number of the mixed network's streams fails if both
    networks have the same failure rate. Each pair is (failed, total).
    """
    (failed, count), (others_failed, others) = mixed, stock
    all_failed, total = failed + others_failed, count + others
    ways = sum(
        math.comb(all_failed, of_ours) * math.comb(total - all_failed, count - of_ours)
        for of_ours in range(failed, min(all_failed, count) + 1)
    )
    return ways / math.comb(total, count)


def judge(seen: dict[str, Seen]) -> list[str]:
    """Returns the violated rules.

    The rules: No stream in either network delivers wrong bytes. The mixed network fails no more
    streams through exits than its twin, except by chance. Streams to the onion service are only
    counted: if its directories have lost its descriptor, all of them fail together. No log of C
    tor in the mixed network has a complaint that the twin lacks. None of our relays panics,
    reports a protocol violation of a neighbour, or exits by itself.
    """
    mixed, stock = (seen[kind] for kind in KINDS)
    faults = [
        f"wrong bytes in the {one.kind} network: {stream}"
        for one in (mixed, stock)
        for stream in one.streams
        if stream["end"] == "wrong bytes"
    ]
    counts = [(len(failed(one.to(False))), len(one.to(False))) for one in (mixed, stock)]
    if (chance := by_chance(*counts)) < CHANCE:
        faults.append(f"{counts[0]} failed by exits, twin {counts[1]}: by chance {chance:.3f}")
    faults += [f"a complaint that the twin has not: {line}" for line in new_complaints(seen)]
    faults += mixed.ours
    return faults + [f"{one.kind}: {line}" for one in (mixed, stock) for line in one.gone]


def report(seen: dict[str, Seen]) -> str:
    """Returns the results as tables."""
    rows = [
        (
            one.kind, named, len(one.to(onion)), len(bad := failed(one.to(onion))),
            _after(bad, one.killed(ours=True)), _after(bad, one.killed(ours=False)),
        )
        for onion, named in PLACES.items()
        for one in seen.values()
    ]  # fmt: skip
    head = ["network", "streams", "all", "failed", "in 5 s of a kill of ours", "of a stock relay"]
    ends = Counter(
        (one.kind, str(bad["end"])) for one in seen.values() for bad in failed(one.streams)
    )
    parts = [
        table(head, rows),
        table(["network", "end", "streams"], [(*end, n) for end, n in sorted(ends.items())]),
    ]
    for one in seen.values():
        ours = len(one.killed(ours=True))
        parts.append(
            f"{one.kind}: {len(one.kills)} kills, {ours} of ours; "
            f"load of the machine {min(one.load):.1f} to {max(one.load):.1f}"
        )
    faults = judge(seen)
    parts.append("\n".join(f"FAULT: {fault}" for fault in faults) or "all holds")
    return "\n\n".join(parts)
