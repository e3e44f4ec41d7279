#!/usr/bin/env python3
"""Captures of a browser and of pluggable transports on one line, for `anabranch-lab covertness`.

Usage: bench/covertness.py [--anabranch FILE] [--sites 12] [--sessions 4] [--together 4]
       [--firsts 10000] FOLDER [CLASS...]

A session visits the three pages of a site and pauses after each. In the classes `real-a` and
`real-b`, which have the same distribution, Chromium loads the pages from nginx without a cache. In
each other class, a single TLS link through a transport carries the bytes of all objects, as a link
of tor does. Each session has a new client in a namespace of its own, so that sessions share no
connections, kernel state or browser. The client's line has .7 Mbit/s up, 5.6 Mbit/s down and a
round trip of 85 ms (Weinberg et al., CCS 2012, section 6). All classes take turns, so that other
load of the machine affects all of them. Finally each transport makes `--firsts` connections
without such a line, of which only the client's first packets are kept.

The program writes a capture of each session, and their list `manifest.jsonl`, into FOLDER. Existing
captures are kept. A session that fails is reported and left out. The bench needs root, the local
web (`make web`) and the peers of `tests/interop/setup --area pt`.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/interop"))

from harness import covertness
from harness.capture import Tcpdump
from harness.chromium import Chromium
from harness.covertness import CLASSES, REAL, SNAP, Entry, Site, World
from harness.net import Host
from harness.recorder import Recorder
from harness.tools import PeerFailed

AFTER_S = 0.3
"""Seconds that a capture continues after its session."""
WAY_UP = 1.5
"""Seconds that connections have to close before their client is stopped."""
MOST_TURNS = 100
"""Maximum of `--sessions`. The number of a session is site * MOST_TURNS + turn."""
CLIENTS = 60
"""Number of clients in a network; each client makes one session."""


@dataclass(frozen=True)
class Visit:
    """A session to be captured."""

    name: str
    site: Site
    number: int

    @property
    def file(self) -> str:
        """Path of the session's capture within the folder."""
        return f"{self.name}/{self.number:04}.pcap"

    def thinks(self) -> list[float]:
        """Returns the pause in seconds after each page: median 2, from .5 to 6.

        All classes have the same distribution, but never the same pauses.
        """
        draws = random.Random(f"{self.name} {self.number}")
        return [min(max(draws.lognormvariate(math.log(2), 0.6), 0.5), 6.0)
                for _ in self.site.addresses]  # fmt: skip


def visits(sites: Sequence[Site], sessions: int, classes: Sequence[str]) -> Iterator[Visit]:
    """Yields all sessions: for each site every class once, in random order, then the next site.

    The sessions of all classes for one site and turn share one number, which does not depend on
    the classes of this run.
    """
    draws = random.Random(1)
    for turn in range(sessions):
        for at, site in enumerate(sites):
            for name in draws.sample(list(classes), len(classes)):
                if site.objects:
                    yield Visit(name, site, at * MOST_TURNS + turn)


def capture(world: World, host: Host, interface: str, visit: Visit, recorder: Recorder) -> None:
    """Captures one session of a client with no other traffic."""
    port = world.ports[visit.name]
    file, thinks = recorder.place(visit.file), visit.thinks()
    with Tcpdump(host, interface, file, f"tcp port {port}", SNAP) as dump:
        if visit.name in REAL:
            with Chromium(host) as browser:
                covertness.browse(browser, visit.site, lambda at: time.sleep(thinks[at]))
                covertness.settled(host, port, WAY_UP)
        else:
            with world.dial(visit.name, host) as way:
                covertness.load(host, way, visit.site, thinks)
                covertness.settled(host, port, WAY_UP)
        time.sleep(AFTER_S)
        dump.stop()
    entry = Entry(visit.file, visit.name, port, visit.site.name, visit.number)
    recorder.add(entry.file, [entry.line()])


def batch(world: World, visits_: Sequence[Visit], together: int, recorder: Recorder) -> None:
    """Runs each session with a client and a line of its own, `together` at a time."""

    def one(number: int) -> None:
        visit = visits_[number]
        try:
            capture(world, world.clients[number], f"l{number}", visit, recorder)
        except (PeerFailed, TimeoutError, OSError, subprocess.TimeoutExpired) as error:
            recorder.place(visit.file).unlink(missing_ok=True)
            print(f"{visit.file} is not captured: {str(error)[-300:]}", file=sys.stderr)

    with ThreadPoolExecutor(together) as pool:
        list(pool.map(one, range(len(visits_))))


def firsts(world: World, count: int, recorder: Recorder) -> None:
    """Captures the first packets of each transport that has no such capture yet."""
    for name in world.classes:
        file = f"{name}/firsts.pcap"
        if name in REAL or file in recorder.done:
            continue
        links = math.ceil(count / covertness.connections(name))
        try:
            covertness.firsts(world, name, recorder.place(file), links)
        except (PeerFailed, TimeoutError, OSError, subprocess.TimeoutExpired) as error:
            recorder.place(file).unlink(missing_ok=True)
            print(f"{file} is not captured: {str(error)[-2000:]}", file=sys.stderr)
            print(world.errors()[-2000:], file=sys.stderr)
            continue
        entry = Entry(file, name, world.ports[name], purpose="detectors")
        recorder.add(entry.file, [entry.line()])
        print(f"{name}: first packets of {links} links", file=sys.stderr)


@dataclass(frozen=True)
class Web:
    """The web that nginx serves, and the databases of covers made from it."""

    folder: Path
    covers: Path

    @contextmanager
    def world(self, clients: int, classes: Sequence[str]) -> Iterator[World]:
        """Runs a server of this web, and clients."""
        with tempfile.TemporaryDirectory() as kept:
            Path(kept).chmod(0o755)
            with World(Path(kept), self.folder, self.covers, clients, classes) as world:
                yield world


def main() -> None:
    """Makes all captures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("classes", nargs="*", default=CLASSES, metavar="CLASS")
    parser.add_argument("--anabranch", help="program to measure [default: $ANABRANCH]")
    parser.add_argument("--sites", type=int, default=12)
    parser.add_argument(
        "--sessions", type=int, default=4, help="sessions of each site and class (4)"
    )
    parser.add_argument("--together", type=int, default=4, help="sessions that run at once (4)")
    parser.add_argument(
        "--firsts", type=int, default=10_000, help="links whose first packets are captured"
    )
    options = parser.parse_args()
    if options.anabranch:
        os.environ["ANABRANCH"] = options.anabranch
    if options.sessions > MOST_TURNS:
        parser.error(f"--sessions: at most {MOST_TURNS}")
    if unknown := set(options.classes) - set(CLASSES):
        parser.error(f"no class: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as covers:
        web = Web(covertness.web(), Path(covers) / "covers")
        covertness.crawl(web.folder, web.covers)
        record(web, options)


def record(web: Web, options: argparse.Namespace) -> None:
    """Makes the missing captures of the classes in `options`."""
    recorder = Recorder(options.folder, "manifest.jsonl")
    found: list[Site] = []
    if options.sessions:
        with web.world(1, REAL) as world, Chromium(world.clients[0]) as browser:
            found = covertness.surveyed(browser, covertness.sites_of(web.folder, options.sites))
    waiting = [visit for visit in visits(found, options.sessions, options.classes)
               if visit.file not in recorder.done]  # fmt: skip
    print(
        f"{len(waiting)} sessions of {sum(map(bool, (site.objects for site in found)))} sites",
        file=sys.stderr,
    )
    for start in range(0, len(waiting), CLIENTS):
        some = waiting[start : start + CLIENTS]
        with web.world(len(some), options.classes) as world:
            batch(world, some, options.together, recorder)
        print(f"{start + len(some)} sessions of {len(waiting)}", file=sys.stderr)
    if options.firsts:
        with web.world(1, options.classes) as world:
            firsts(world, options.firsts, recorder)


if __name__ == "__main__":
    main()
