"""Settings and designs under readable names.

A *setting* is the defender's choice: schedule, run length, paths, padding. A *design* is the
attacker's training and test: loads, re-splits, epochs, seed. Results are comparable only if their
designs are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from anabranch import registry
from anabranch.defences import FAMILIES
from anabranch.evaluate import Spec
from anabranch.evaluate.attack import known
from anabranch.splitting import Delay

EXPECTED = tuple(row.name for row in registry.ATTACKS if row.expected)
"""Attacks of a full report; those without results are shown as not run."""

SCHEDULES: Mapping[str, str] = {
    "round-robin": "RR",
    "uniform": "UR",
    "weighted": "WR",
    "weights": "fixed weights",
    "batched": "TrafficSliver",
    "hywf": "HyWF",
}
"""Short names of schedules (the paper's, if it has one), in the order of tables."""

_LENGTH = re.compile(r"~?(\d+)(?:-(\d+))?(p|ms|s)")
_UNITS = {"p": (0, 1), "ms": (1, 1), "s": (1, 1000)}


@dataclass(frozen=True, slots=True)
class Setting:
    """The defender's choices; without arguments, no defence.

    Attributes:
        schedule: the schedule with its parameters, or None if the lab does not split.
        every: the run length in use.
        paths: number of paths; 1 without a split.
        mode, delays, defence, path_defence, draw: as in `Spec`.
        recorded: the split in which the traces were recorded, or None.
    """

    schedule: str | None = None
    every: str | None = None
    paths: int = 1
    mode: str = "together"
    delays: tuple[Delay, ...] = ()
    defence: str | None = None
    path_defence: str | None = None
    recorded: str | None = None
    draw: str = "load"

    @classmethod
    def of(cls, spec: Spec, recorded: str | None = None) -> Self:
        """Returns the setting of an evaluation."""
        split, padding = spec.split(), (spec.padding.defence, spec.padding.path_defence)
        if split is None:
            return cls(None, None, 1, "together", (), *padding, recorded)
        length = split.run_length
        ends = (split.mode, split.delays)
        return cls(str(split.schedule), length, split.paths, *ends, *padding, draw=split.draw)

    @property
    def splits(self) -> bool:
        """Whether there is more than one path, by our split or a recorded one."""
        return self.schedule is not None or self.recorded is not None

    def like(self, other: Setting) -> bool:
        """Returns whether `self` is the setting that the paper describes as `other`.

        The paper does not distinguish `together` and `independent`, or configurations of WTF-PAD.
        It has neither `follow`, delays, padding of paths nor `draw`. Recorded splits match if the
        families of their schedules and their run lengths are equal, because the paper gives no
        more details of its own.
        """
        if self.delays or self.path_defence:
            return False
        if _recorded(self.recorded) != _recorded(other.recorded):
            return False
        if self.mode.startswith("follow") or self.draw != "load":
            return False
        mine, theirs = (each.defence and each.defence.partition(":")[0] for each in (self, other))
        split = (self.schedule, self.every, self.paths)
        return split == (other.schedule, other.every, other.paths) and mine == theirs

    def __str__(self) -> str:
        parts = [_padding(self.defence)] if self.defence else []
        if self.schedule is not None:
            parts.append(f"{_schedule(self.schedule)} {_length(self.every)} × {self.paths}")
        if self.recorded:
            parts.append(f"as recorded ({self.recorded})")
        if self.path_defence:
            parts.append(f"{_padding(self.path_defence)} on each path")
        text = " + ".join(parts) or "undefended"
        notes = ["separate ends"] if self.mode == "independent" else []
        notes += [_following(self.mode)] if self.mode.startswith("follow") else []
        notes += [_drawn(self.draw)] if self.draw != "load" else []
        notes += [f"delays {', '.join(map(_delay, self.delays))} s"] if self.delays else []
        return f"{text} ({'; '.join(notes)})" if notes else text

    @property
    def place(self) -> tuple[object, ...]:
        """The setting's place in tables: undefended, split, padded, both; then by schedule."""
        schedule = self.schedule or ""
        every = self.every or ""
        names = list(SCHEDULES)
        family = schedule.partition(":")[0]
        rank = names.index(family) if family in names else len(names)
        found = _LENGTH.fullmatch(every)
        unit, factor = _UNITS[found[3]] if found else (2, 1)
        length = int(found[1]) * factor if found else 0
        run = (unit, length, every.startswith("~"), every, self.paths)
        return (*self.group, rank, schedule, *run, str(self))

    @property
    def group(self) -> tuple[bool, bool]:
        """The setting's group in tables: whether it is padded, and whether it is split."""
        return (self.defence is not None or self.path_defence is not None, self.splits)


def design(spec: Spec, data: str = "", *, whole: bool = True) -> str:
    """Describes the attacker's training and test, in short: `full · R 5 · 30 epochs · seed 0`.

    Args:
        spec: settings of the evaluation.
        data: name of the data, if a page has several.
        whole: whether to add the attack's own parameters; otherwise `†` marks that there are some.
    """
    used = spec.design
    parts = [data] if data else []
    parts += [f"{used.pages} pages"] if used.pages is not None else []
    parts.append("full" if used.loads is None else f"{used.loads} loads")
    if spec.splitting.schedule is not None or spec.padding:
        parts.append(f"R {spec.training.resplits}")
    parts += ["+ whole traces"] if spec.training.merged else []
    if spec.training.on is not None:
        loads = "others" if spec.training.uses_other_traces else "unsplit loads"
        parts.append(f"trained on {loads}")
    epochs, others = _training(spec)
    parts += epochs
    parts += others if whole else []
    paper = used.protocol == "paper"
    parts += [f"{used.folds} of 10 folds"] if paper and used.folds != 1 else []
    for name in ("validation_loads", "test_loads", "validation_run", "test_run"):
        value = getattr(used, name)
        parts += [] if value is None else [f"{name.replace('_', ' ')} {value}"]
    if used.world == "open":
        parts += [f"{used.monitored or 'all'} monitored"] if used.monitored != 50 else []
        parts += [f"r {spec.scoring.r:g}"] if spec.scoring.r != 20 else []
    mark = " †" if others and not whole else ""
    return " · ".join([*parts, f"seed {spec.seed}"]) + mark


def full(spec: Spec) -> bool:
    """Returns whether all pages and all training and test loads are used.

    Re-splits and validation loads do not matter.
    """
    limits = (spec.design.pages, spec.design.loads, spec.design.test_loads)
    return all(limit is None for limit in limits)


def observer(text: str) -> str:
    """Returns the readable name of an observer."""
    place, _, more = text.partition("+")
    rule, _, number = place.partition(":")
    labels = {row.syntax: row.label for row in registry.OBSERVERS}
    label = labels.get(f"{rule}:K" if number else rule, place).replace("K", number)
    return label + (f", {registry.EXTRAS[more]}" if more in registry.EXTRAS else "")


def attack(name: str) -> str:
    """Returns the readable name of an attack."""
    row = registry.BY_NAME.get(name)
    return name if row is None else row.label


def attack_place(name: str) -> tuple[int, str]:
    """Returns the position of an attack in tables."""
    names = list(registry.BY_NAME)
    return (names.index(name) if name in names else len(names), name)


def _training(spec: Spec) -> tuple[list[str], list[str]]:
    """Returns the epochs, given or by default, and the other parameters that were given."""
    given = dict(spec.attack.parameters)
    kind = known(spec.attack.name)
    defaults = {} if kind is None else kind().get_params(deep=False)
    epochs = given.pop("epochs", defaults.get("epochs"))
    given.pop("jobs", None)  # the result does not depend on it
    others = [f"{name.replace('_', ' ')} {value}" for name, value in given.items()]
    return ([] if epochs is None else [f"{epochs} epochs"]), others


def _recorded(text: str | None) -> tuple[str, ...] | None:
    """Returns the words of a recorded split, with the schedule's family (`weighted`) as the first.

    The parameters of the schedule (`weighted:4`) are left out.
    """
    if text is None:
        return None
    schedule, *rest = text.split()
    return (schedule.partition(":")[0], *rest)


def _schedule(text: str) -> str:
    name, colon, rest = text.partition(":")
    return SCHEDULES.get(name, name) + colon + rest


def _length(every: str | None) -> str:
    found = _LENGTH.fullmatch(every or "")
    if found is None or found[3] == "p":
        return every or ""
    return f"{(every or '').removesuffix(found[3])} {found[3]}"


def _following(mode: str) -> str:
    _, colon, late = mode.partition(":")
    return "the server follows" + (f" {late} late" if colon else "")


def _drawn(draw: str) -> str:
    rule, _, much = draw.partition(":")
    return (
        f"probabilities kept for {much} loads"
        if rule == "session"
        else f"new probabilities after {much}"
    )


def _padding(text: str) -> str:
    name, colon, rest = text.partition(":")
    label = FAMILIES[name].label if name in FAMILIES else ""
    return (label or name) + colon + rest


def _delay(delay: Delay) -> str:
    return f"{delay[0]:g}/{delay[1]:g}" if isinstance(delay, tuple) else f"{delay:g}"
