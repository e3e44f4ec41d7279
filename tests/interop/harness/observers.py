"""What the observer of each path saw, from the splitter's trace by ``anabranch report``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.net import Host
from harness.report import table
from harness.tools import anabranch


def seen_by_observers(trace: Path) -> list[dict[str, Any]]:
    """The ``paths`` of a trace's summary: number, and packets, bytes, share, gaps up and down.

    Empty if there is no trace.
    """
    if not trace.exists():
        return []
    told = Host("here").must([anabranch(), "report", "--json", str(trace)])
    paths: list[dict[str, Any]] = json.loads(told)["summary"]["paths"]
    return paths


def observers_table(seen: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> str:
    """A row for each session and path; ``names`` are the paths' by number."""
    head = ["session", "path", "up packets", "up bytes", "up %", "down packets", "down bytes"]
    head += ["down %", "longest gap s"]
    return table(head, (_row(name, path, names) for name, paths in seen.items() for path in paths))


def _row(name: str, path: Mapping[str, Any], names: Sequence[str]) -> list[object]:
    up, down = path["up"], path["down"]
    gap = max(up["longest_gap_ms"], down["longest_gap_ms"]) / 1000
    row: list[object] = [name, names[path["path"]]]
    row += [up["packets"], up["bytes"], 100.0 * up["share"]]
    return [*row, down["packets"], down["bytes"], 100.0 * down["share"], gap]
