"""Soak test of many clients in one process, in a network whose relays are killed.

Each node of ``anabranch up`` runs as a process of its own. At random times one of them is killed
(SIGKILL), and restarted a few seconds later with the same folder. Two relays, one of them an exit,
are never killed: they show whether memory grows in relays that always have traffic.
``tests/interop/harness/soak.py`` has the rules; the exit status is 1 if one is broken.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

from harness.soak import Found, Plan, report, soak


def main() -> int:
    """Prints the report; returns 1 if a rule did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    usual = Plan()
    parser.add_argument("--clients", type=int, default=usual.clients, help="clients (200)")
    parser.add_argument(
        "--seconds", type=int, default=usual.seconds, help="seconds in which streams start (1200)"
    )
    parser.add_argument(
        "--seed", type=int, default=usual.seed, help="seed of kills and streams (1)"
    )
    parser.add_argument("--kill", type=float, default=usual.kill_s, help="seconds between kills")
    parser.add_argument(
        "--pause", type=float, default=usual.pause_s, help="seconds between streams of a user"
    )
    parser.add_argument(
        "--spare", nargs="*", default=usual.spared, help="names of relays that are not killed"
    )
    parser.add_argument("--out", type=Path, help="write logs, streams and samples here")
    args = parser.parse_args()
    plan = Plan(
        clients=args.clients, seconds=args.seconds, seed=args.seed, kill_s=args.kill,
        spared=tuple(args.spare), pause_s=args.pause,
    )  # fmt: skip
    say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="anabranch-soak-") as folder:
        try:
            found = soak(plan, Path(folder), say)
        finally:
            if args.out:
                keep_logs(Path(folder), args.out)
    if args.out:
        keep(found, args.out)
    print(report(found))
    return int(bool(found.faults))


def keep_logs(folder: Path, out: Path) -> None:
    """Copies the processes' logs, without their keys and documents."""
    out.mkdir(parents=True, exist_ok=True)
    for log in folder.rglob("*.log"):
        shutil.copy(log, out / log.name)


def keep(found: Found, out: Path) -> None:
    """Writes all results."""
    (out / "found.json").write_text(json.dumps(asdict(found), indent=1))
    (out / "report.txt").write_text(report(found) + "\n")


if __name__ == "__main__":
    sys.exit(main())
