"""Splits traces over paths, by the Rust trace splitter or by third-party schedules."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch import _core, plugins
from anabranch.traces import OPTIONAL, Traces
from anabranch.validate import TraceError, TraceWarning

MOST_RESPLITS = 10_000
"""Maximum number of splits of one load, far more than an attack can benefit from."""

Delay = float | tuple[float, float]
"""Delay of a path in seconds: for both directions, or (up, down)."""


class SplitError(ValueError):
    """Error of a split that cannot be made; the message names the setting."""


DEFAULT_SCHEDULE, DEFAULT_EVERY = _core.DEFAULT_SCHEDULE, _core.DEFAULT_EVERY
"""Default schedule and run length, as in `anabranch split`."""


_TOGETHER = "mode together"
"""Beginning of the warning about the mode `together`; `after_warning` filters by it."""

_STREAM = 0x6465616C
"""Part of the seed of third-party schedules' draws: independent of all other draws."""


class Schedule(ABC):
    """Base class of third-party schedules in Python, which can split only recorded traces.

    The `str` of a schedule is stored in results, and should contain its parameters.
    """

    @abstractmethod
    def assign(
        self,
        times: NDArray[np.float64],
        sizes: NDArray[np.int32],
        paths: int,
        chance: np.random.Generator,
    ) -> ArrayLike:
        """Assigns a path to each packet of a load: integers (packets,) from 0 to `paths` - 1.

        Args:
            times: float64 (packets,), seconds, ascending.
            sizes: int32 (packets,), + from client to server, - from server to client.
            paths: number of paths.
            chance: random generator of this load; use no other randomness, so that results are
                reproducible.
        """


def published_every(schedule: str | Schedule) -> str | None:
    """Returns the published run length of a schedule, or None if it has none.

    For third-party schedules, which end runs themselves, it is `never`.

    Raises:
        SplitError: if the schedule does not exist.
    """
    if isinstance(schedule, Schedule):
        return "never"
    name = schedule.partition(":")[0]
    for family, _, _, every in _core.families():
        if family == name:
            return every
    if plugins.find("schedules", name) is not None:
        return "never"
    syntaxes = [syntax for _, syntax, _, _ in _core.families()]
    known = ", ".join([*syntaxes, *plugins.names("schedules")])
    raise SplitError(f"schedule: there is no schedule '{name}'; choose one of {known}")


def usual_mode(schedule: str | Schedule | None, path_defence: str | None = None) -> str:
    """Returns the default `mode` of a split.

    It is usually `follow` (a splitter with an unmodified server). It is `independent` (a far end)
    for padding of paths and for schedules of other systems (`batched`, `hywf`), because only a far
    end can remove padding and schedule the downlink. It is `together` for third-party schedules,
    which decide for both directions themselves, and for traces that are not split.
    """
    if isinstance(schedule, Schedule):
        return "together"
    name = "" if schedule is None else schedule.partition(":")[0]
    families = {family: every for family, _, _, every in _core.families()}
    if schedule is None or (name not in families and plugins.find("schedules", name) is not None):
        return "together"
    far_end = families.get(name) is not None or path_defence is not None
    return "independent" if far_end else "follow"


def parse_delay(text: str) -> Delay:
    """Parses `0.02`, or `0/0.02` (up and down).

    Raises:
        SplitError: if `text` has neither form.
    """
    try:
        up, *down = (float(part) for part in text.split("/"))
    except ValueError:
        raise SplitError(
            f"'{text}' is not a delay: expected seconds (0.02) or up/down (0/0.02)"
        ) from None
    if len(down) > 1:
        raise SplitError(f"'{text}' is not a delay: expected seconds (0.02) or up/down (0/0.02)")
    return (up, down[0]) if down else up


def warn_together(splits: int = 1, of: int = 1, stacklevel: int = 2) -> None:
    """Warns if no program could split live traffic as some of the evaluations do.

    Args:
        splits: number of evaluations with such a split.
        of: number of all evaluations.
        stacklevel: as if the caller called `warnings.warn`.
    """
    if not splits:
        return
    said = "" if of == 1 else f"{splits} of {of} evaluations: "
    warnings.warn(
        f"{said}{_TOGETHER}: no program changes paths at both ends at the same time; use "
        "follow for an unmodified server, or independent for a far end",
        TraceWarning,
        stacklevel=stacklevel + 1,
    )


@contextmanager
def after_warning() -> Iterator[None]:
    """Suppresses the warning of `Split.split`, because `warn_together` was called before."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _TOGETHER, TraceWarning)
        yield


def _from_outside(schedule: str | Schedule) -> Schedule | None:
    """Returns a third-party schedule; None for a built-in or unknown one.

    If `schedule` is text, as `name:parameters`, the package of the name makes the schedule.
    """
    if isinstance(schedule, Schedule):
        return schedule
    name, _, rest = schedule.partition(":")
    if any(family == name for family, *_ in _core.families()):
        return None
    found = plugins.find("schedules", name)
    if found is None:
        return None
    try:
        made = found.thing(rest) if rest else found.thing()
    except Exception as error:
        raise SplitError(f"schedule: '{schedule}': {plugins.describe(error)}") from error
    if not isinstance(made, Schedule):
        raise SplitError(f"schedule: the package of '{name}' does not provide a Schedule")
    return made


@dataclass(frozen=True, slots=True)
class Split:
    """A split of traces over paths. Equal values split equal traces equally, on every machine.

    Attributes:
        schedule: as `anabranch split --schedule` (`weighted`, `weights:0.6,0.4`, `batched`, ...),
            or a third-party `Schedule` or its name. A third-party schedule decides for both
            directions of each load itself: its `every` is `never`, its `mode` `together`, its
            `draw` `load`.
        every: the length of a run: `50p`, `~50p`, `50-70p`, `100ms`, `~100ms`, `80-120ms`,
            `grow:10-100ms` or `never`. None is the schedule's own length, if it has one
            (`batched`, `hywf`).
        paths: number of paths, from 1.
        mode: which directions the schedule controls. `follow` or `follow:20ms`: only client to
            server; an unmodified server sends to the address of the last packet it received, one
            round-trip time late (20 ms by default), and does not change paths while the client is
            silent. `independent`: one schedule for each direction, as with a splitter and a far
            end. `together`: one schedule for both directions, as in the CoMPS evaluation; no
            program can do this, so for built-in schedules it must be given explicitly. Empty:
            `usual_mode` of the schedule.
        delays: seconds of delay on each path, in both directions or (up, down); none if empty.
        resplits: number of splits of each load that `replicas` makes.
        seed: seed of all draws, 0 to 2^64 - 1.
        draw: how long a schedule keeps its drawn probabilities: `load`: each load has its own;
            `session:20`: twenty consecutive loads of a run have the same, as in a splitter's
            session; `silence:1s`: redrawn after each silence of the scheduled packets, as with
            `anabranch split --redraw 1s`.

    Raises:
        SplitError: if a setting is wrong.
    """

    schedule: str | Schedule = "weighted"
    every: str | None = "50p"
    paths: int = 3
    mode: str = ""
    delays: tuple[Delay, ...] = ()
    resplits: int = 1
    seed: int = 0
    draw: str = "load"

    def __post_init__(self) -> None:
        if not self.mode:
            object.__setattr__(self, "mode", usual_mode(self.schedule))
        if not 1 <= self.resplits <= MOST_RESPLITS:
            raise SplitError(f"resplits: {self.resplits} is not from 1 to {MOST_RESPLITS}")
        if not 1 <= self.paths <= _core.MOST_PATHS:
            raise SplitError(f"paths: {self.paths} is not from 1 to {_core.MOST_PATHS}")
        if not 0 <= self.seed < 1 << 64:
            raise SplitError(f"seed: {self.seed} is not from 0 to 2^64 - 1")
        self._core()
        if _from_outside(self.schedule) is not None:
            usual = {"every": (self.run_length, "never"), "mode": (self.mode, "together")}
            usual["draw"] = (self.draw, "load")
            for name, (value, only) in usual.items():
                if value != only:
                    raise SplitError(
                        f"{name}: the schedule '{self.schedule}' is from another "
                        f"package and allows only {only}"
                    )

    @property
    def run_length(self) -> str:
        """`every`, or the schedule's own run length."""
        every = self.every or published_every(self.schedule)
        if every is None:
            raise SplitError(
                f"every: '{self.schedule}' has no default for when it changes the path: "
                "give a value of `every`, such as 50p"
            )
        return every

    @property
    def is_simulation_only(self) -> bool:
        """Whether no program can make this split: a built-in schedule in the mode `together`."""
        return self.mode == "together" != usual_mode(self.schedule)

    def __str__(self) -> str:
        text = f"{self.schedule} --every {self.run_length} --paths {self.paths} --mode {self.mode}"
        text += "" if self.draw == "load" else f" --draw {self.draw}"
        return text + "".join(f" --delay {_delay_text(delay)}" for delay in self.delays)

    def split(self, traces: Traces, replica: int = 0) -> Traces:
        """Returns the packets with their paths, as drawn in split `replica` of each load.

        Without delays, times and sizes are shared with `traces`, not copied. With delays, each
        load's packets are sorted by their new times; packets of equal time keep their order, and
        each packet keeps the counter that it was sent with (`Traces.counted`). A load's paths
        depend on its `load`, its `run` and `replica`, not on the other loads. A split that no
        program can make (`is_simulation_only`) gives a warning.

        Raises:
            TraceError: if the traces are split already, or have no times where runs end by time.
        """
        self._fits(traces)
        if self.is_simulation_only:
            warn_together()
        core, own = self._core(), _from_outside(self.schedule)
        flat = np.ascontiguousarray
        where = (flat(traces.offsets), flat(traces.times), flat(traces.sizes))
        if own is None:
            paths = core.assign(flat(traces.load), flat(traces.run), *where, replica)
        else:
            paths = self._assigned(own, traces, replica)
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
        assert counters is not None  # for mypy: `counted` always sets them
        return replace(
            traces,
            times=times,
            sizes=traces.sizes[order],
            paths=paths[order],
            facts=facts,
            **(traces.optional(order) | {"counters": counters[order]}),
        )

    def replicas(self, traces: Traces) -> Iterator[Traces]:
        """Yields each of the `resplits` splits, one at a time."""
        for replica in range(self.resplits):
            yield self.split(traces, replica)

    def _assigned(self, own: Schedule, traces: Traces, replica: int) -> NDArray[np.int16]:
        """Returns int16 (packets,): paths by a third-party schedule, load by load."""
        paths = np.zeros(traces.times.size, np.int16)
        for k, (load, run) in enumerate(zip(traces.load, traces.run, strict=True)):
            packets = traces.packets(k)
            key = [_STREAM, self.seed, replica, int(run) % 2**32, int(load) % 2**64]
            chance = np.random.default_rng(key)
            parts = (traces.times[packets], traces.sizes[packets], self.paths, chance)
            try:
                given = np.asarray(own.assign(*parts))
            except Exception as error:
                raise SplitError(f"schedule: '{own}': {plugins.describe(error)}") from error
            wanted = (packets.stop - packets.start,)
            if given.shape != wanted or (given.size and given.dtype.kind not in "iu"):
                raise SplitError(f"schedule: '{own}' must return one whole number for each packet")
            if given.size and not 0 <= given.min() <= given.max() < self.paths:
                raise SplitError(
                    f"schedule: '{own}' returned a path that is not from 0 to {self.paths - 1}"
                )
            paths[packets] = given
        return paths

    def _core(self) -> _core.TraceSplit:
        pairs = [delay if isinstance(delay, tuple) else (delay, delay) for delay in self.delays]
        # The core also applies the delays; a third-party schedule only assigns paths.
        ours = self.schedule if isinstance(self.schedule, str) else None
        if ours is None or _from_outside(ours) is not None:
            ours = "round-robin"
        settings = (ours, self.run_length, self.paths, self.mode, self.seed)
        try:
            return _core.TraceSplit(*settings, pairs or None, self.draw)
        except ValueError as error:
            raise SplitError(str(error)) from error

    def _fits(self, traces: Traces) -> None:
        # A recording on a single path counts as unsplit.
        if traces.paths is not None and np.unique(traces.paths).size > 1:
            raise TraceError("these traces are already split: give unsplit ones", column="path")
        if traces.timeless and self.run_length.endswith("s"):
            problem = f"these traces have no times, which {self.run_length} needs: give packets"
            raise TraceError(problem, column="time")
        if traces.timeless and (self.mode.startswith("follow") or self.draw.startswith("silence")):
            problem = (
                f"these traces have no times, which --mode {self.mode} --draw {self.draw} needs: "
                "use --mode independent"
            )
            raise TraceError(problem, column="time")
        if traces.timeless and self.delays:
            raise TraceError(
                "these traces have no times, which delays of paths need", column="time"
            )


def merge(parts: Sequence[Traces]) -> Traces:
    """Merges the views of observers of different paths; each load's packets are sorted by time.

    Every part has the same loads in the same order, as `Traces.on_paths` returns them. Packets of
    equal time are in the order of `parts`.

    Raises:
        TraceError: if the parts contain different loads.
    """
    first = parts[0]
    for part in parts:
        if not (np.array_equal(part.load, first.load) and np.array_equal(part.run, first.run)):
            raise TraceError("the parts have different loads", column="load")
    owners = np.concatenate([part.owners for part in parts])
    times = np.concatenate([part.times for part in parts])
    order = np.lexsort((times, owners))
    paths = [part.paths for part in parts if part.paths is not None]
    optional = {
        name: [getattr(part, name) for part in parts if getattr(part, name) is not None]
        for name in OPTIONAL.values()
    }
    joined: dict[str, Any] = {
        name: np.concatenate(each)[order] if len(each) == len(parts) else None
        for name, each in optional.items()
    }
    return replace(
        first,
        offsets=np.sum([part.offsets for part in parts], axis=0, dtype=np.int64),
        times=times[order],
        sizes=np.concatenate([part.sizes for part in parts])[order],
        paths=np.concatenate(paths)[order] if len(paths) == len(parts) else None,
        **joined,
    )


def _delay_text(delay: Delay) -> str:
    return f"{delay[0]}/{delay[1]}" if isinstance(delay, tuple) else str(delay)
