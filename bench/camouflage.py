#!/usr/bin/env python3
"""Goodput and overhead of `anabranch pt` over the line of StegoTorus' paper, by profile.

Usage: bench/camouflage.py [--anabranch FILE] [--runs 5] [--delay 42.5ms] [--bytes N]
       [--hostile frozen|killed] [PROFILE...]

Client and server are in namespaces, joined by a link of .7 Mbit/s up and 5.6 Mbit/s down (Weinberg
et al., CCS 2012, section 6). Each run fetches a million random bytes over a new connection of the
transport. `all_s` is the time of a run including the handshake; `kB/s` is the goodput from the
first byte to the last. `down` and `up` are IP bytes on the link for each byte of payload. Values
are medians. `direct` is TCP without a transport. `http-image` hides data in the JPEGs of the
folder that the environment variable PICTURES names, and is left out without it. The bench needs
root.

With `--hostile` each run is followed by a run over a line that disturbs connections as censors do.
`frozen` silently drops all packets of a connection after 15,000 IP bytes down, including
retransmissions. `killed` resets all connections at both ends every 20 s; a run then fetches 20 MB,
so that resets affect it. The columns are then `alone` and `hostile`, goodputs in kB/s (median,
minimum, maximum), and `ratio`, hostile over alone within rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/interop"))

from harness.net import Network
from harness.report import median_and_spread, table
from harness.tools import anabranch

LENGTH = 1_000_000
KILLED_LENGTH = 20_000_000
KILLED_EVERY_S = 20.0
PROFILES = (
    "direct", "nosteg", "nosteg-short", "http-opaque", "http-opaque-short", "http-text",
    "http-text-short", "http-image", "nosteg-rr", "embed",
)  # fmt: skip

HOSTILE_PROFILES = (
    "nosteg", "nosteg-short", "http-opaque", "http-opaque-short", "http-text", "http-text-short",
)  # fmt: skip
FREEZE = """\
table inet hostile {
  chain down {
    type filter hook output priority 0;
    tcp sport 80 ct reply bytes > 15000 drop
  }
  chain up {
    type filter hook input priority 0;
    tcp dport 80 ct reply bytes > 15000 drop
  }
}
"""

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
# Reads a length from a line, sends that many bytes, and closes.
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
    """One download of `length` bytes: seconds from its start, and IP bytes per payload byte."""

    first_s: float
    all_s: float
    up: float
    down: float
    length: int

    @property
    def goodput(self) -> float:
        """Goodput in kB/s from the first byte to the last."""
        return self.length / 1000 / (self.all_s - self.first_s)


@contextmanager
def ends(network: Network, profile: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Runs client and server of a profile; yields address and port for downloads."""
    if profile == "direct":
        yield "10.99.0.1", 9000
        return
    key = folder / f"{profile}.key"
    server = [anabranch(), "pt", "server", "--json", "--listen", "10.99.0.1:80", "--key", str(key)]
    server += ["--to", "127.0.0.1:9000", "--profile", profile]
    if profile.startswith("http"):
        # The server contacts the site only for probes, and nothing probes it here.
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


@contextmanager
def frozen(network: Network) -> Iterator[None]:
    """Drops the packets of each connection after 15,000 IP bytes down, while the block runs."""
    network.server.must(["nft", "-f", "-"], text=FREEZE)
    # The kernel counts the bytes only of connections that begin after this.
    network.server.must(["sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1"])
    try:
        yield
    finally:
        network.server.must(["nft", "delete", "table", "inet", "hostile"])


@contextmanager
def killed(network: Network) -> Iterator[None]:
    """Resets all connections every 20 s, while the block runs."""
    over = threading.Event()
    said: list[str] = []

    def kill() -> None:
        while not over.wait(KILLED_EVERY_S):
            said.append(network.server.run(["ss", "-HK", "-tn", "sport", "=", ":80"]).stdout)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()
    # ss succeeds even if the kernel cannot close sockets (CONFIG_INET_DIAG_DESTROY).
    if not any(said):
        raise SystemExit("no connection was killed")


HOSTILITIES = {"frozen": frozen, "killed": killed}


def measured(network: Network, at: tuple[str, int], length: int) -> Run:
    """Runs one download and returns its times and its traffic on the link."""
    before = network.stats()["line"]
    command = [sys.executable, "-c", FETCH, at[0], str(at[1]), str(length)]
    came, first, whole = network.client.must(command, timeout=600).split()
    if int(came) != length:
        raise SystemExit(f"{came} of {length} bytes came")
    crossed = network.stats()["line"] - before
    up, down = crossed.up_bytes / length, crossed.down_bytes / length
    return Run(float(first), float(whole), up, down, length)


def alone(network: Network, at: tuple[str, int], runs: int, length: int) -> list[str]:
    """Returns the medians of a profile's runs, in the order of the table's columns."""
    done = [measured(network, at, length) for _ in range(runs)]
    names = ("first_s", "all_s", "goodput", "down", "up")
    medians = (statistics.median(getattr(run, name) for run in done) for name in names)
    return [f"{value:.3g}" for value in medians]


def beside_hostile(
    network: Network, at: tuple[str, int], runs: int, length: int, what: str
) -> list[str]:
    """Returns a profile's goodput in kB/s on the plain and the hostile line, and the ratio."""
    quiet, struck = [], []
    for _ in range(runs):
        quiet.append(measured(network, at, length).goodput)
        with HOSTILITIES[what](network):
            struck.append(measured(network, at, length).goodput)
    ratios = [one / other for one, other in zip(struck, quiet, strict=True)]
    return [median_and_spread(quiet), median_and_spread(struck), median_and_spread(ratios, 3)]


def main() -> None:
    """Runs each profile, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="*", metavar="PROFILE")
    parser.add_argument("--anabranch", help="program to measure [default: $ANABRANCH]")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--delay", default="42.5ms", help="one-way delay of the line (42.5ms)")
    parser.add_argument(
        "--hostile", choices=tuple(HOSTILITIES), help="also measure a line like this"
    )
    parser.add_argument("--bytes", type=int, help="bytes of a download")
    options = parser.parse_args()
    if options.hostile and "direct" in options.profiles:
        parser.error("TCP alone does not outlive a hostile line")
    length = options.bytes or (KILLED_LENGTH if options.hostile == "killed" else LENGTH)
    if options.anabranch:
        os.environ["ANABRANCH"] = options.anabranch
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        network = stack.enter_context(Network(LINE.replace("DELAY", options.delay)))
        source = network.server.start([sys.executable, "-c", SOURCE])
        stack.enter_context(source).wait_bound(9000, "tcp")
        for profile in options.profiles or (HOSTILE_PROFILES if options.hostile else PROFILES):
            if profile == "http-image" and "PICTURES" not in os.environ:
                continue
            with ends(network, profile, folder) as at:
                if options.hostile:
                    row = beside_hostile(network, at, options.runs, length, options.hostile)
                else:
                    row = alone(network, at, options.runs, length)
            rows.append([profile, *row])
            print(" ".join(rows[-1]), file=sys.stderr)
    if options.hostile:
        print(table(["profile", "alone", "hostile", "ratio"], rows))
    else:
        print(table(["profile", "first_s", "all_s", "kB/s", "down", "up"], rows))


if __name__ == "__main__":
    main()
