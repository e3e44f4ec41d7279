"""Simulates the designs of docs/results/designs.md in one small network, and writes their times.

Usage: designs.py PROGRAM FOLDER TABLE.parquet [NETWORKS]    (make lab-designs calls it)

PROGRAM is the path of `anabranch`. Scenarios and simulations are kept in FOLDER, so that a later
run continues an interrupted one. TABLE has a row for each design, network and load.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

NETWORKS: Final = 3
"""Number of drawn networks: rates and delays of the relays differ, each with one seed."""

COMMON: Final = """\
duration = "20s"
warm-up = "5s"
delay = ["5ms", "10ms", "15ms"]
queue = "100ms"
congestion-control = "{windows}"

[relays]
count = 9
exits = 2
rate = ["10mbit", "20mbit", "20mbit"]

[servers]
count = 4

[clients]
web = 10
pause = "10s"
bulk = 1
"""


@dataclass(frozen=True)
class Arm:
    """A design as the simulator's scenario names it.

    Attributes:
        design: name of the design, as in `circuits.parquet`.
        legs: number of circuits.
        multipath: the simulator's name of the design; None for Tor's one circuit.
        schedule: schedule, if it is not the design's own.
        windows: `vegas`, or `fixed` for designs with windows of 1,000 cells.
        control: congestion control of TCP between client and exit; None for designs without it.
    """

    design: str
    legs: int
    multipath: str | None = None
    schedule: str | None = None
    windows: str = "vegas"
    control: str | None = None

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"{self.design}-{self.legs}"

    def scenario(self) -> str:
        """Returns the scenario's file."""
        lines = [COMMON.format(windows=self.windows), f"legs = {self.legs}"]
        keys = {
            "multipath": self.multipath,
            "schedule": self.schedule,
            "udp-or-congestion": self.control,
        }
        lines += [f'{key} = "{value}"' for key, value in keys.items() if value is not None]
        return "\n".join(lines) + "\n"


def arms() -> list[Arm]:
    """Returns the designs with their own schedules, and mUDP-OR as published, with round robin."""
    found = [Arm("tor", 1), Arm("udp-or", 1, "udp-or", control="bbr")]
    for legs in (2, 3):
        found += [
            Arm("conflux", legs, "conflux"),
            Arm("conflux-2013", legs, "conflux-2013", windows="fixed"),
            Arm("mtor", legs, "mtor", windows="fixed"),
            Arm("anabranch", legs, "anabranch"),
            Arm("merged", legs, "merged"),
            Arm("mudp-or", legs, "mudp-or", "eta", control="bbr"),
            Arm("mudp-or-turns", legs, "mudp-or", "round-robin", control="cubic"),
        ]
    return found


def simulate(program: str, folder: Path, networks: int) -> None:
    """Writes the scenarios to `folder` and runs those that it does not have.

    Raises:
        CalledProcessError: if the program fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for arm in arms():
        file = folder / f"{arm.name}.toml"
        file.write_text(arm.scenario(), encoding="utf-8")
        files.append(str(file))
    counts = ["--networks", str(networks), "--workers", "1"]
    command = [program, "sim", "sweep", str(folder / "sweep"), *files, *counts]
    subprocess.run(command, check=True)


def rows(sweep: Path) -> list[dict[str, Any]]:
    """Returns medians of each run by load; an incomplete download counts as failed only.

    Args:
        sweep: folder of `anabranch sim sweep`.
    """
    records = {}
    for line in (sweep / "units.jsonl").read_text("utf-8").splitlines()[1:]:
        record = json.loads(line)
        records[record["unit"]] = record["hash"]
    found = []
    for arm in arms():
        for file in sorted((sweep / "runs").glob(f"{arm.name}-n*.parquet")):
            found += _of_run(arm, records[file.stem], pq.read_table(file).to_pylist())
    return found


def _of_run(arm: Arm, digest: str, downloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for load in ("web", "bulk"):
        of = [one for one in downloads if one["load"] == load]
        whole = [one for one in of if one["complete"]]
        found.append(
            {
                "design": arm.design,
                "legs": arm.legs,
                "network": downloads[0]["network"],
                "seed": downloads[0]["seed"],
                "load": load,
                "downloads": len(of),
                "failed": len(of) - len(whole),
                "first_byte": median(one["time_to_first_byte"] for one in whole),
                "last_byte": median(one["time_to_last_byte"] for one in whole),
                "hash": digest,
            }
        )
    return found


def main() -> None:
    """Simulates, then writes the table."""
    program, folder, table, *more = sys.argv[1:]
    simulate(program, Path(folder), int(more[0]) if more else NETWORKS)
    pq.write_table(pa.Table.from_pylist(rows(Path(folder) / "sweep")), table)


if __name__ == "__main__":
    main()
