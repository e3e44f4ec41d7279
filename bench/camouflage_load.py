#!/usr/bin/env python3
"""CPU cost of `anabranch pt` without a limiting line, and memory of its idle links.

Usage: bench/camouflage_load.py [--anabranch FILE] [--runs 5] [--megabytes 200] [--links 1000]
       [--short 500] [--seconds 60] [PROFILE...]

All traffic is on loopback. Each run fetches `--megabytes` of random bytes over a new connection;
`MB/s` is wall-clock throughput, with source and sink on the same cores. `MB/CPU s` is the payload
per second of CPU (user and system) of the client's process, and of the server's: the throughput
that one core per side could sustain. `direct` is the same fetch without a transport. Values are
medians of the runs, with minimum and maximum.

Then a client of the first profile opens `--links` connections, receives a byte on each, and keeps
them open. `client MB` and `server MB` are the growth of each process's resident memory.

With `--short RATE` a client then opens RATE connections a second for `--seconds`. Each fetches 100
bytes and closes. The last table has the growth of the server's resident memory every ten seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/interop"))

from harness.report import table
from harness.tools import anabranch

PROFILES = ("nosteg", "http-opaque", "http-text")
PATIENCE = 60.0
# Reads a length from a line, sends that many bytes, and closes. With `hold` after the length, it
# keeps the connection open.
SOURCE = """\
import os, socket, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
print(listener.getsockname()[1], flush=True)
block = os.urandom(1 << 20)
def serve(near):
    with near:
        words = near.makefile().readline().split()
        left = int(words[0])
        while left > 0:
            near.sendall(block[:left])
            left -= len(block)
        if words[1:]:
            near.recv(1)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


class Process:
    """A process of ours, with its CPU time and memory as the kernel reports them."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        with log.open("w") as output:
            self.child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def cpu(self) -> float:
        """Returns the CPU time so far, user and system, in seconds."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> int:
        """Returns the resident memory in bytes."""
        fields = Path(f"/proc/{self.child.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait_for(self, text: str) -> str:
        """Waits until `text` is in the output, and returns the output."""
        said = ""
        for _ in range(int(PATIENCE * 20)):
            said = self.log.read_text()
            if text in said:
                return said
            time.sleep(0.05)
        raise SystemExit(f"no {text!r} in what it says:\n{said}")

    def end(self) -> None:
        """Kills the process."""
        self.child.kill()
        self.child.wait()


@contextmanager
def started(command: list[str], log: Path) -> Iterator[Process]:
    """Runs a process during the block."""
    process = Process(command, log)
    try:
        yield process
    finally:
        process.end()


def free_port() -> int:
    """Returns a free TCP port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def ends(profile: str, source: int, folder: Path) -> Iterator[tuple[Process, Process, int]]:
    """Runs client and server of a profile; yields both and the port that the client listens on."""
    public, local = free_port(), free_port()
    server = [anabranch(), "pt", "server", "--json", "--listen", f"127.0.0.1:{public}"]
    server += ["--key", str(folder / f"{profile}.key"), "--to", f"127.0.0.1:{source}"]
    server += ["--profile", profile]
    if profile.startswith("http"):
        # Nothing probes the server, so it never contacts the site.
        server += ["--site", "127.0.0.1:9"]
    with started(server, folder / "server.log") as far:
        line = far.wait_for('"bridge":"').split('"bridge":"')[1].split('"')[0]
        client = [anabranch(), "pt", "client", "--json", "--listen", f"127.0.0.1:{local}"]
        with started([*client, "--bridge", line], folder / "client.log") as near:
            until(lambda: listens(local))
            yield near, far, local


def listens(port: int) -> bool:
    """Returns whether a program listens on `port`."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(holds: Callable[[], bool]) -> None:
    """Waits until `holds()` is true."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("it takes too long")
        time.sleep(0.05)


def fetch(port: int, length: int) -> float:
    """Returns the seconds that a download of `length` bytes took."""
    began, came = time.monotonic(), 0
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as near:
        near.sendall(f"{length}\n".encode())
        while piece := near.recv(1 << 20):
            came += len(piece)
    if came != length:
        raise SystemExit(f"{came} of {length} bytes came")
    return time.monotonic() - began


def speed(profile: str, source: int, folder: Path, runs: int, megabytes: int) -> list[str]:
    """Returns a row of the table of speeds, in MB/s and MB for each second of CPU."""
    length = megabytes * 1_000_000
    if profile == "direct":
        return [profile, spread([megabytes / fetch(source, length) for _ in range(runs)]), "", ""]
    clock, client, server = [], [], []
    with ends(profile, source, folder) as (near, far, port):
        for _ in range(runs):
            before = near.cpu(), far.cpu()
            clock.append(megabytes / fetch(port, length))
            client.append(megabytes / (near.cpu() - before[0]))
            server.append(megabytes / (far.cpu() - before[1]))
    return [profile, spread(clock), spread(client), spread(server)]


def spread(values: list[float]) -> str:
    """Returns median, minimum and maximum."""
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def idle(profile: str, source: int, folder: Path, links: int) -> list[str]:
    """Returns the row of the table of idle links: growth of both processes' memory in MB."""
    with ends(profile, source, folder) as (near, far, port), ExitStack() as held:
        fetch(port, 1)
        before = near.resident(), far.resident()
        for _ in range(links):
            link = held.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            link.sendall(b"1 hold\n")
            if len(link.recv(1)) != 1:
                raise SystemExit("a link has ended")
        grown = [(now.resident() - was) / 1e6
                 for now, was in zip((near, far), before, strict=True)]  # fmt: skip
    return [profile, str(links), *(f"{each:.1f}" for each in grown)]


def short(profile: str, source: int, folder: Path, rate: int, seconds: int) -> list[list[str]]:
    """Returns the rows of the table of short links, one for each ten seconds."""
    rows, done, every = [], 0, 10
    with ends(profile, source, folder) as (_, far, port), ThreadPoolExecutor(64) as pool:
        fetch(port, 1)
        before, began = far.resident(), time.monotonic()
        waiting: list[Future[float]] = []
        for number in range(rate * seconds):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            waiting.append(pool.submit(fetch, port, 100))
            if (number + 1) % (rate * every) == 0:
                done += sum(each.result() > 0 for each in waiting)
                waiting.clear()
                passed = time.monotonic() - began
                grown = (far.resident() - before) / 1e6
                rows.append([profile, f"{passed:.0f}", f"{done / passed:.0f}", f"{grown:.1f}"])
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="*", default=PROFILES, metavar="PROFILE")
    parser.add_argument("--anabranch", help="program to measure [default: $ANABRANCH]")
    parser.add_argument("--runs", type=int, default=5, help="fetches; 0: none (5)")
    parser.add_argument("--megabytes", type=int, default=200, help="MB of each run (200)")
    parser.add_argument("--links", type=int, default=1000, help="idle links; 0: none")
    parser.add_argument("--short", type=int, default=0, help="short links a second; 0: none")
    parser.add_argument("--seconds", type=int, default=60, help="length of that load (60)")
    options = parser.parse_args()
    if options.anabranch:
        os.environ["ANABRANCH"] = options.anabranch
    # Each link has several connections, and the programs of both ends inherit this process's
    # limits.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sending = started([sys.executable, "-c", SOURCE], folder / "source.log")
        source = int(stack.enter_context(sending).wait_for("\n"))
        rows = []
        for profile in ("direct", *options.profiles) if options.runs else ():
            rows.append(speed(profile, source, folder, options.runs, options.megabytes))
            print(" ".join(rows[-1]), file=sys.stderr)
        if rows:
            print(table(["profile", "MB/s", "client MB/CPU s", "server MB/CPU s"], rows))
        if options.links:
            rows = [idle(options.profiles[0], source, folder, options.links)]
            print(table(["profile", "links", "client MB", "server MB"], rows))
        if options.short:
            load = (source, folder, options.short, options.seconds)
            rows = short(options.profiles[0], *load)
            print(table(["profile", "after s", "links/s", "server MB"], rows))


if __name__ == "__main__":
    main()
