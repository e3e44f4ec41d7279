"""Common parts of benches with interleaved rounds: each round runs every case once.

The result is the median of the ratios within rounds, not a ratio of medians, because other load of
the machine affects all cases of a round equally.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from harness.report import median_and_spread
from harness.seeded import MIB

Case = TypeVar("Case")
Result = TypeVar("Result")


def options(text: str | None) -> argparse.ArgumentParser:
    """Returns a parser with ``--runs``, ``--mib``, ``--strict``; ``text`` describes the bench."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0] if text else "")
    parser.add_argument("--runs", type=int, default=9, help="rounds of downloads (9)")
    parser.add_argument("--mib", type=int, default=100, help="MiB of a download (100)")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    return parser


@contextmanager
def scratch() -> Iterator[Path]:
    """Yields a temporary folder for the programs' files."""
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        yield Path(folder)


def interleaved(runs: int, cases: Mapping[Case, Callable[[], Result]]) -> list[dict[Case, Result]]:
    """Runs `runs` rounds; in each, every case runs once, one after the other."""
    return [{case: run() for case, run in cases.items()} for _ in range(runs)]


def ratios(
    rounds: Sequence[Mapping[Case, Result]],
    case: Case,
    beside: Case,
    value: Callable[[Result], float],
) -> list[float]:
    """Returns the value of `case` divided by that of `beside`, in each round."""
    return [value(one[case]) / value(one[beside]) for one in rounds]


def verdict(name: str, found: Sequence[float], of: str, target: float | None) -> bool:
    """Prints the median and spread of ratios; returns whether the median met the target.

    Returns True without a target.
    """
    told = f"{name}: {median_and_spread(found, 2)} of {of} (median of {len(found)}"
    if target is None:
        print(f"{told})")
        return True
    met = statistics.median(found) <= target
    print(f"{told}; target {target:g}) {'ok' if met else 'MISSED'}")
    return met


def length(args: argparse.Namespace) -> int:
    """Returns the length in bytes of each download, from the options."""
    return int(args.mib) * MIB
