"""A soak: many clients in one process, a network whose nodes are killed, and the rules.

The rules: each stream is complete with the right hash or failed with an error, and none hangs. No
process panics, breaks the protocol or runs out of memory. Memory is flat (:mod:`harness.flat`). At
the end, files and threads are back at their counts at rest.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.flat import Sample, growth, sample
from harness.report import table
from harness.soaknet import Killer, Network, Node
from harness.tools import MissingPeer, anabranch, wait_for

SAMPLE_S = 10.0
# Least share of complete streams; with fewer, the network hardly worked. Kills cut the rest.
LEAST_COMPLETE = 0.8
# Stream ends that no kill excuses: "ended early" passes for complete if a program lacks the length.
NEVER = ("hung", "wrong bytes", "ended early")
# Longest time after a kill until its streams fail; at once on an idle machine.
AFTERMATH_S = 5.0
# Duration of the longest stream, and timeout of a hanging stream.
LAST_STREAMS_S = 600.0
# Time until clients' unused circuits, links without circuits, and directory requests have ended.
REST_S = 300.0


@dataclass(frozen=True)
class Plan:
    """Size, duration and parameters of a soak."""

    clients: int = 200
    seconds: int = 1200
    seed: int = 1
    #: Mean time between two kills.
    kill_s: float = 15.0
    #: Relays that are never killed, to observe their memory.
    spared: Sequence[str] = ("relay1", "relay6")
    #: Mean pause of a client's user between streams.
    pause_s: float = 15.0
    interval: int = 120


@dataclass
class Found:
    """Results of a soak."""

    plan: Plan
    kills: list[tuple[float, str]] = field(default_factory=list)
    streams: list[dict[str, object]] = field(default_factory=list)
    #: Samples by process, a list for each of its lives.
    lives: dict[str, list[list[Sample]]] = field(default_factory=dict)
    numbers: list[dict[str, object]] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    #: Violated rules.
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        """Records a rule and whether it holds."""
        self.notes.append(f"{'ok' if holds else 'FAULT'}: {what}")
        if not holds:
            self.faults.append(what)


def helper() -> str:
    """Returns the path of the program ``soak``, in the folder of the program under test.

    Raises:
        MissingPeer: it has not been built.
    """
    built = Path(anabranch()).with_name("soak")
    if not built.exists():
        raise MissingPeer(f"{built}: cargo build --release -p anabranch-bench --bin soak")
    return str(built)


def soak(plan: Plan, folder: Path, say: Callable[[str], None] = lambda _: None) -> Found:
    """Runs a soak with all state and logs in ``folder``; calls ``say`` with lines of progress."""
    found = Found(plan)
    program = helper()
    with Network(folder / "network", plan.interval) as network:
        own = {node.name: _files_besides_links(node) for node in network.nodes}
        at_first = {node.name: node.process and node.process.pid for node in network.nodes}
        command = [program, "clients", "--clients", str(plan.clients)]
        command += ["--authority", network.line, "--data", str(folder / "clients")]
        with Node("clients", command, folder / "clients.log") as clients:
            _Run(plan, folder, network, clients, found, say).all()
        for node in network.nodes:
            _judge_rest(node, own[node.name], found)
        # A node that was never killed must have run all the time.
        killed = {name for _, name in found.kills}
        for node in network.nodes:
            same = node.process and node.process.pid == at_first[node.name]
            well = (bool(same) or node.name in killed) and node.end() == 0
            found.check(well, f"{node.name} ended when it was told or killed, and not before")
            found.lives[node.name] = node.lives
    _judge_streams(found)
    _judge_memory(found)
    _judge_logs(found, folder)
    return found


@dataclass
class _Run:
    """The clients' side of a soak."""

    plan: Plan
    folder: Path
    network: Network
    clients: Node
    found: Found
    say: Callable[[str], None]

    def all(self) -> None:
        """Runs all steps in order."""
        assert self.clients.process, "it runs"
        ready = lambda: self._number("with_circuit") == self.plan.clients  # noqa: E731
        self.clients.process.wait_until("a circuit of every client", ready, 600)
        bare = self._own("bare")
        each = self._files_of_each(bare["files"])
        self.say(f"{self.plan.clients} clients are ready, with {each} files each besides links")
        ports = self.clients.events("listening")[0]["at"]
        assert isinstance(ports, Sequence), "a list of addresses"
        (self.folder / "ports").write_text("\n".join(str(port) for port in ports))
        self._load()
        self._rest(bare["files"], each)
        self._end(bare)

    def _load(self) -> None:
        plan = self.plan
        command = [helper(), "load", "--clients", str(self.folder / "ports")]
        command += ["--seconds", str(plan.seconds), "--seed", str(plan.seed)]
        command += ["--pause", str(plan.pause_s)]
        victims = [node for node in self.network.relays if node.name not in plan.spared]
        chance = random.Random(plan.seed)
        killer = Killer(victims, chance, plan.kill_s, plan.seconds, self.found.kills)
        with Node("load", command, self.folder / "load.log") as load:
            self._watch(load, killer)
            assert load.process, "nobody ended it"
            self.found.check(load.process.wait(1) == 0, "the programs' process ended well")
            self.found.streams = load.events("stream")
        killer.restore()
        self.found.check(not killer.gone, f"relays that ended of themselves: {killer.gone}")

    def _watch(self, load: Node, killer: Killer) -> None:
        begun, samples = time.monotonic(), 0
        assert load.process, "it runs"
        while load.process.is_running:
            now = time.monotonic() - begun
            killer.work(now)
            if now >= samples * SAMPLE_S:
                samples += 1
                self._sample(now)
            if now > self.plan.seconds + LAST_STREAMS_S:
                self.found.check(False, "the last stream ends in time")
                return
            time.sleep(0.1)

    def _sample(self, now: float) -> None:
        for node in (self.clients, *self.network.nodes):
            node.sample(now)
        numbers = self.clients.latest("numbers")
        self.found.numbers.append({**numbers, "at": now})
        self.found.load.append(os.getloadavg()[0])
        last = self.clients.lives[-1][-1]
        used = int(str(numbers["heap"])) / 1e6
        self.say(
            f"{now:6.0f} s  {last.rss / 1e6:6.1f} MB ({used:.1f} in use)  "
            f"{last.files} files  {last.threads} threads  "
            f"{numbers['streams']} streams  {numbers['circuits']} circuits  "
            f"{len(self.found.kills)} kills  load {self.found.load[-1]:.1f}"
        )

    def _rest(self, bare: int, each: int) -> None:
        """Waits for the counts from before the first stream."""

        def quiet() -> bool:
            seen = self._numbers_and_files()
            wanted = bare + each * self.plan.clients + seen["links"]
            return seen["programs"] == 0 and seen["streams"] == 0 and seen["files"] == wanted

        what = "after the last stream the clients hold the files that they held before the first"
        self.found.check(_in_time(quiet, REST_S), f"{what}: {self._numbers_and_files()}")
        running = self._number("running") == self.plan.clients
        self.found.check(running, "all clients run to the end")
        self.found.check(self._number("violations") == 0, "no relay broke the protocol to a client")
        self.found.lives["clients"] = self.clients.lives

    def _end(self, bare: dict[str, int]) -> None:
        """Stops the clients, but not their process."""
        assert self.clients.process, "it runs"
        os.kill(self.clients.process.pid, signal.SIGTERM)
        ended = lambda: bool(self.clients.events("stopped"))  # noqa: E731
        self.clients.process.wait_until("the end of all clients", ended, 180)
        badly = self.clients.events("clients_ended")[0]["badly"]
        self.found.check(badly == 0, f"every client came to a good end, but for {badly}")
        left = self._own("stopped")
        for what in ("files", "threads"):
            told = f"without clients their process has the {what} that it had before them"
            self.found.check(left[what] == bare[what], f"{told}: {bare[what]}, {left[what]}")

    def _own(self, event: str) -> dict[str, int]:
        told = self.clients.events(event)[0]
        return {what: int(str(told[what])) for what in ("files", "threads")}

    def _number(self, name: str) -> int:
        return int(str(self.clients.latest("numbers").get(name, 0)))

    def _numbers_and_files(self) -> dict[str, int]:
        taken = self.clients.sample(0.0)
        if taken:
            self.clients.lives[-1].pop()
        numbers = {name: self._number(name) for name in ("programs", "streams", "links")}
        return {**numbers, "files": taken.files if taken else 0}

    def _files_of_each(self, bare: int) -> int:
        """Returns the number of open files of a client at rest, besides links; it is the same for
        all.
        """
        last: list[int] = []

        def settled() -> bool:
            seen = self._numbers_and_files()
            last[:] = [*last[-2:], seen["files"] - bare - seen["links"]]
            time.sleep(1)
            return len(last) == 3 and len(set(last)) == 1 and last[0] % self.plan.clients == 0

        wait_for("clients at rest", settled, 120)
        return last[0] // self.plan.clients


def _files_besides_links(node: Node) -> int:
    """Returns the open files of a node without circuits, minus its links; the same in each life."""
    last: list[int] = []

    def settled() -> bool:
        taken, numbers = (
            sample(node.process.pid, 0.0) if node.process else None,
            node.latest("numbers"),
        )
        time.sleep(0.5)
        if not taken or not numbers or numbers["circuits"]:
            return False
        last[:] = [*last[-3:], taken.files - int(str(numbers["links"]))]
        return len(last) == 4 and len(set(last)) == 1

    wait_for(f"{node.name} at rest", settled, REST_S)
    return last[0]


def _judge_rest(node: Node, own: int, found: Found) -> None:
    """Checks that a relay without clients holds only its initial files, and links."""
    try:
        held = _files_besides_links(node)
    except TimeoutError as error:
        found.check(False, str(error))
    else:
        told = f"{node.name} at rest holds no more files than it began with, besides links"
        found.check(held <= own, f"{told}: {own}, {held}")


def _in_time(holds: Callable[[], bool], seconds: float) -> bool:
    try:
        wait_for("", holds, seconds)
    except TimeoutError:
        return False
    return True


def _judge_streams(found: Found) -> None:
    ends = Counter(str(stream["end"]) for stream in found.streams)
    for end in NEVER:
        found.check(ends[end] == 0, f"streams that were {end}: {ends[end]}")
    share = ends["complete"] / max(len(found.streams), 1)
    found.check(share >= LEAST_COMPLETE, f"{share:.1%} of {len(found.streams)} streams complete")
    strays = _strays(found)
    told = "streams that failed with no kill in the seconds before"
    found.check(not strays, f"{told}: {len(strays)} of {len(found.streams) - ends['complete']}")
    proxies = {stream["proxy"] for stream in found.streams if stream["end"] == "complete"}
    # In a short run a client may have requested nothing.
    wanted = {stream["proxy"] for stream in found.streams}
    found.check(proxies == wanted, f"{len(proxies)} of {len(wanted)} clients completed streams")


def _strays(found: Found) -> list[dict[str, object]]:
    """Returns the streams that failed for another reason than a kill."""
    kills = [at for at, _ in found.kills]

    def is_stray(stream: dict[str, object]) -> bool:
        ended = float(str(stream["ended"]))
        return stream["end"] != "complete" and not any(
            -1 <= ended - at <= AFTERMATH_S for at in kills
        )

    return [stream for stream in found.streams if is_stray(stream)]


def _judge_memory(found: Found) -> None:
    killed = {name for _, name in found.kills}
    heap = growth(
        [Sample(float(str(one["at"])), int(str(one["heap"])), 0, 0) for one in found.numbers]
    )
    if heap:
        found.check(heap.is_flat, f"what clients have allocated is flat: {heap}")
    for name, lives in found.lives.items():
        grown = growth(lives[-1]) if name not in killed else None
        if grown:
            found.check(grown.is_flat, f"memory of {name} is flat: {grown}")


def _judge_logs(found: Found, folder: Path) -> None:
    """Checks the logs for panics, protocol violations of neighbours, and memory limits."""
    logs = sorted(folder.rglob("*.log"))
    for word in ("panicked at", '"event":"violation"', '"event":"out_of_memory"', "soak:"):
        lines = [
            f"{log.stem}: {line}"
            for log in logs
            for line in log.read_text().splitlines()
            if word in line
        ]
        found.check(not lines, f"none of {len(logs)} logs says '{word}'" + _some(lines))


def _some(lines: Sequence[str]) -> str:
    return f": {len(lines)} times, first {lines[0]}" if lines else ""


def report(found: Found) -> str:
    """Returns the results as tables."""
    by_end = Counter((str(one["end"]), bool(one["opened"])) for one in found.streams)
    rows = [(end, opened, count) for (end, opened), count in sorted(by_end.items())]
    parts = [table(["end of stream", "was open", "streams"], rows)]
    clients = found.lives["clients"][-1]
    every = max(1, len(clients) // 20)
    heap = [int(str(one["heap"])) / 1e6 for one in found.numbers]
    course = [
        (f"{one.at:.0f}", f"{one.rss / 1e6:.1f}", f"{used:.1f}", one.files, one.threads)
        for one, used in list(zip(clients, heap, strict=True))[::every]
    ]
    parts.append(table(["second", "clients' MB", "in use", "files", "threads"], course))
    lives = [
        (
            name, len(all_lives), f"{max(one.rss for one in flat) / 1e6:.1f}",
            max(one.files for one in flat), max(one.threads for one in flat),
        )
        for name, all_lives in found.lives.items()
        if (flat := [one for life in all_lives for one in life])
    ]  # fmt: skip
    parts.append(table(["process", "lives", "most MB", "most files", "most threads"], lives))
    came = sum(int(str(one["came"])) for one in found.streams)
    kills = Counter(name for _, name in found.kills)
    parts.append(
        f"{len(found.streams)} streams, {came / 1e6:.0f} MB came; {len(found.kills)} kills "
        f"({', '.join(f'{name} {count}' for name, count in sorted(kills.items()))}); "
        f"load of the machine {min(found.load):.1f} to {max(found.load):.1f}"
    )
    troubles = found.numbers[-1].get("troubles", {}) if found.numbers else {}
    parts.append(f"troubles that clients told: {json.dumps(troubles, indent=1)}")
    return "\n\n".join([*parts, "\n".join(found.notes)])
