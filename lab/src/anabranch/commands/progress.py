"""Progress of long commands: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from anabranch import display

if TYPE_CHECKING:
    from anabranch.attacks import EpochReport
    from anabranch.results import Result
    from anabranch.sweep.listing import Unit


def progress() -> Progress:
    """Returns progress bars, which are hidden unless stderr is a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns,
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        # Units take minutes: the default period of 30 s never contains the two needed for an
        # estimate.
        speed_estimate_period=1e9,
    )


class EachMinute:
    """Printer of progress lines, at most one a minute, for output that is not a terminal.

    Args:
        clock: returns the time in seconds; tests replace it.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def show(self, text: str) -> None:
        """Prints a line to stderr if a minute has passed since the last one."""
        now = self._clock()
        if now - self._last >= 60:
            self._last = now
            print(text, file=sys.stderr, flush=True)


@contextmanager
def epochs() -> Iterator[Any]:
    """Shows a bar for a network's epochs, or a line a minute without a terminal."""
    with progress() as bars:
        tasks: dict[tuple[str, int], Any] = {}
        lines = EachMinute()

        def on_epoch(report: EpochReport) -> None:
            key = (report.member, report.epochs)
            if report.epoch == 1 or key not in tasks:
                tasks[key] = bars.add_task(report.member, total=report.epochs)
            accuracy = report.validation_accuracy
            known = "" if accuracy is None else f", validation {accuracy:.1%}"
            text = f"{report.member}: loss {report.loss:.3f}{known}"
            bars.update(tasks[key], completed=report.epoch, description=text)
            if bars.disable:
                lines.show(f"{text}, epoch {report.epoch} of {report.epochs}")

        yield on_epoch


@contextmanager
def units() -> Iterator[UnitBar]:
    """Shows a bar for the units (single evaluations) of a sweep."""
    with progress() as bars:
        yield UnitBar(bars)


class UnitBar:
    """A bar for all units (single evaluations) of a sweep, and a line for each finished unit.

    Without a terminal, only the lines are printed.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("evaluations", total=None)

    def start(self, left: int, at_once: int) -> None:
        """Shows how many units are left, and how many run at a time."""
        text = f"{left} evaluations, {at_once} at a time"
        self.progress.update(self.task, total=left, description=text)
        self.progress.advance(self.task, 0)  # the estimate of the remaining time starts here

    def advance(self, unit: Unit, outcome: Result | str) -> None:
        """Counts a finished unit, and prints its headline or the reason of its failure."""
        self.progress.advance(self.task)
        text = outcome if isinstance(outcome, str) else display.headline(outcome)
        self.progress.console.print(f"{unit}: {text}", markup=False, highlight=False)
