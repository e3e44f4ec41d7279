"""The long-term keys of stock authorities: made once, kept, and copied into each private network.

An authority's identity key takes seconds to make. It certifies only throw-away networks on
loopback, so that all of them can share it.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import time
from pathlib import Path

from harness.tools import CACHE, tool

KEPT = CACHE / "peers/tor-authority-keys"
FRESH_SECONDS = 90 * 24 * 3600
# The certificate is valid for a year. It names no address: tors would connect there instead of to
# the address in the network's lines.
MONTHS, PASSPHRASE = "12", "of a throw-away network"
FILES = ("authority_certificate", "authority_identity_key", "authority_signing_key")


def authority_keys(number: int, folder: Path) -> str:
    """Puts the keys of authority ``number`` into ``folder``; returns its v3 identity in hex."""
    kept = KEPT / str(number)
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _fresh(kept):
            _make(kept)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(kept / name, folder / name)
    certificate = (folder / FILES[0]).read_text()
    return next(
        line.split()[1] for line in certificate.splitlines() if line.startswith("fingerprint ")
    )


def _fresh(kept: Path) -> bool:
    files = [kept / name for name in FILES]
    return all(file.exists() for file in files) and (
        time.time() - files[0].stat().st_mtime < FRESH_SECONDS
    )


def _make(kept: Path) -> None:
    for name in FILES:
        (kept / name).unlink(missing_ok=True)
    command = [tool("tor-gencert"), "--create-identity-key", "-m", MONTHS]
    subprocess.run(
        [*command, "--passphrase-fd", "0"],
        cwd=kept, input=PASSPHRASE.encode(), capture_output=True, check=True,
    )  # fmt: skip
