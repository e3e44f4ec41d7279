"""Kills relays in a network of stock relays and ours, and in a twin with only stock relays.

Both networks run at the same time, each with eight relays, four stock clients and a stock onion
service. The program prints the failed streams of each network. The exit status is 1 if more
streams fail in the mixed network than chance explains, or if a stock tor in it logs a complaint
that no tor of the twin logs (``tests/interop/harness/mixed.py``).
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

from harness.mixed import MixedPlan, judge, report, trial


def main() -> int:
    """Prints the report; returns 1 if a rule did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    usual = MixedPlan()
    parser.add_argument(
        "--seconds", type=int, default=usual.seconds, help="seconds in which streams start (1200)"
    )
    parser.add_argument("--clients", type=int, default=usual.clients, help="C tor clients (4)")
    parser.add_argument(
        "--seed", type=int, default=usual.seed, help="seed of kills and streams (1)"
    )
    parser.add_argument("--kill", type=float, default=usual.kill_s, help="seconds between kills")
    parser.add_argument(
        "--pause", type=float, default=usual.pause_s, help="seconds between streams of a user"
    )
    parser.add_argument("--out", type=Path, help="write logs and streams to this folder")
    args = parser.parse_args()
    plan = MixedPlan(
        seconds=args.seconds, seed=args.seed, clients=args.clients, kill_s=args.kill,
        pause_s=args.pause,
    )  # fmt: skip
    say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="anabranch-mixed-") as folder:
        try:
            seen = trial(plan, Path(folder), say)
        finally:
            if args.out:
                keep_logs(Path(folder), args.out)
    if args.out:
        told = {kind: asdict(one) for kind, one in seen.items()}
        (args.out / "seen.json").write_text(json.dumps(told, indent=1))
        (args.out / "report.txt").write_text(report(seen) + "\n")
    print(report(seen))
    return int(bool(judge(seen)))


def keep_logs(folder: Path, out: Path) -> None:
    """Copies the logs of stock tors, without their keys and documents."""
    for log in folder.glob("*/*/log"):
        kept = out / log.parent.parent.name / f"{log.parent.name}.log"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, kept)


if __name__ == "__main__":
    sys.exit(main())
