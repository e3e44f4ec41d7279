"""Common parts of the benches of leg sets: our clients, and the relay whose CPU is measured."""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from downloads import at_once
from harness.report import median_and_spread
from harness.seeded import MIB, seeded_bytes
from harness.torours import OurClient
from harness.webfiles import FileServer, post
from tor import Run, cpu_ms


@dataclass(frozen=True)
class Way:
    """A client whose circuits pass through the measured relay, and that relay's process."""

    client: OurClient
    pid: int


def ready(client: OurClient, server: FileServer, folder: Path, legs: int) -> None:
    """Waits until the client has `legs` legs, then opens its windows by unmeasured downloads."""
    client.wait_ready()
    at_once(server, client.proxy, folder, MIB, 1)
    linked = lambda: len(client.events("circuit_linked")) >= legs  # noqa: E731
    client.process.wait_until(f"{legs} legs", linked, 60.0)
    at_once(server, client.proxy, folder, 20 * MIB, 1)


def run(
    name: str, server: FileServer, way: Way, folder: Path, length: int, *, up: bool = False
) -> Run:
    """Returns the relay's CPU and the speed of one transfer; prints both in a line with `name`."""
    before = cpu_ms(way.pid)
    if up:
        seconds = upload(server, way.client.proxy, folder, length)
    else:
        seconds = at_once(server, way.client.proxy, folder, length, 1)
    found = Run((cpu_ms(way.pid) - before) / length * 1e6, length / 1e6 / seconds)
    told = f"{found.cpu_ms_a_mb:.2f} ms/MB, {found.mb_a_second:.1f} MB/s"
    print(f"  {name}: {told}", file=sys.stderr, flush=True)
    return found


def upload(server: FileServer, proxy: str, folder: Path, length: int) -> float:
    """Returns the seconds that an upload took, until the server's response.

    Raises:
        SystemExit: other bytes arrived.
    """
    body = folder / "body"
    if not body.exists():
        body.write_bytes(seeded_bytes(length))
    begin = time.monotonic()
    told = post(proxy, body, server.url(0), 300.0)
    seconds = time.monotonic() - begin
    if told != hashlib.sha256(body.read_bytes()).hexdigest():
        raise SystemExit(f"bench: an upload through {proxy} arrived with other bytes")
    return seconds


def row(runs: list[Run]) -> list[str]:
    """Returns two cells of a table, medians and spreads: CPU in ms for each MB, and MB a second."""
    return [
        median_and_spread([run.cpu_ms_a_mb for run in runs], 2),
        median_and_spread([run.mb_a_second for run in runs]),
    ]
