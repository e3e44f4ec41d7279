"""A running ``anabranch split`` and its events."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from harness.net import Counts, Host
from harness.service import program
from harness.tools import PeerFailed, anabranch, wait_for

LISTEN = "127.0.0.1:51820"


class Splitter:
    """``anabranch split --json`` on a host, from its start to its summary."""

    def __init__(
        self,
        host: Host,
        to: str | None,
        paths: Sequence[str],
        *,
        every: str | None = "100ms",
        schedule: str | None = "round-robin",
        listen: str | None = LISTEN,
        seed: int | None = 7,
        options: Sequence[str] = (),
        before: Sequence[str] = (),
        watch: Callable[[dict[str, Any]], None] = lambda _: None,
    ):
        """Starts splitting towards ``to``; ``paths`` as on the command line (``p0=if:p0``).

        Without ``to`` or ``listen``, ``options`` or the program's defaults apply. ``every``,
        ``schedule`` and ``seed`` are left to ``options`` where they are None. ``before`` is a
        command prefix that confines the program (:func:`harness.service.confined`). ``watch``
        receives every event on a thread of its own.

        Raises:
            PeerFailed: it ended before it was ready; the message holds its error.
        """
        binary = [*before, program(before)] if before else [anabranch()]
        command = [*binary, "split", "--json"]
        command += ["--listen", listen] if listen else []
        command += ["--to", to] if to else []
        command += [word for path in paths for word in ("--path", path)]
        command += ["--every", every] if every else []
        command += ["--schedule", schedule] if schedule else []
        command += ["--seed", str(seed)] if seed is not None else []
        command += options
        self._watch = watch
        self.events: list[dict[str, Any]] = []
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by __exit__)
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
        self._wait_ready()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Returns the events of one kind so far, oldest first."""
        return [event for event in list(self.events) if event["event"] == kind]

    def changes(self, path: str) -> list[str]:
        """Returns the reported states of a path, oldest first: ``up``, ``down``."""
        return [event["state"] for event in self.of("path") if event["path"] == path]

    def wait_event(self, kind: str, seconds: float = 10.0, **fields: Any) -> dict[str, Any]:
        """Waits for an event of this kind whose fields have the values given.

        Raises:
            TimeoutError: none came.
        """

        def matching() -> list[dict[str, Any]]:
            return [e for e in self.of(kind) if all(e.get(k) == v for k, v in fields.items())]

        try:
            wait_for(f"the event {kind} {fields}", lambda: bool(matching()), seconds)
        except TimeoutError as error:
            latest = "\n".join(json.dumps(event) for event in self.events[-12:])
            raise TimeoutError(f"{error}; the latest events:\n{latest}") from error
        return matching()[0]

    def counts(self) -> dict[str, Counts]:
        """Returns each path's counts in the latest statistics (one a second, and the summary)."""
        latest = (self.of("summary") or self.of("stats"))[-1]
        return {path["name"]: _counts(path) for path in latest["paths"]}

    def errors(self) -> str:
        """Returns its standard error so far."""
        self._errors.seek(0)
        return self._errors.read()

    def send(self, what: signal.Signals) -> None:
        """Sends it a signal."""
        self._process.send_signal(what)

    def stop(self) -> dict[str, Any]:
        """Interrupts it with SIGINT and returns its summary.

        Raises:
            PeerFailed: it did not end cleanly.
        """
        status = self._end(signal.SIGINT)
        summaries = self.of("summary")
        if status != 0 or not summaries:
            raise PeerFailed(
                f"split ended with status {status}, {len(summaries)} summaries\n{self.errors()}"
            )
        return summaries[-1]

    def wait_end(self, seconds: float = 10.0) -> None:
        """Waits until it exits by itself."""
        self._process.wait(seconds)

    def end_by(self, how: signal.Signals) -> int:
        """Sends a signal, waits, and returns the status (negative: the signal that killed it)."""
        return self._end(how)

    def _end(self, how: signal.Signals) -> int:
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join(5)
        return self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None, "opened as a pipe"
        for line in self._process.stdout:
            self.events.append(json.loads(line))
            self._watch(self.events[-1])

    def _wait_ready(self) -> None:
        def settled() -> bool:
            return bool(self.of("listening")) or self._process.poll() is not None

        wait_for("the splitter to listen", settled)
        if not self.of("listening"):
            raise PeerFailed(f"split ended with {self._process.wait()}:\n{self.errors()}")
        self.listen: str = self.of("listening")[0]["listen"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGINT)
        self._errors.close()


def interfaces(count: int) -> list[str]:
    """Returns the ``--path`` arguments for the links p0, p1, … by interface."""
    return [f"p{i}=if:p{i}" for i in range(count)]


def _counts(path: dict[str, Any]) -> Counts:
    return Counts(path["up_packets"], path["up_bytes"], path["down_packets"], path["down_bytes"])
