#!/usr/bin/env python3
"""Captures of a browser and of pluggable transports on one line, for `anabranch-lab covertness`.

Usage: bench/covertness.py [--anabranch FILE] [--sites 12] [--sessions 4] [--clients 4]
       [--firsts 10000] FOLDER [CLASS...]

A server and so many clients stand in namespaces, each client behind a line of .7 Mbit/s up and 5.6
Mbit/s down with 85 ms there and back (Weinberg et al., CCS 2012, section 6). A session visits the
three pages of a site, with pauses after each: in Chromium, from nginx, without cache (`real-a` and
`real-b`, made alike), or by a transport, as many bytes of each object in one link of TLS, as tor
has it. All classes take turns, so that what else the machine does meets all of them. Then each
transport makes so many connections without a line, of which the client's first packets are kept.

FOLDER gets a capture for each session and `manifest.jsonl`; what stands there already is not made
again. A session that fails is told and left out. It needs root, the local web (`make web`) and the
peers of `tests/interop/setup --area pt`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/interop"))

from harness import covertness
from harness.capture import Tcpdump
from harness.chromium import Chromium
from harness.covertness import CLASSES, REAL, SNAP, Entry, Site, World
from harness.net import Host
from harness.pages import Way
from harness.tools import PeerFailed

AFTER_S = 0.3
"""A capture goes on so long after its session."""
WAY_UP = 1.5
"""Connections are given so many seconds to end before the next session of a client."""


@dataclass(frozen=True)
class Visit:
    """A session to be captured."""

    name: str
    site: Site
    number: int

    @property
    def file(self) -> str:
        """Its capture, within the folder."""
        return f"{self.name}/{self.number:04}.pcap"

    def thinks(self) -> list[float]:
        """Seconds of pause after each page: 2 in the middle, .5 to 6; each class draws the same
        distribution, never the same pauses.
        """
        draws = random.Random(f"{self.name} {self.number}")
        return [min(max(draws.lognormvariate(math.log(2), 0.6), 0.5), 6.0)
                for _ in self.site.addresses]  # fmt: skip


@dataclass
class Recorder:
    """A folder of captures and its manifest."""

    folder: Path
    done: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.manifest = self.folder / "manifest.jsonl"
        if self.manifest.exists():
            lines = self.manifest.read_text().splitlines()
            self.done = {json.loads(line)["file"] for line in lines}

    def place(self, file: str) -> Path:
        """Where a capture goes."""
        place = self.folder / file
        place.parent.mkdir(exist_ok=True)
        return place

    def add(self, entry: Entry) -> None:
        """A capture is whole."""
        with self.lock:
            self.done.add(entry.file)
            with self.manifest.open("a") as manifest:
                manifest.write(entry.line())


def visits(sites: Sequence[Site], sessions: int, classes: Sequence[str]) -> Iterator[Visit]:
    """All sessions; of each site every class once, in a drawn order, then the next."""
    draws = random.Random(1)
    for turn in range(sessions):
        for at, site in enumerate(sites):
            for name in draws.sample(list(classes), len(classes)):
                yield Visit(name, site, turn * len(sites) + at)


class Client:
    """A client of the world, which makes sessions one after the other."""

    def __init__(self, world: World, number: int, recorder: Recorder):
        """Its browser and the transports' clients run until the world ends."""
        self.world, self.host = world, world.clients[number]
        self.interface, self.recorder = f"l{number}", recorder
        self.browser = Chromium(self.host)
        self.ways: dict[str, Way] = {}

    def work(self, waiting: queue.SimpleQueue[Visit]) -> None:
        """Captures sessions until none waits."""
        with self.browser:
            while True:
                try:
                    visit = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    self.capture(visit)
                except (PeerFailed, TimeoutError, OSError) as error:
                    self.recorder.place(visit.file).unlink(missing_ok=True)
                    print(f"{visit.file} is left out: {str(error)[-300:]}", file=sys.stderr)

    def capture(self, visit: Visit) -> None:
        """One session."""
        if visit.name not in REAL and visit.name not in self.ways:
            self.ways[visit.name] = self.world.way(visit.name, self.host)
        port = self.world.ports[visit.name]
        file, wanted = self.recorder.place(visit.file), f"tcp port {port}"
        with Tcpdump(self.host, self.interface, file, wanted, SNAP) as dump:
            self.play(visit)
            covertness.settled(self.host, port, WAY_UP)
            time.sleep(AFTER_S)
            dump.stop()
        self.recorder.add(Entry(visit.file, visit.name, port, visit.site.name, visit.number))

    def play(self, visit: Visit) -> None:
        """What makes the packets."""
        thinks = visit.thinks()
        if visit.name in REAL:
            covertness.browse(self.browser, visit.site, lambda at: time.sleep(thinks[at]))
        else:
            covertness.load(self.host, self.ways[visit.name], visit.site, thinks)


def sessions(world: World, sites: list[Site], count: int, recorder: Recorder) -> None:
    """Captures all sessions that are missing."""
    waiting: queue.SimpleQueue[Visit] = queue.SimpleQueue()
    for visit in visits(sites, count, world.classes):
        if visit.file not in recorder.done:
            waiting.put(visit)
    print(f"{waiting.qsize()} sessions of {len(sites)} sites", file=sys.stderr)
    clients = [Client(world, number, recorder) for number in range(len(world.clients))]
    threads = [threading.Thread(target=each.work, args=(waiting,)) for each in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def firsts(world: World, count: int, recorder: Recorder) -> None:
    """Captures the first packets that are missing, of every transport."""
    for name in world.classes:
        file = f"{name}/firsts.pcap"
        if name in REAL or file in recorder.done:
            continue
        links = math.ceil(count / covertness.connections(name))
        covertness.firsts(world, name, recorder.place(file), links)
        recorder.add(Entry(file, name, world.ports[name], purpose="detectors"))
        print(f"{name}: first packets of {links} links", file=sys.stderr)


def survey(host: Host, web: Path, count: int) -> list[Site]:
    """The sites, and what their pages load."""
    with Chromium(host) as browser:
        return covertness.surveyed(browser, covertness.sites_of(web, count))


def main() -> None:
    """Makes all captures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("classes", nargs="*", default=CLASSES, metavar="CLASS")
    parser.add_argument("--anabranch", help="the program [default: ANABRANCH]")
    parser.add_argument("--sites", type=int, default=12)
    parser.add_argument("--sessions", type=int, default=4, help="of each site and class")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--firsts", type=int, default=10_000, help="first packets of each")
    options = parser.parse_args()
    if options.anabranch:
        os.environ["ANABRANCH"] = options.anabranch
    if unknown := set(options.classes) - set(CLASSES):
        parser.error(f"no class: {', '.join(sorted(unknown))}")
    recorder, web = Recorder(options.folder), covertness.web()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with World(Path(folder), web, options.clients, options.classes) as world:
            if options.sessions:
                found = survey(world.clients[0], web, options.sites)
                sessions(world, found, options.sessions, recorder)
            if options.firsts:
                firsts(world, options.firsts, recorder)


if __name__ == "__main__":
    main()
