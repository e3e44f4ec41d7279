"""Paths of the peers, and background processes that end with their test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "anabranch"
PEERS = CACHE / "peers"
INTEROP = Path(__file__).resolve().parent.parent
# Debian keeps servers in /usr/sbin, which a user's PATH may lack.
SEARCH_PATH = f"{PEERS / 'bin'}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class MissingPeer(Exception):
    """A program that a test needs is not installed; the message names it and how to get it."""


class PeerFailed(Exception):
    """A peer did not start, or ended early; the message holds the end of its output."""


def tool(name: str) -> str:
    """Returns the path of a peer's or a system's program.

    Raises:
        MissingPeer: it is nowhere to be found.
    """
    at = shutil.which(name, path=SEARCH_PATH)
    if at is None:
        raise MissingPeer(f"{name} is not installed; tests/interop/setup installs it")
    return at


def anabranch() -> str:
    """Returns the program under test: ``$ANABRANCH``, or the release build in the cache.

    Raises:
        MissingPeer: it has not been built.
    """
    built = CACHE / "target/release/anabranch"
    named = os.environ.get("ANABRANCH", str(built))
    if not Path(named).exists():
        raise MissingPeer(f"{named} does not exist; tests/interop/run builds it")
    return named


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits until ``condition`` holds.

    Raises:
        TimeoutError: it did not hold within ``seconds``; the message names ``what``.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)


class Background:
    """A process that runs until :meth:`stop`, or the end of the ``with`` block.

    Its output goes to a file, so that it never blocks on a full pipe.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        """Starts ``command`` with ``environment`` added to this process's own."""
        self.command = list(command)
        with tempfile.NamedTemporaryFile(prefix="anabranch-", suffix=".log", delete=False) as log:
            self._log = Path(log.name)
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Returns whether it is still running."""
        return self._process.poll() is None

    def output(self) -> str:
        """Returns its output so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def wait_until(self, what: str, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Waits until ``condition`` holds, at most until the process exits.

        Raises:
            PeerFailed: the process ended first, or the time did.
        """

        def settled() -> bool:
            return condition() or self._process.poll() is not None

        try:
            wait_for(what, settled, seconds)
        except TimeoutError as error:
            raise PeerFailed(f"{self.command[0]}: {error}\n{self.output()}") from error
        if self._process.poll() is not None and not condition():
            raise PeerFailed(f"{' '.join(self.command)} ended early:\n{self.output()}")

    def wait_bound(self, port: int, protocol: str = "udp") -> None:
        """Waits until ``port`` is bound in the process's network namespace."""
        self.wait_until(f"{protocol} port {port}", lambda: port in bound(self.pid, protocol))

    def interrupt_and_wait(self, seconds: float = 5.0) -> None:
        """Sends SIGINT, as Ctrl-C does, and waits for the exit."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(seconds)

    def wait(self, seconds: float) -> int:
        """Waits until it exits by itself, and returns its exit status.

        Raises:
            TimeoutError: it does not within ``seconds``.
        """
        wait_for(f"the end of {self.command[0]}", lambda: self._process.poll() is not None, seconds)
        return self._process.wait()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ends the process and returns its exit status (negative: the signal that killed it)."""
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
        status = self._process.wait()
        self._log.unlink(missing_ok=True)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def bound(pid: int, protocol: str) -> set[int]:
    """Returns the ports bound (UDP) or listened on (TCP) in the network namespace of process
    ``pid``.
    """
    ports = set()
    for table in (protocol, f"{protocol}6"):
        for line in _lines(Path(f"/proc/{pid}/net/{table}"))[1:]:
            _, local, _, state, *_ = line.split()
            if protocol == "udp" or state == "0A":  # 0A: LISTEN
                ports.add(int(local.rsplit(":", 1)[1], 16))
    return ports


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:  # the process has exited
        return []
