"""Speed of the simulator, compared with ns-3: packet-hops for each CPU second.

Usage: bench/simulator.py SPEED [--runs N]   (SPEED: the built example `speed` of anabranch-sim)

Both simulate the same transfer: four CUBIC connections between two hosts for 20 s, over two access
lines of 100 Mbit/s and a core of 10 ms. Runs alternate. The comparison is skipped if the package
`ns3` is missing. Exit status: 0 the targets are met or the comparison is skipped, 1 a target is
missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "anabranch" / "peers"
PYTHON = CACHE / "venv-ns3/bin/python"
FLOWS = Path(__file__).parent / "ns3_flows.py"
# Minimum ratio of our packet-hops per CPU second to ns-3's, by the build profile in the name of
# ns-3's library.
TARGETS = {"debug": 40.0, "default": 40.0, "release": 40.0, "optimized": 10.0}
# Maximum difference of the two goodputs, as a share of ns-3's.
GOODPUT = 0.10


def main() -> int:
    """Runs both simulators in turn, and prints medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("speed", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    missing = why_missing()
    if missing:
        subprocess.run([arguments.speed], check=True)
        print(f"comparison with ns-3 skipped: {missing}", file=sys.stderr)
        return 0
    ours, theirs = [], []
    for _ in range(arguments.runs):
        ours.append(own(arguments.speed))
        theirs.append(ns3())
    return judge(ours, theirs)


def why_missing() -> str:
    """Returns the reason why ns-3 cannot run; empty if it can."""
    if not PYTHON.exists():
        return "no package ns3; install it by tests/interop/setup --area simulator"
    done = subprocess.run([PYTHON, "-c", "from ns import ns"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "the package ns3 cannot be imported"


def profile() -> str:
    """Returns the build profile in the name of ns-3's library; `release` if there is none."""
    places = PYTHON.parent.parent.glob("lib/python*/site-packages/ns3/lib*/libns3*-core*.so")
    suffix = next(places).stem.partition("-core")[2].strip("-")
    return suffix or "release"


def own(speed: Path) -> tuple[float, float]:
    """Returns our packet-hops for each CPU second and goodput in Mbit/s: medians over seeds."""
    done = subprocess.run([speed], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return (
        statistics.median(float(row[3]) for row in rows),
        statistics.median(float(row[4]) for row in rows),
    )


def ns3() -> tuple[float, float]:
    """Returns ns-3's packet-hops for each CPU second and goodput in Mbit/s."""
    done = subprocess.run([PYTHON, FLOWS], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["hops"] / found["cpu"], found["mbit"]


def judge(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> int:
    """Prints the medians and the targets."""
    built = profile()
    speed, goodput = (statistics.median(values) for values in zip(*ours, strict=True))
    slow, least = (statistics.median(values) for values in zip(*theirs, strict=True))
    print(f"ns-3 3.44, build profile {built}; medians of {len(ours)} runs")
    print("                packet-hops a CPU s   Mbit/s")
    print(f"this simulator  {speed:19.0f}  {goodput:7.2f}")
    print(f"ns-3            {slow:19.0f}  {least:7.2f}")
    ratio, target = speed / slow, TARGETS[built]
    is_near = abs(goodput / least - 1) <= GOODPUT
    print(f"ratio {ratio:.1f}, target {target:.0f}: {'met' if ratio >= target else 'MISSED'}")
    print(f"goodput within {GOODPUT:.0%}: {'met' if is_near else 'MISSED'}")
    return 0 if ratio >= target and is_near else 1


if __name__ == "__main__":
    sys.exit(main())
