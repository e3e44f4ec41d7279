#!/usr/bin/env python3
"""Goodput and bytes of `anabranch pt` over the line of StegoTorus' paper, profile by profile.

Usage: bench/camouflage.py [--anabranch FILE] [--runs 5] [--delay 42.5ms] [PROFILE...]

Client and server stand in namespaces, joined by a link of .7 Mbit/s up and 5.6 Mbit/s down
(Weinberg et al., CCS 2012, section 6). Each run fetches 1,000,000 random bytes by a new
connection of the program, whose link is not up before: `all_s` counts its handshake, `goodput`
the time from the first byte to the last. Bytes are those of IP packets that crossed the link,
both directions apart, for each byte of payload. Medians. `direct` is TCP without us. `http-image`
hides in the JPEGs of the folder that PICTURES names, and is left out without it. It needs root.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/interop"))

from harness.net import Network
from harness.report import table
from harness.tools import anabranch

LENGTH = 1_000_000
PROFILES = (
    "direct", "nosteg", "nosteg-short", "http-opaque", "http-opaque-short", "http-text",
    "http-text-short", "http-image", "nosteg-rr", "embed",
)  # fmt: skip

LINE = """\
[[host]]
name = "client"
[[host]]
name = "server"
address = ["10.99.0.1/32"]
[[link]]
name = "line"
ends = [
  { host = "client", address = ["10.77.0.2/24"], routes = ["10.99.0.1/32"] },
  { host = "server", routes = ["10.77.0.0/24"], prefsrc = ["10.99.0.1"] },
]
rate = "700kbit"
rate_back = "5600kbit"
delay = "DELAY"
queue = "100kB"
"""
# Sends as many bytes as it is asked for in a line, and hangs up.
SOURCE = """\
import os, socket, threading
listener = socket.create_server(("0.0.0.0", 9000), backlog=64)
def serve(near):
    with near:
        near.sendall(os.urandom(int(near.makefile().readline())))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
FETCH = """\
import socket, sys, time
host, port, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
began = time.monotonic()
near = socket.create_connection((host, port))
near.sendall(f"{length}\\n".encode())
first, came = 0.0, 0
while piece := near.recv(65536):
    first = first or time.monotonic()
    came += len(piece)
ended = time.monotonic()
print(came, first - began, ended - began)
"""


@dataclass(frozen=True)
class Run:
    """One download."""

    first_s: float
    all_s: float
    up: float
    down: float

    @property
    def goodput(self) -> float:
        """Kilobytes a second from the first byte to the last."""
        return LENGTH / 1000 / (self.all_s - self.first_s)


@contextmanager
def ends(network: Network, profile: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Both ends of a profile; where the client's programs go."""
    if profile == "direct":
        yield "10.99.0.1", 9000
        return
    key = folder / f"{profile}.key"
    server = [anabranch(), "pt", "server", "--json", "--listen", "10.99.0.1:80", "--key", str(key)]
    server += ["--to", "127.0.0.1:9000", "--profile", profile]
    if profile.startswith("http"):
        # Nobody visits: no site is there.
        server += ["--site", "127.0.0.1:9"]
    if profile == "http-image":
        server += ["--pictures", os.environ["PICTURES"]]
    with network.server.start(server) as far:
        far.wait_until("the bridge", lambda: '"bridge"' in far.output())
        line = far.output().split('"bridge":"')[1].split('"')[0]
        client = [anabranch(), "pt", "client", "--listen", "127.0.0.1:7000", "--bridge", line]
        with network.client.start(client) as near:
            near.wait_bound(7000, "tcp")
            yield "127.0.0.1", 7000


def measured(network: Network, at: tuple[str, int]) -> Run:
    """One download, and what crossed the link for it."""
    before = network.stats()["line"]
    command = [sys.executable, "-c", FETCH, at[0], str(at[1]), str(LENGTH)]
    came, first, whole = network.client.must(command, timeout=300).split()
    if int(came) != LENGTH:
        raise SystemExit(f"{came} of {LENGTH} bytes came")
    crossed = network.stats()["line"] - before
    up, down = crossed.up_bytes / LENGTH, crossed.down_bytes / LENGTH
    return Run(float(first), float(whole), up, down)


def main() -> None:
    """Runs each profile, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="*", default=PROFILES, metavar="PROFILE")
    parser.add_argument("--anabranch", help="the program [default: ANABRANCH]")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--delay", default="42.5ms", help="one way")
    options = parser.parse_args()
    if options.anabranch:
        os.environ["ANABRANCH"] = options.anabranch
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        network = stack.enter_context(Network(LINE.replace("DELAY", options.delay)))
        source = network.server.start([sys.executable, "-c", SOURCE])
        stack.enter_context(source).wait_bound(9000, "tcp")
        for profile in options.profiles:
            if profile == "http-image" and "PICTURES" not in os.environ:
                continue
            with ends(network, profile, folder) as at:
                runs = [measured(network, at) for _ in range(options.runs)]
            median = {
                name: statistics.median(getattr(run, name) for run in runs)
                for name in ("first_s", "all_s", "goodput", "down", "up")
            }
            rows.append([profile, *(f"{value:.3g}" for value in median.values())])
            print(" ".join(rows[-1]), file=sys.stderr)
    print(table(["profile", "first_s", "all_s", "kB/s", "down", "up"], rows))


if __name__ == "__main__":
    main()
