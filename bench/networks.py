"""CPU time to train Deep and Robust Fingerprinting's networks, compared with Keras.

Usage, with the lab's Python:
  bench/networks.py [--runs N] [--epochs N] [--batches N] [--network df|rf]

Both train the same network (same number of parameters) on the same traces with the published
optimiser, on one core. Runs alternate. The comparison is skipped if Keras is missing. Exit status:
0 the bars are met or the comparison is skipped, 1 a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "anabranch" / "peers"
KERAS = CACHE / "venv-keras/bin/python"
HERE = Path(__file__).parent
NETWORKS = {"df": "Deep Fingerprinting", "rf": "Robust Fingerprinting"}
BAR = 1.9
"""Maximum ratio of our CPU time to that of Keras."""


def main() -> int:
    """Runs both programs in turn for each network, and prints medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="epochs that count")
    parser.add_argument("--batches", type=int, default=8, help="batches of an epoch")
    parser.add_argument("--network", choices=NETWORKS)
    arguments = parser.parse_args()
    # Child processes inherit this. With more cores, waiting threads would count as CPU time too.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    is_missed = False
    for name in [arguments.network] if arguments.network else NETWORKS:
        ours, theirs = [], []
        for _ in range(arguments.runs):
            size = (name, str(arguments.epochs + 1), str(arguments.batches))
            ours.append(trained(Path(sys.executable), "networks_ours.py", *size))
            if KERAS.exists():
                theirs.append(trained(KERAS, "networks_keras.py", *size))
        is_missed |= not judge(name, ours, theirs)
    if not KERAS.exists():
        how = "install it by tests/interop/setup --area networks"
        print(f"comparison with Keras skipped: no package keras; {how}", file=sys.stderr)
    return 1 if is_missed else 0


def trained(python: Path, script: str, *arguments: str) -> dict[str, Any]:
    """Returns the report of a training, from the last line that `script` prints."""
    command = [str(python), str(HERE / script), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def judge(name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    """Prints CPU seconds for each 1,000 traces; returns whether the bar is met, if it applies."""
    print(
        f"{NETWORKS[name]}, CPU seconds for each 1,000 traces; median (range) of {len(ours)} runs"
    )
    medians: list[float] = []
    for runs in filter(None, (ours, theirs)):
        seconds = [statistics.median(run["cpu_s"]) for run in runs]
        medians.append(statistics.median(seconds))
        spread = f"({min(seconds):.1f}-{max(seconds):.1f})"
        loss = statistics.median(run["loss"] for run in runs)
        line = f"{medians[-1]:6.1f} {spread}, {runs[0]['parameters']} parameters, loss {loss:.3f}"
        print(f"  {runs[0]['version']:14s} {line}")
    if len(medians) < 2:
        return True
    if ours[0]["parameters"] != theirs[0]["parameters"]:
        raise SystemExit(f"{name}: the two networks have different numbers of parameters")
    ratio = medians[0] / medians[1]
    is_met = ratio <= BAR
    print(f"  ratio {ratio:.2f}, bar {BAR}: {'met' if is_met else 'MISSED'}")
    return is_met


if __name__ == "__main__":
    sys.exit(main())
