"""Splits traces over paths: a thin form of the Rust trace splitter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anabranch import _core
from anabranch.traces import Traces
from anabranch.validate import TraceError

MOST_RESPLITS = 10_000
"""Of one load: far more than help an attack."""

Delay = float | tuple[float, float]
"""Seconds that a path adds: the same in both directions, or (up, down)."""


class SplitError(ValueError):
    """A split that cannot be made; the message names the setting."""


DEFAULT_SCHEDULE, DEFAULT_EVERY = _core.DEFAULT_SCHEDULE, _core.DEFAULT_EVERY
"""What `anabranch split` does where nothing is named."""


def published_every(schedule: str) -> str | None:
    """The run length that a schedule was published with, or None if it has none of its own.

    Raises:
        SplitError: if there is no such schedule.
    """
    name = schedule.partition(":")[0]
    for family, _, _, every in _core.families():
        if family == name:
            return every
    known = ", ".join(syntax for _, syntax, _, _ in _core.families())
    raise SplitError(f"schedule: no scheduler is called '{name}'; there are {known}")


@dataclass(frozen=True, slots=True)
class Split:
    """How traces are split. Equal values split equal traces equally, on every machine.

    Attributes:
        schedule: as `anabranch split --schedule`: `weighted`, `weights:0.6,0.4`, `batched`, ...
        every: the length of a run: `50p`, `~50p`, `50-70p`, `100ms`, `~100ms`, `80-120ms`,
            `grow:10-100ms` or `never`; None is the schedule's own (`batched`, `hywf`), which others
            have not.
        paths: how many, from 1.
        mode: `follow` or `follow:20ms`: a schedule for the client's packets; an unaltered server
            sends where it was last reached from, a round-trip time late (20 ms if not given), and
            stays there while the client is silent. `independent`: a schedule for each direction, as
            a splitter with a far end has. `together`: one for both, as in the CoMPS evaluation.
        delays: seconds added on each path, to both directions or (up, down); none if empty.
        resplits: how many splits of each load `replicas` makes.
        seed: of all draws, 0 to 2^64 - 1.
        draw: how long chances that a schedule draws are kept: `load`: each load has its own;
            `session:20`: twenty loads of a run that follow by number have the same, as in a
            splitter's session; `silence:1s`: anew after each silence of the scheduled packets, as
            with `anabranch split --redraw 1s`.

    Raises:
        SplitError: if a setting is wrong.
    """

    schedule: str = "weighted"
    every: str | None = "50p"
    paths: int = 3
    mode: str = "together"
    delays: tuple[Delay, ...] = ()
    resplits: int = 1
    seed: int = 0
    draw: str = "load"

    def __post_init__(self) -> None:
        if not 1 <= self.resplits <= MOST_RESPLITS:
            raise SplitError(f"resplits: {self.resplits}, give 1 to {MOST_RESPLITS}")
        if not 1 <= self.paths <= _core.MOST_PATHS:
            raise SplitError(f"paths: {self.paths}, give 1 to {_core.MOST_PATHS}")
        if not 0 <= self.seed < 1 << 64:
            raise SplitError(f"seed: {self.seed} is not from 0 to 2^64 - 1")
        self._core()

    @property
    def run_length(self) -> str:
        """`every`, or the schedule's own."""
        every = self.every or published_every(self.schedule)
        if every is None:
            raise SplitError(f"every: '{self.schedule}' has no run length of its own: give one")
        return every

    def __str__(self) -> str:
        text = f"{self.schedule} --every {self.run_length} --paths {self.paths} --mode {self.mode}"
        text += "" if self.draw == "load" else f" --draw {self.draw}"
        return text + "".join(f" --delay {_delay_text(delay)}" for delay in self.delays)

    def split(self, traces: Traces, replica: int = 0) -> Traces:
        """The same packets with their paths, as split number `replica` of each load draws them.

        Without delays, times and sizes are shared with `traces`, not copied. With delays, each
        load's packets are sorted by their new times; packets of equal time keep their order. A
        load's paths depend on its `load`, its `run` and `replica`, not on what else is there.

        Where paths delay, each packet keeps the counter that it was sent with (`Traces.counted`).

        Raises:
            TraceError: if the traces are split already, or have no times where runs end by time.
        """
        self._fits(traces)
        core = self._core()
        flat = np.ascontiguousarray
        where = (flat(traces.offsets), flat(traces.times), flat(traces.sizes))
        paths = core.assign(flat(traces.load), flat(traces.run), *where, replica)
        facts = replace(
            traces.facts,
            paths=tuple(str(path) for path in range(self.paths)),
            schedule=str(self),
            seed=self.seed,
        )
        if not self.delays:
            return replace(traces, paths=paths, facts=facts)
        order, times = core.delay(*where, paths)
        counters = traces.counted().counters
        assert counters is not None  # for mypy: `counted` has made them
        return replace(
            traces,
            times=times,
            sizes=traces.sizes[order],
            paths=paths[order],
            counters=counters[order],
            facts=facts,
        )

    def replicas(self, traces: Traces) -> Iterator[Traces]:
        """Each of the `resplits` splits, one at a time."""
        for replica in range(self.resplits):
            yield self.split(traces, replica)

    def _core(self) -> _core.TraceSplit:
        pairs = [delay if isinstance(delay, tuple) else (delay, delay) for delay in self.delays]
        settings = (self.schedule, self.run_length, self.paths, self.mode, self.seed)
        try:
            return _core.TraceSplit(*settings, pairs or None, self.draw)
        except ValueError as error:
            raise SplitError(str(error)) from error

    def _fits(self, traces: Traces) -> None:
        if traces.paths is not None and (traces.paths >= 0).any():
            raise TraceError("these traces are split already", column="path")
        if traces.timeless and self.run_length.endswith("s"):
            problem = f"these traces have no times, so {self.run_length} ends no run: use packets"
            raise TraceError(problem, column="time")
        if traces.timeless and (self.mode.startswith("follow") or self.draw.startswith("silence")):
            problem = f"these traces have no times that --mode {self.mode} --draw {self.draw} needs"
            raise TraceError(problem, column="time")
        if traces.timeless and self.delays:
            raise TraceError("these traces have no times that paths could delay", column="time")


def merge(parts: Sequence[Traces]) -> Traces:
    """What observers of several paths see together: packets of each load sorted by time.

    Every part holds the same loads in the same order, as `Traces.on_paths` leaves them. Packets
    of equal time stand in the order of `parts`.

    Raises:
        TraceError: if the parts hold different loads.
    """
    first = parts[0]
    for part in parts:
        if not (np.array_equal(part.load, first.load) and np.array_equal(part.run, first.run)):
            raise TraceError("the parts hold different loads", column="load")
    owners = np.concatenate([part.owners for part in parts])
    times = np.concatenate([part.times for part in parts])
    order = np.lexsort((times, owners))
    paths = [part.paths for part in parts if part.paths is not None]
    counters = [part.counters for part in parts if part.counters is not None]
    return replace(
        first,
        offsets=np.sum([part.offsets for part in parts], axis=0, dtype=np.int64),
        times=times[order],
        sizes=np.concatenate([part.sizes for part in parts])[order],
        paths=np.concatenate(paths)[order] if len(paths) == len(parts) else None,
        counters=np.concatenate(counters)[order] if len(counters) == len(parts) else None,
    )


def _delay_text(delay: Delay) -> str:
    return f"{delay[0]}/{delay[1]}" if isinstance(delay, tuple) else str(delay)
