"""The result of a download, in the one form that all clients of the harness give."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.net import Host
from harness.seeded import seeded_bytes, seeded_sha256


@dataclass(frozen=True)
class Transfer:
    """One download. Goodput counts from the start of the client to the last byte."""

    bytes: int
    sha256: str
    seconds: float
    goodput_mbits: float
    longest_gap_s: float
    error: str

    def fault(self, length: int) -> str:
        """What is wrong with this download of ``length`` seeded bytes; empty if nothing is."""
        if self.error:
            return f"{self.error} (after {self.bytes} bytes, {self.seconds:.1f} s)"
        if self.bytes != length:
            return f"{self.bytes} bytes instead of {length}"
        return "" if self.sha256 == seeded_sha256(length) else "the hash differs"


def client(host: Host, argv: Sequence[str], seconds: float) -> Transfer:
    """Runs a test client that prints its result as JSON; it has ``seconds`` to do so.

    The client has a time limit of its own; ours, a little later, catches a client that hangs.
    """
    try:
        done = host.run(argv, timeout=seconds + 5)
    except subprocess.TimeoutExpired:
        return Transfer(0, "", seconds + 5, 0.0, seconds + 5, "the client hung")
    if not done.stdout:
        return Transfer(0, "", 0.0, 0.0, 0.0, f"the client failed: {done.stderr}")
    return Transfer(**json.loads(done.stdout))


def site(folder: Path, *lengths: int) -> Path:
    """A document root for servers that serve files: ``bytes/N`` for each length N."""
    (folder / "bytes").mkdir(parents=True, exist_ok=True)
    for length in lengths:
        (folder / "bytes" / str(length)).write_bytes(seeded_bytes(length))
    return folder
