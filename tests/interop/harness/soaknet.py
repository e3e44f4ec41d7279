"""The nodes of ``anabranch up`` as separate processes, so that each can be killed alone."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.closing import Closing
from harness.flat import Sample, sample
from harness.tools import Background, anabranch
from harness.tornet import free_ports
from harness.torours import events_of

RELAYS, EXITS = 7, 2
INTERVAL = 120
# Second bytes of addresses, which no ``anabranch up`` on this machine uses.
FIRST = 61
# Bandwidth that relays advertise, as in ``anabranch up``.
CLAIM = "104857600"
DOWN_S = (1.0, 8.0)
# glibc's defaults suit programs of few threads. With 400 threads, its arenas, thread caches and
# fragmentation grow for an hour at constant use; in a relay the fragmentation does. Hence two
# arenas, no thread caches, and large blocks by ``mmap``, which return to the kernel.
FRUGAL = {
    "GLIBC_TUNABLES": "glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0"
    ":glibc.malloc.mmap_threshold=65536"
}


class Node(Closing):
    """A process that is restarted on the same folder; its output is kept."""

    def __init__(self, name: str, command: Sequence[str], log: Path):
        """Starts the process."""
        self.name = name
        self.command = command
        self.log = log
        #: Samples of each of its lives.
        self.lives: list[list[Sample]] = []
        self.start()

    def start(self) -> None:
        """Starts the process, the first time or again."""
        self.process: Background | None = Background(self.command, FRUGAL)
        self.lives.append([])

    def events(self, kind: str) -> list[dict[str, object]]:
        """Returns the events of one kind in this life."""
        return events_of(self.process, kind) if self.process else []

    def latest(self, kind: str) -> dict[str, object]:
        """Returns the latest event of one kind, searching the output from its end."""
        # The last line may be incomplete.
        whole, _, _ = self.said().rpartition("\n")
        lines = reversed(whole.splitlines())
        last = next((line for line in lines if f'"event":"{kind}"' in line), None)
        found: dict[str, object] = json.loads(last) if last else {}
        return found

    def sample(self, at: float) -> Sample | None:
        """Takes a sample and returns it, if the process lives."""
        taken = sample(self.process.pid, at) if self.process else None
        if taken:
            self.lives[-1].append(taken)
        return taken

    def wait_listening(self) -> None:
        """Waits until it listens on its ports."""
        assert self.process, "it runs"
        self.process.wait_until("ports", lambda: '"listening"' in self.said(), 60)

    def said(self) -> str:
        """Returns its output in this life."""
        return self.process.output() if self.process else ""

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stops it and returns its exit status (negative: the signal that killed it)."""
        assert self.process, "it runs"
        process, self.process = self.process, None
        if process.is_running:
            os.kill(process.pid, how)
        try:
            process.wait(60)
        except TimeoutError:
            self._keep(f"{process.output()}\nsoak: it did not end by itself")
            return process.stop(signal.SIGKILL)
        self._keep(process.output())
        return process.stop()

    def _keep(self, said: str) -> None:
        with self.log.open("a") as file:
            lines = [line for line in said.splitlines() if '"event":"numbers"' not in line]
            file.write("\n".join([*lines, ""]))

    def close(self) -> None:
        """Stops it if it runs."""
        if self.process:
            self.end()


class Network(Closing):
    """The authority and seven relays, two of them exits, each on a /16 of its own."""

    def __init__(self, folder: Path, interval: int = INTERVAL):
        """Starts them, and waits for a consensus with all relays."""
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.authority = self._authority(interval)
        try:
            self.authority.wait_listening()
            self.line = str(self.authority.events("authority")[0]["what"])
            self.relays = [self._relay(number) for number in range(1, RELAYS + 1)]
            self.nodes = [self.authority, *self.relays]
            self._wait_for_all()
        except BaseException:
            self.close()
            raise

    def _authority(self, interval: int) -> Node:
        address = f"127.{FIRST}.0.1"
        orport, dirport = free_ports(2)
        options = ["--address", address, "--listen", f"{address}:{orport}"]
        options += ["--listen-dir", f"{address}:{dirport}", "--interval", str(interval)]
        options += ["--expect", str(RELAYS), "--young", "--allow-private"]
        return self._node("authority", "authority", options)

    def _relay(self, number: int) -> Node:
        address = f"127.{FIRST + number}.0.1"
        (port,) = free_ports(1)
        options = ["--address", address, "--listen", f"{address}:{port}", "--authority", self.line]
        options += ["--rate", CLAIM, "--allow-private", "--grace", "0"]
        # Relays with one and two shards, to test the traffic between shards too.
        options += ["--threads", str(1 + number % 2)]
        if number > RELAYS - EXITS:
            options += ["--exit", "accept *:*"]
        return self._node("relay", f"relay{number}", options)

    def _node(self, role: str, name: str, options: Sequence[str]) -> Node:
        data = self.folder / name
        command = [anabranch(), role, "--json", "--nickname", name, "--data", str(data), *options]
        return Node(name, command, self.folder / f"{name}.log")

    def _wait_for_all(self) -> None:
        def listed() -> bool:
            made = self.authority.events("consensus")
            # The authority does not wait for itself, but lists itself.
            return bool(made) and made[-1]["relays"] == RELAYS + 1

        assert self.authority.process, "it runs"
        self.authority.process.wait_until("a consensus of all relays", listed, 120)

    def close(self) -> None:
        """Stops all nodes."""
        for node in [self.authority, *getattr(self, "relays", [])]:
            node.close()


class Victim(Protocol):
    """A relay that can be killed and restarted."""

    @property
    def name(self) -> str:
        """Name of the relay."""

    def start(self) -> None:
        """Starts the relay with its saved state."""

    def end(self, how: signal.Signals) -> int:
        """Sends a signal and returns the exit status (negative: the signal that killed it)."""


@dataclass
class Killer:
    """Kills one of ``victims`` now and then, and restarts it a few seconds later.

    Times, victims and durations are drawn beforehand, so that a seed identifies a run. A victim
    that is down already at its time is skipped.
    """

    victims: Sequence[Victim]
    chance: random.Random
    mean_s: float
    until: float
    done: list[tuple[float, str]] = field(default_factory=list)
    #: Victims that had exited before they were killed.
    gone: list[str] = field(default_factory=list)
    _back: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next = self._draw(0.0)

    def _draw(self, after: float) -> tuple[float, Victim, float]:
        at = after + self.chance.expovariate(1 / self.mean_s)
        return at, self.chance.choice(self.victims), self.chance.uniform(*DOWN_S)

    def work(self, now: float) -> None:
        """Performs the due actions, ``now`` seconds after the start."""
        for node in self.victims:
            if self._back.get(node.name, now + 1) <= now:
                del self._back[node.name]
                node.start()
        at, victim, down = self._next
        if now < at or at > self.until:
            return
        if victim.name not in self._back:
            status = victim.end(signal.SIGKILL)
            if status != -signal.SIGKILL:
                self.gone.append(f"{victim.name}, status {status}, before {now:.0f} s")
            self._back[victim.name] = now + down
            self.done.append((now, victim.name))
        self._next = self._draw(at)

    def restore(self) -> None:
        """Restarts every victim that is down."""
        for node in self.victims:
            if self._back.pop(node.name, None) is not None:
                node.start()
