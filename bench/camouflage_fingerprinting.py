#!/usr/bin/env python3
"""Page loads through our transport, for `anabranch-lab camouflage`.

Usage: bench/camouflage_fingerprinting.py [--anabranch FILE] [--turns 20] [--sites 9] [--others 3]
       [--together 2] [--seconds N] [--web FOLDER] [--short] FOLDER [KIND...]

In each turn every kind of client (`harness/siteloads.py`) loads each of the sites once, and
`--others` further pages that no other turn loads. A kind loads its pages one after the other in
random order. `--together` kinds run at a time, and all kinds take turns, so that other load of the
machine affects all of them.

The program writes a capture of each kind and turn, `loads.jsonl` with a line for each load, and
`databases` into FOLDER. Existing captures are kept. The line of a failed load has the reason. The
bench needs root, the local web (`make web`) and the peers of `tests/interop/setup --area pt`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/interop"))

from harness import covertness, siteloads
from harness.chromium import Chromium
from harness.covertness import SERVER
from harness.recorder import Recorder
from harness.siteloads import KINDS, Client, Kind, Page, Pages, World
from harness.tools import PeerFailed

SETTLE_S = 0.5
"""Seconds of capture after the browser's load event, and pause before the next load."""
PATIENCE_S = 60.0
MOST_TURNS = 100
SHORT = {"turns": 2, "sites": 3, "others": 1}
FAULTS = (PeerFailed, TimeoutError, OSError, subprocess.TimeoutExpired)


@dataclass(frozen=True)
class Turn:
    """The loads of one kind of client in one turn, made by one browser."""

    kind: Kind
    number: int
    pages: Sequence[tuple[Page, bool]]
    """Pages in the order of their loads, and whether each is one of the sites."""

    @property
    def file(self) -> str:
        """Path of the turn's capture within the folder."""
        return f"{self.kind.name}/{self.number:03}.pcap"


def turns(kinds: Sequence[Kind], pages: Pages, count: int) -> Iterator[Turn]:
    """Yields turn 0 of each kind in random order, then turn 1 of each kind, and so on."""
    each = len(pages.others) // count
    for number in range(count):
        others = pages.others[number * each : (number + 1) * each]
        drawn = [(page, True) for page in pages.visited] + [(page, False) for page in others]
        for kind in random.Random(number).sample(list(kinds), len(kinds)):
            draws = random.Random(f"{number} {kind.name}")
            yield Turn(kind, number, draws.sample(drawn, len(drawn)))


def load(browser: Chromium, page: Page) -> dict[str, object]:
    """Loads a page with an empty cache; returns Unix times of the load, and why it failed."""
    browser.fresh()
    time.sleep(SETTLE_S)
    began, failed = time.time(), ""
    try:
        browser.show(page.address, seconds=PATIENCE_S)
    except (PeerFailed, TimeoutError) as error:
        failed = str(error).splitlines()[0]
    loaded = time.time()
    time.sleep(SETTLE_S)
    times = {"began": began, "loaded": loaded, "ended": time.time()}
    return {"site": page.site, **times, **({"failed": failed} if failed else {})}


def record(client: Client, turn: Turn, recorder: Recorder) -> None:
    """Captures the loads of one turn.

    Raises:
        PeerFailed: if all loads failed, so that the client itself is broken.
    """
    server = f"{SERVER}:{client.port}"
    fixed: dict[str, object] = {"file": turn.file, "kind": turn.kind.name, "server": server}
    loads: list[dict[str, object]] = []
    with (
        client.capture(recorder.place(turn.file)) as dump,
        client.browser() as browser,
    ):
        for page, is_site in turn.pages:
            of_turn = {"turn": turn.number, "monitored": is_site}
            loads.append({**fixed, **of_turn, **load(browser, page)})
        dump.stop()
    if all("failed" in each for each in loads):
        raise PeerFailed(f"no page could be loaded: {loads[0]['failed']}")
    recorder.add(turn.file, [json.dumps(load) + "\n" for load in loads])


def collect(world: World, waiting: Sequence[Turn], together: int, until: float,
            recorder: Recorder) -> None:  # fmt: skip
    """Records turns, `together` at a time, and begins none after `until` (`time.monotonic`).

    Two turns of one kind never run at the same time, because they would share the kind's line.
    """
    locks = {turn.kind.name: threading.Lock() for turn in waiting}

    def one(at: int) -> None:
        turn = waiting[at]
        with locks[turn.kind.name]:
            if time.monotonic() > until:
                return
            try:
                record(world.clients[turn.kind.name], turn, recorder)
            except FAULTS as error:
                recorder.place(turn.file).unlink(missing_ok=True)
                print(f"{turn.file} is not captured: {str(error)[-300:]}", file=sys.stderr)
                return
        print(f"{at + 1} of {len(waiting)}: {turn.file}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(together) as pool:
        list(pool.map(one, range(len(waiting))))


def main() -> None:
    """Makes all captures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    names = {kind.name: kind for kind in KINDS}
    parser.add_argument("kinds", nargs="*", default=list(names), metavar="KIND")
    parser.add_argument("--anabranch", help="program to measure [default: $ANABRANCH]")
    parser.add_argument("--turns", type=int, default=20, help="loads of each site and kind (20)")
    parser.add_argument("--sites", type=int, default=9)
    parser.add_argument("--others", type=int, default=3, help="other pages of each turn (3)")
    parser.add_argument("--together", type=int, default=2, help="kinds that load at once (2)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no turn later")
    parser.add_argument("--web", type=Path, default=covertness.web(), help="local web (make web)")
    parser.add_argument("--short", action="store_true", help="2 turns of 3 sites: ten minutes")
    options = parser.parse_args()
    if options.anabranch:
        os.environ["ANABRANCH"] = options.anabranch
    if options.short:
        vars(options).update(SHORT)
    if options.turns > MOST_TURNS:
        parser.error(f"--turns: at most {MOST_TURNS}")
    if unknown := set(options.kinds) - set(names):
        parser.error(f"no kind: {', '.join(sorted(unknown))}")
    until = time.monotonic() + options.seconds
    web, recorder = options.web.resolve(), Recorder(options.folder.resolve(), "loads.jsonl")
    pages = siteloads.pages_of(web, options.sites, options.others * options.turns)
    databases = recorder.folder / "databases"
    siteloads.make_databases(databases, web, pages)
    kinds = [names[name] for name in options.kinds]
    waiting = [
        turn for turn in turns(kinds, pages, options.turns) if turn.file not in recorder.done
    ]
    if not waiting:
        return
    needed = [kind for kind in kinds if any(turn.kind == kind for turn in waiting)]
    with tempfile.TemporaryDirectory() as kept:
        Path(kept).chmod(0o755)
        with World(Path(kept), web, databases, needed) as world:
            collect(world, waiting, options.together, until, recorder)


if __name__ == "__main__":
    main()
