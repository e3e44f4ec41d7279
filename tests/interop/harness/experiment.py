"""``anabranch experiment``: started, killed, gone on, and what its journal holds."""

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

# Without programs, and without places where they might be.
NOWHERE = {"PATH": "/nowhere", "HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere"}

# A machine without other work, as records have it.
CALM = {"steal": 0.0, "pressure": 0.5, "load": 1.0, "late": 0.1}


@dataclass(frozen=True)
class Experiment:
    """One experiment in one folder; ``words`` follow the folder in every run."""

    name: str
    folder: Path
    words: Sequence[str] = ()

    @property
    def journal(self) -> Path:
        """Its file of measurements."""
        return self.folder / "units.jsonl"

    def command(self, *words: str) -> list[str]:
        """The command of a run."""
        return [anabranch(), "experiment", self.name, str(self.folder), *self.words, *words]

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        """Begins a run that is left to itself."""
        inherited = {**os.environ, **environment}
        return subprocess.Popen(self.command(), env=inherited, stderr=subprocess.DEVNULL)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A run to its end, with its output."""
        return subprocess.run(
            self.command(*words), env={**os.environ, **environment}, capture_output=True,
            text=True, check=False, timeout=500,
        )  # fmt: skip

    def must(self, *words: str, **environment: str) -> None:
        """A run that ends well."""
        done = self.run(*words, **environment)
        assert done.returncode == 0, done.stderr

    def header(self) -> dict[str, Any]:
        """What all its measurements have in common; the programs of the first run."""
        first: dict[str, Any] = json.loads(self.journal.read_text().splitlines()[0])
        return first

    def records(self) -> list[dict[str, Any]]:
        """What was measured so far; a line that notes further programs is none."""
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()[1:]]
        return [line for line in lines if "unit" in line]

    def wait_records(self, count: int) -> None:
        """Waits until so many units are done."""

        def there() -> bool:
            return self.journal.exists() and self.journal.read_text().count("\n") > count

        wait_for(f"{count} records in {self.journal}", there, 120)

    def contents(self) -> dict[str, bytes]:
        """Every file of the folder."""
        return {file.name: file.read_bytes() for file in self.folder.iterdir()}


def written(folder: Path, header: dict[str, Any], records: Sequence[dict[str, Any]]) -> None:
    """A journal as a run writes it."""
    lines = [json.dumps(line) + "\n" for line in (header, *records)]
    (folder / "units.jsonl").write_text("".join(lines))


def need(*programs: str) -> None:
    """Says what experiments with these programs lack here.

    Raises:
        MissingPeer: a program, or the right to networks.
    """
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    for name in programs:
        tool(name)
