"""Runs of ``anabranch experiment``: start, kill, resume, and the records of its journal."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.net import namespaces_allowed
from harness.tools import MissingPeer, anabranch, tool, wait_for

# An environment in which no program is found.
NOWHERE = {"PATH": "/nowhere", "HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere"}

# Fields of a record that show a machine without other load.
CALM = {"steal": 0.0, "pressure": 0.5, "load": 1.0, "late": 0.1}


@dataclass(frozen=True)
class Experiment:
    """An experiment in a folder. ``words`` follow the folder on the command line of every run."""

    name: str
    folder: Path
    words: Sequence[str] = ()

    @property
    def journal(self) -> Path:
        """The file of measurements."""
        return self.folder / "units.jsonl"

    def command(self, *words: str) -> list[str]:
        """Returns the command of a run."""
        return [anabranch(), "experiment", self.name, str(self.folder), *self.words, *words]

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a run in the background."""
        inherited = {**os.environ, **environment}
        return subprocess.Popen(self.command(), env=inherited, stderr=subprocess.DEVNULL)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs to the end and returns the completed process with its output."""
        return subprocess.run(
            self.command(*words), env={**os.environ, **environment}, capture_output=True,
            text=True, check=False, timeout=500,
        )  # fmt: skip

    def must(self, *words: str, **environment: str) -> None:
        """Runs to the end and asserts success."""
        done = self.run(*words, **environment)
        assert done.returncode == 0, done.stderr

    def header(self) -> dict[str, Any]:
        """Returns the journal's header: the fields common to all measurements, and the programs of
        the first run.
        """
        first: dict[str, Any] = json.loads(self.journal.read_text().splitlines()[0])
        return first

    def records(self) -> list[dict[str, Any]]:
        """Returns the measurements so far, without lines that note further programs."""
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()[1:]]
        return [line for line in lines if "unit" in line]

    def wait_records(self, count: int) -> None:
        """Waits until the journal has ``count`` measurements."""

        def there() -> bool:
            return self.journal.exists() and self.journal.read_text().count("\n") > count

        wait_for(f"{count} records in {self.journal}", there, 120)

    def contents(self) -> dict[str, bytes]:
        """Returns the contents of every file of the folder."""
        return {file.name: file.read_bytes() for file in self.folder.iterdir()}


def written(folder: Path, header: dict[str, Any], records: Sequence[dict[str, Any]]) -> None:
    """Writes a journal in the format of a run."""
    lines = [json.dumps(line) + "\n" for line in (header, *records)]
    (folder / "units.jsonl").write_text("".join(lines))


def need(*programs: str) -> None:
    """Checks that this machine has the prerequisites of experiments with ``programs``.

    Raises:
        MissingPeer: if a program is missing, or network namespaces are not allowed.
    """
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    for name in programs:
        tool(name)
