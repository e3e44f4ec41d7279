"""Downloads for benches; a download that fails ends the bench."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.webfiles import Download, FileServer, fetch


def download(server: FileServer, proxy: str, into: Path, length: int, user: str = "") -> Download:
    """Downloads one file through a SOCKS proxy; each SOCKS `user` has separate circuits.

    Raises:
        SystemExit: if the download fails, or the file has the wrong hash.
    """
    more = ("--proxy-user", f"{user}:x") if user else ()
    got = fetch(server.url(length), proxy, into, 300.0, *more)
    if fault := got.fault(length):
        raise SystemExit(f"bench: a download through {proxy} failed: {fault}")
    return got


def at_once(server: FileServer, proxy: str, folder: Path, length: int, circuits: int) -> float:
    """Returns the seconds of `circuits` simultaneous downloads, each on a circuit of its own.

    The longest time to a first byte is subtracted, because the server generates the bytes before
    it sends. The time to hash the files does not count either.
    """
    begin = time.monotonic()
    users = [f"user{number}" for number in range(circuits)]
    with ThreadPoolExecutor(circuits) as pool:
        got = list(
            pool.map(lambda user: download(server, proxy, folder / user, length, user), users)
        )
    first = max(one.first_byte_s for one in got)
    return max(max(one.ended for one in got) - begin - first, 1e-3)
