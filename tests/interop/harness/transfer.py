"""The result of a download, in one form for all clients of the harness."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.net import Host
from harness.seeded import seeded_bytes, seeded_sha256


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """The result of a download."""

    bytes: int
    sha256: str
    seconds: float
    error: str

    def fault(self, length: int) -> str:
        """Returns what is wrong with the download of ``length`` seeded bytes; empty if it is
        right.
        """
        if self.error:
            return f"{self.error} (after {self.bytes} bytes, {self.seconds:.1f} s)"
        if self.bytes != length:
            return f"{self.bytes} bytes instead of {length}"
        return "" if self.sha256 == seeded_sha256(length) else "the hash differs"


@dataclass(frozen=True, kw_only=True)
class Transfer(Fetched):
    """One download. Goodput is measured from the start of the client to the last byte."""

    goodput_mbits: float = 0.0
    first_byte_s: float = 0.0
    longest_gap_s: float = 0.0


def client(host: Host, argv: Sequence[str], seconds: float) -> Transfer:
    """Runs a test client that prints its result as JSON within ``seconds``.

    The client has a timeout of its own. This function's timeout, a little later, stops a client
    that hangs.
    """
    try:
        done = host.run(argv, timeout=seconds + 5)
    except subprocess.TimeoutExpired:
        late, why = seconds + 5, "the client hung"
        return Transfer(bytes=0, sha256="", seconds=late, longest_gap_s=late, error=why)
    if not done.stdout:
        return Transfer(bytes=0, sha256="", seconds=0, error=f"the client failed: {done.stderr}")
    return Transfer(**json.loads(done.stdout))


def site(folder: Path, *lengths: int) -> Path:
    """Makes a document root for file servers: ``bytes/N`` for each length N."""
    (folder / "bytes").mkdir(parents=True, exist_ok=True)
    for length in lengths:
        (folder / "bytes" / str(length)).write_bytes(seeded_bytes(length))
    return folder
