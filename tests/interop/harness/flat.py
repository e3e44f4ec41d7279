"""Leak checks: samples of a process's memory, threads and files, and the rule for them.

The rule for memory: the first quarter of the samples is the warm-up, in which tables, buffers and
the allocator's arenas grow until the busiest moment. After the warm-up a process is flat if

* the rise of the regression line (least squares) through the rest, and
* the median of the last quarter minus the median of the second quarter

are both at most :data:`SHARE` of the second quarter's median plus :data:`SLACK`. There are two
tests, because a peak at an edge bends the line, and medians miss late growth. The share covers the
allocator's fragmentation at constant live bytes. The slack is for small processes, in which one
burst of cells exceeds any share. In the usual soak some 20,000 streams and as many circuits open
and close after the first quarter: a leak of a kilobyte each would be 40 MB, far above both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.seeded import MIB

SHARE = 0.05
SLACK = 4 * MIB
# Minimum number of samples to judge (ten minutes); in shorter runs, more than a quarter is
# warm-up.
LEAST_SAMPLES = 60


@dataclass(frozen=True)
class Sample:
    """A sample of a process, ``at`` seconds after the start."""

    at: float
    rss: int
    threads: int
    files: int


def sample(pid: int, at: float) -> Sample | None:
    """Returns a sample of process ``pid``, or None if it has exited."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = (folder / "status").read_text().splitlines()
        files = sum(1 for _ in (folder / "fd").iterdir())
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    if "VmRSS" not in values:  # a zombie: exited, but not yet waited for
        return None
    return Sample(at, int(values["VmRSS"].split()[0]) * 1024, int(values["Threads"]), files)


@dataclass(frozen=True)
class Growth:
    """Growth of memory after the warm-up, in bytes."""

    early: float
    late: float
    climb: float

    @property
    def allowed(self) -> float:
        """Maximum growth that counts as flat."""
        return SHARE * self.early + SLACK

    @property
    def is_flat(self) -> bool:
        """Whether both tests pass."""
        return max(self.climb, self.late - self.early) <= self.allowed

    def __str__(self) -> str:
        mb = [value / 1e6 for value in (self.early, self.late, self.climb, self.allowed)]
        return (
            f"second quarter {mb[0]:.1f} MB, last {mb[1]:.1f} MB, "
            f"line climbs {mb[2]:+.1f} MB (allowed {mb[3]:.1f} MB)"
        )


def growth(samples: Sequence[Sample]) -> Growth | None:
    """Returns the growth of a process's memory, or None if there are too few samples to judge."""
    if len(samples) < LEAST_SAMPLES:
        return None
    quarter = len(samples) // 4
    warm = samples[quarter:]
    rss = [float(one.rss) for one in warm]
    slope, _ = statistics.linear_regression([one.at for one in warm], rss)
    return Growth(
        early=statistics.median(rss[:quarter]),
        late=statistics.median(rss[-quarter:]),
        climb=slope * (warm[-1].at - warm[0].at),
    )
