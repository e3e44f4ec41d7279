"""Compares the cost of two builds of ours: a relay's CPU, a far end, and forwarding.

Each round measures both builds; in ``forward`` and ``far-end``, their order alternates. The
program prints the geometric mean of the ratios new / old with its 95 % interval (Student's t of
their logarithms), and whether the interval is within ``--within`` of 1. OLD and NEW are folders
with ``anabranch``, ``udp-blast``, ``udp-sink`` and ``forward``. NEW also has ``bench``, which
measures both builds (``make bench`` builds these programs). ``relay`` needs Debian's tor.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

import rounds
import tor
from harness.report import table
from harness.seeded import MIB

AREAS = ("forward", "far-end", "relay")
# Student's t for a two-sided 95 % interval, by degrees of freedom. The value of 30 is also used
# for more degrees.
T = {
    2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101,
    19: 2.093, 20: 2.086, 21: 2.080, 22: 2.074, 23: 2.069, 24: 2.064, 25: 2.060, 26: 2.056,
    27: 2.052, 28: 2.048, 29: 2.045, 30: 2.042,
}  # fmt: skip
# Measured values by name.
Values = dict[str, float]


def main() -> int:
    """Prints the table; returns 1 if an interval is not within ``--within`` of 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("old", type=Path, help="folder with the programs of the old build")
    parser.add_argument("new", type=Path, help="folder with the programs of the new build")
    parser.add_argument("areas", nargs="*", help=", ".join(AREAS) + " (all)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds (15, at least 3)")
    parser.add_argument("--within", type=float, default=0.05, help="bound of the interval (.05)")
    args = parser.parse_args()
    areas = args.areas or list(AREAS)
    if args.rounds < 3 or not set(areas) <= set(AREAS):
        parser.error(f"at least 3 rounds of {', '.join(AREAS)}")
    rows: list[list[object]] = []
    for area in areas:
        old, new = relays(args) if area == "relay" else forwarders(args, area)
        rows += [judged(area, name, old, new, args.within) for name in old[0]]
    print(table(["area", "value", "new / old", "95 % interval", "rounds", ""], rows))
    return int(any(row[-1] == "DIFFERS" for row in rows))


def forwarders(args: argparse.Namespace, area: str) -> tuple[list[Values], list[Values]]:
    """Returns the values of both builds in each round of one area of the splitter's bench."""
    found: dict[Path, list[Values]] = {args.old: [], args.new: []}
    for number in range(args.rounds):
        for build in (args.old, args.new) if number % 2 else (args.new, args.old):
            command = [args.new / "bench", "--programs", build, "--runs", "1", "--json", area]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[build].append(values(done.stdout))
    return found[args.old], found[args.new]


def values(lines: str) -> Values:
    """Returns the medians in a bench's JSON lines, by measurement and subject.

    The baselines and the shares of lost packets are left out; the shares are nearly 0, so their
    ratios would have no meaning.
    """
    found = {}
    for line in lines.splitlines():
        row = json.loads(line)
        if row["measurement"].endswith(": lost"):
            continue
        if row["median"] > 0 and row["subject"] not in ("direct", "naive"):
            found[f"{row['measurement']}, {row['subject']}"] = float(row["median"])
    return found


def relays(args: argparse.Namespace) -> tuple[list[Values], list[Values]]:
    """Returns CPU ms for each MB of both builds' middle relays in each round of downloads."""
    builds = {name: tor.Build(str(getattr(args, name) / "anabranch"), 1) for name in ("old", "new")}
    with rounds.scratch() as folder:
        measured = tor.measure(folder, builds, args.rounds, 100 * MIB)

    def of(name: str) -> list[Values]:
        return [
            {f"CPU, {circuits} circuit(s)": one[name, circuits].cpu() for circuits in tor.CIRCUITS}
            for one in measured
        ]

    return of("old"), of("new")


def judged(
    area: str, name: str, old: list[Values], new: list[Values], within: float
) -> list[object]:
    """Returns a row of the table, with the ratio's interval and verdict."""
    both = [(a[name], b[name]) for a, b in zip(old, new, strict=True) if name in a and name in b]
    if len(both) < 3:
        return [area, name, "", "", len(both), "too few rounds"]
    mean, low, high = interval([b / a for a, b in both])
    verdict = "ok" if 1 - within <= low and high <= 1 + within else "DIFFERS"
    return [area, name, f"{mean:.3f}", f"{low:.3f} to {high:.3f}", len(both), verdict]


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Returns the geometric mean of at least three ratios, and the ends of its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = T.get(len(logs) - 1, 2.042) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


if __name__ == "__main__":
    sys.exit(main())
