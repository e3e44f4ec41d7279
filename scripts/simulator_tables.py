#!/usr/bin/env python3
"""Writes the quantile tables of the simulator (crates/sim/data) from public data.

    scripts/simulator_tables.py RELAYS.csv[.xz] RTTS.tsv[.xz]

RELAYS.csv: the relays of tmodel-ccs2018 (Jansen, Traudt, Hopper: "Privacy-Preserving Dynamic
Learning of Tor Network Traffic", CCS 2018), made from the descriptors and extra-info documents
that the public Tor network published in 2018. Columns IsExit, LinkDown(KiB/s), LinkUp(KiB/s),
Load(KiB/s).

RTTS.tsv: a matrix of round-trip times in ms between 490 hosts of PlanetLab (NetLatency-Data,
MIT licence); 0 means not measured.

A table has 100 values: the quantiles at 0.5 %, 1.5 %, ..., 99.5 %.
"""

import csv
import lzma
import sys
from pathlib import Path
from typing import TextIO

TARGET = Path(__file__).resolve().parent.parent / "crates/sim/data"
VALUES = 100
# Minimum rate in bit/s of a relay's line; slower lines carry little traffic.
LEAST = 128_000


def text(file: Path) -> TextIO:
    """Opens a plain or xz-compressed text file."""
    return lzma.open(file, "rt") if file.suffix == ".xz" else file.open()


def quantiles(values: list[float]) -> list[int]:
    """Returns the quantiles at the middle of each hundredth."""
    ordered = sorted(values)
    places = ((2 * part + 1) / (2 * VALUES) * len(ordered) for part in range(VALUES))
    return [round(ordered[int(place)]) for place in places]


def write(name: str, unit: str, source: str, values: list[float]) -> None:
    """Writes one quantile table as a file of crates/sim/data."""
    head = f"# {unit}\n# From {len(values)} {source}\n"
    lines = "".join(f"{value}\n" for value in quantiles(values))
    (TARGET / name).write_text(head + lines)


def rates(file: Path) -> None:
    """Writes the rates of relays: of their lines, and the capacity that their load leaves free."""
    with text(file) as rows:
        relays = list(csv.DictReader(rows))
    for name, is_exit in (("exits", "True"), ("relays", "False")):
        chosen = [relay for relay in relays if relay["IsExit"] == is_exit]
        whole, spare = [], []
        for relay in chosen:
            # The slower direction limits a relay, which sends as much as it receives.
            line = min(float(relay[key]) for key in ("LinkDown(KiB/s)", "LinkUp(KiB/s)"))
            load = float(relay["Load(KiB/s)"])
            whole.append(max(line * 8192, LEAST))
            spare.append(max((line - load) * 8192, LEAST))
        source = f"{name} of tmodel-ccs2018: the public Tor network in 2018."
        write(f"{name}-2018.txt", "Rate of the line, bit/s.", source, whole)
        write(f"{name}-2018-spare.txt", "Rate left by the relay's load, bit/s.", source, spare)


def delays(file: Path) -> None:
    """Writes the one-way delays between hosts: half of the round-trip times."""
    with text(file) as rows:
        matrix = [[float(cell) for cell in row.split()] for row in rows]
    pairs = [matrix[a][b] for a in range(len(matrix)) for b in range(a)]
    half = [rtt / 2 * 1000 for rtt in pairs if rtt > 0]
    source = "pairs of PlanetLab hosts: half of the round-trip time."
    write("planetlab.txt", "One-way delay, microseconds.", source, half)


def main() -> None:
    """Writes all tables."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rates(Path(sys.argv[1]))
    delays(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
