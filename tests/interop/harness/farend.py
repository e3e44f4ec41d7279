"""A running ``anabranch merge`` and its keys: the far end in front of an unmodified server."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.closing import Closing
from harness.net import SERVER, Counts, Host
from harness.tools import PeerFailed, anabranch, wait_for

PORT = 4500
# Bytes that the far end's header adds to each datagram.
OVERHEAD = 33


class FarEnd(Closing):
    """``anabranch merge --json`` on a host, from its start to its summary."""

    def __init__(
        self,
        host: Host,
        to: str | None,
        key: Path,
        *,
        every: str = "100ms",
        schedule: str = "uniform",
        options: Sequence[str] = (),
        listen: str = f"{SERVER}:{PORT}",
    ):
        """Starts the far end in front of the server at ``to``; with None, ``options`` specify the
        destination.

        Raises:
            PeerFailed: if the far end exits before it is ready; the message contains its error.
        """
        command = [anabranch(), "merge", "--json", "--listen", listen, *options]
        command += ["--to", to] if to else []
        command += ["--key", str(key), "--schedule", schedule, "--every", every, "--seed", "7"]
        self.events: list[dict[str, Any]] = []
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the far end)
        self._process = subprocess.Popen(
            host.command(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_for("the far end", lambda: bool(self.of("listening")) or not self._runs())
        if not self.of("listening"):
            self._errors.seek(0)
            raise PeerFailed(f"merge ended:\n{self._errors.read()}")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Returns the events of one kind so far, oldest first."""
        return [event for event in list(self.events) if event["event"] == kind]

    def wait_event(self, kind: str, seconds: float = 10.0, **fields: Any) -> dict[str, Any]:
        """Waits for an event of this kind whose fields have the values given.

        Raises:
            TimeoutError: if there is none within ``seconds``.
        """

        def matching() -> list[dict[str, Any]]:
            return [e for e in self.of(kind) if all(e.get(k) == v for k, v in fields.items())]

        wait_for(f"the far end's event {kind} {fields}", lambda: bool(matching()), seconds)
        return matching()[0]

    def counts(self) -> list[Counts]:
        """Returns the counts of each path of the only client, from the latest statistics (one a
        second).
        """
        client = (self.of("summary") or self.of("stats"))[-1]["clients"][0]
        return [
            Counts(each["in_packets"], each["in_bytes"], each["out_packets"], each["out_bytes"])
            for each in client["paths"]
        ]

    def kill(self) -> None:
        """Kills the process without a goodbye message to its clients."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stops the far end with SIGINT."""
        self._end(signal.SIGINT)
        self._errors.close()

    def _runs(self) -> bool:
        return self._process.poll() is None

    def _end(self, how: signal.Signals) -> None:
        if self._runs():
            self._process.send_signal(how)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        self._reader.join(5)

    def _read(self) -> None:
        assert self._process.stdout is not None, "opened as a pipe"
        for line in self._process.stdout:
            self.events.append(json.loads(line))


def make_keys(folder: Path) -> tuple[Path, Path]:
    """Makes the key files of a far end and of its splitter with ``anabranch key``."""
    far, home = folder / "far.key", folder / "home.key"
    subprocess.run([anabranch(), "key", str(far), str(home)], check=True, capture_output=True)
    return far, home
