"""The settings of one evaluation by concern. Each part checks its own settings.

Messages use the names of settings in files and options (`anabranch.evaluate.flat`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.attacks import Attack
from anabranch.defences import Decoys, Defence, parse
from anabranch.evaluate.attack import class_of, known, make
from anabranch.metrics.bootstrap import MOST_RESAMPLES
from anabranch.observers import SettingError
from anabranch.registry import ALIASES
from anabranch.splitting import Delay, Split


@dataclass(frozen=True, slots=True)
class Splitting:
    """Settings of the split over paths.

    Attributes:
        schedule: schedule of the split, as `anabranch-lab split --schedule`; None for no split, or
            for the split of the recording.
        every, paths, mode, delays, draw: as in `Split`. A `Spec` replaces an empty mode by
            `usual_mode` for the schedule and the padding of each path.

    Raises:
        SplitError: if a setting is wrong.
    """

    schedule: str | None = None
    every: str | None = None
    paths: int = 3
    mode: str = ""
    delays: tuple[Delay, ...] = ()
    draw: str = "load"

    def __post_init__(self) -> None:
        self.split()

    def split(self, resplits: int = 1, seed: int = 0) -> Split | None:
        """Returns the split, or None without a schedule.

        Raises:
            SplitError: if `resplits` or `seed` is wrong.
        """
        # The split is always constructed, so that 0 paths are rejected even without a schedule.
        whole = self.schedule is None
        split = Split(
            "uniform" if self.schedule is None else self.schedule,
            "never" if whole else self.every,
            self.paths,
            self.mode,
            self.delays,
            resplits,
            seed,
            self.draw,
        )
        return None if whole else split

    @property
    def session(self) -> int | None:
        """Number of loads in a session; None without sessions.

        The schedule keeps its drawn probabilities for all loads of a session.
        """
        rule, _, loads = self.draw.partition(":")
        return int(loads) if rule == "session" else None


@dataclass(frozen=True, slots=True)
class Padding:
    """Settings of padding.

    Attributes:
        defence: padding of whole loads before the split, in the syntax of
            `anabranch.defences.parse`; None for none.
        path_defence: padding of each path separately after the split, in the same syntax; None for
            none.

    Raises:
        DefenceError, SettingError: if a setting is wrong.
    """

    defence: str | None = None
    path_defence: str | None = None

    def __post_init__(self) -> None:
        before, _ = self.stages()
        if isinstance(before, Decoys):
            raise SettingError(
                "defence: decoys are added to paths after the split: use path_defence"
            )

    def __bool__(self) -> bool:
        """Returns whether there is any padding."""
        return self.defence is not None or self.path_defence is not None

    def stages(self) -> tuple[Defence | None, Defence | None]:
        """Returns the defence for whole loads, and the defence for each path."""
        before, after = (None if text is None else parse(text)
                         for text in (self.defence, self.path_defence))  # fmt: skip
        return before, after


@dataclass(frozen=True, slots=True)
class AttackSettings:
    """Name and parameters of an attack.

    Attributes:
        name: name of the attack. For a third-party attack, it is the name that `name_of` or `add`
            of `evaluate.attack` returned. Only the evaluation checks that the attack exists, so
            that its results can be read where it is not installed.
        parameters: parameters of the attack; its seed is that of the `Spec` unless given here.

    Raises:
        SettingError: if there is no such attack or parameter, or one is out of range.
    """

    name: str = "k-fp"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", ALIASES.get(self.name, self.name))
        if self.is_known:
            self.make(0)

    @property
    def is_known(self) -> bool:
        """Whether the attack is built in, or is a third-party attack that is installed."""
        return known(self.name) is not None

    def make(self, seed: int) -> Attack:
        """Creates the attack, not yet fitted.

        Raises:
            SettingError: if the attack is not installed, or the seed is out of range.
        """
        return make(self.name, self.parameters, seed)

    @property
    def kind(self) -> type[Attack]:
        """The class of the attack.

        Raises:
            SettingError: if it was not found.
        """
        return class_of(self.name)


@dataclass(frozen=True, slots=True)
class Training:
    """Settings of the training set.

    Attributes:
        resplits: number of splits of each training load.
        merged: whether training also uses whole traces, in addition to the split ones.
        on: `train_on` in files: the data for training and validation. None: the tested data.
            `unsplit`: the whole loads before padding and split, for an attacker that does not know
            of the defence. `data:` and a digest: other traces with the same pages.

    Raises:
        SettingError: if a setting is wrong.
    """

    resplits: int = 1
    merged: bool = False
    on: str | None = None

    def __post_init__(self) -> None:
        if self.on is None:
            return
        if self.on != "unsplit" and not self.uses_other_traces:
            raise SettingError(f"train_on: '{self.on}' is unknown: expected unsplit or data:NAME")
        if self.resplits > 1 or self.merged:
            raise SettingError(
                "train_on: training uses no split traces: leave out resplits and merged"
            )

    @property
    def copies(self) -> int:
        """Number of samples made of each training load."""
        return self.resplits + self.merged

    @property
    def uses_other_traces(self) -> bool:
        """Whether training uses traces of another file."""
        return self.on is not None and self.on.startswith("data:")


@dataclass(frozen=True, slots=True)
class Scoring:
    """Settings of the metrics.

    Attributes:
        r: number of unmonitored loads for each monitored one.
        bootstrap: number of resamples for the intervals.

    Raises:
        SettingError: if a setting is wrong.
    """

    r: float = 20.0
    bootstrap: int = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.r < math.inf:
            raise SettingError(f"r: {self.r:g} is not a number of 0 or more")
        if not 1 <= self.bootstrap <= MOST_RESAMPLES:
            raise SettingError(f"bootstrap: {self.bootstrap} is not from 1 to {MOST_RESAMPLES}")
