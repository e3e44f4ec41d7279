"""Whether a process keeps what it takes: samples of its memory, threads and files, and the rule.

The rule for memory. The first quarter of the samples is warming up: tables, buffers and the
allocator's arenas grow until they have seen the busiest moment. From then on a process is flat if

* the line of least squares through the rest climbs no more, from its begin to its end, and
* the median of the last quarter is no more above that of the second quarter,

than :data:`SHARE` of the second quarter's median and :data:`SLACK` beside. Two tests, because a
line is bent by one peak at an edge, and medians do not see what begins late. The share is what an
allocator's fragments come to while live bytes stay the same; the slack is for small processes, in
which one burst of cells is more than any share. In the usual soak some 20,000 streams and as many
circuits come and go after the first quarter: to leak a kilobyte of each is 40 MB, far above both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.seeded import MIB

SHARE = 0.05
SLACK = 4 * MIB
# Of a process that did not live for ten minutes more than a quarter is warming up.
LEAST_SAMPLES = 60


@dataclass(frozen=True)
class Sample:
    """A process at one moment, ``at`` seconds after the begin."""

    at: float
    rss: int
    threads: int
    files: int


def sample(pid: int, at: float) -> Sample | None:
    """Process ``pid`` now; None if it has gone."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = (folder / "status").read_text().splitlines()
        files = sum(1 for _ in (folder / "fd").iterdir())
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    if "VmRSS" not in values:  # it has ended, and nobody has looked yet
        return None
    return Sample(at, int(values["VmRSS"].split()[0]) * 1024, int(values["Threads"]), files)


@dataclass(frozen=True)
class Growth:
    """How memory went after warming up, in bytes."""

    early: float
    late: float
    climb: float

    @property
    def allowed(self) -> float:
        """How much more may be there at the end."""
        return SHARE * self.early + SLACK

    @property
    def is_flat(self) -> bool:
        """By both tests."""
        return max(self.climb, self.late - self.early) <= self.allowed

    def __str__(self) -> str:
        mb = [value / 1e6 for value in (self.early, self.late, self.climb, self.allowed)]
        return (
            f"second quarter {mb[0]:.1f} MB, last {mb[1]:.1f} MB, "
            f"line climbs {mb[2]:+.1f} MB (allowed {mb[3]:.1f} MB)"
        )


def growth(samples: Sequence[Sample]) -> Growth | None:
    """What became of a process's memory; None if it lived too short to tell."""
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
