"""The settings of one evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self, get_type_hints

from anabranch.defences import Decoys, Pipeline, parse
from anabranch.evaluate.attack import known, make, refuse_counter
from anabranch.metrics.bootstrap import MOST_RESAMPLES
from anabranch.observers import Observer, SettingError, unknown
from anabranch.protocol import PAPER_PARTS, Design, World
from anabranch.registry import ALIASES
from anabranch.splitting import Delay, Split, usual_mode


@dataclass(frozen=True, slots=True)
class Spec:
    """Settings of one evaluation. Equal settings, data and versions give equal results.

    Attributes:
        schedule: schedule of the split, as `anabranch-lab split --schedule`; None leaves traces
            whole (or split as they were recorded).
        every, paths, mode, delays, draw: of the split, as in `Split`. An empty mode means
            `usual_mode` for the schedule and the padding of each path.
        defence: padding of whole loads before the split, in the syntax of
            `anabranch.defences.parse`; None for none.
        path_defence: padding of each path separately, after the split.
        observer: `random`, `largest`, `any`, `merged` or `merged:K`. Add `+counter` if packets show
            a cleartext counter, or `+earlier` if the observer knows the session's earlier loads.
        attack: name of the attack. The name of a third-party attack is that returned by
            `evaluate.attack` (`name_of`, `add`). If no such attack is found, it is checked only by
            the evaluation.
        parameters: parameters of the attack; its seed is `seed` unless given here.
        protocol: `honest` or `paper`.
        folds: number of folds in the paper's protocol, 1 to 10.
        world, pages, monitored, loads, validation_loads, test_loads, test_run, validation_run: as
            in `Design`.
        resplits: number of splits of each training load.
        merged: whether training also uses whole traces, in addition to the split ones.
        r: number of unmonitored loads for each monitored one.
        bootstrap: number of resamples for the intervals.
        seed: seed of every random draw.
        train_on: data on which the attacker trains and validates, if they differ from those it
            meets. `unsplit`: the whole loads before padding and split, since the attacker does not
            expect these. `data:` and a digest: other traces with the same pages. None: the same as
            it meets.

    Raises:
        SettingError, SplitError, AttackError, DefenceError: if a setting is wrong.
    """

    schedule: str | None = None
    every: str | None = None
    paths: int = 3
    mode: str = ""
    delays: tuple[Delay, ...] = ()
    draw: str = "load"
    defence: str | None = None
    path_defence: str | None = None
    observer: str = "random"
    attack: str = "k-fp"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    protocol: Literal["honest", "paper"] = "honest"
    folds: int = 1
    world: World = "closed"
    pages: int | None = None
    monitored: int | None = None
    loads: int | None = None
    validation_loads: int | None = None
    test_loads: int | None = None
    test_run: int | None = None
    validation_run: int | None = None
    resplits: int = 1
    merged: bool = False
    r: float = 20.0
    bootstrap: int = 1000
    seed: int = 0
    train_on: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "attack", ALIASES.get(self.attack, self.attack))
        if not self.mode:
            object.__setattr__(self, "mode", usual_mode(self.schedule, self.path_defence))
        if self.seed < 0:
            raise SettingError(f"seed: {self.seed} is negative")
        if self.protocol not in ("honest", "paper"):
            raise SettingError(f"protocol: '{self.protocol}' is unknown: expected honest or paper")
        if not 1 <= self.folds <= PAPER_PARTS:
            raise SettingError(f"folds: {self.folds} is not from 1 to {PAPER_PARTS}")
        if not 0 <= self.r < math.inf:
            raise SettingError(f"r: {self.r:g} is not a number of 0 or more")
        if not 1 <= self.bootstrap <= MOST_RESAMPLES:
            raise SettingError(f"bootstrap: {self.bootstrap} is not from 1 to {MOST_RESAMPLES}")
        observer = Observer.parse(self.observer)
        self._check_training()
        self.design()
        self.pipeline()
        # Results of a third-party attack can also be read where it is not installed.
        if known(self.attack) is not None:
            make(self.attack, self.parameters, self.seed)
            if observer.counter or observer.earlier:
                refuse_counter(self.attack)
        if observer.earlier and (self.schedule is None or self.session is None):
            raise SettingError(
                "observer: +earlier needs probabilities that several loads share: give a "
                "schedule with draw=session:N"
            )
        for name, text in (("defence", self.defence), ("path_defence", self.path_defence)):
            self._refuse_decoys(name, text)
        if observer.counter and self.path_defence is not None:
            raise SettingError(
                "path_defence: it needs a far end, which hides the packet counter: leave out "
                "+counter"
            )

    def _check_training(self) -> None:
        if self.train_on is None:
            return
        if self.train_on != "unsplit" and not self.train_on.startswith("data:"):
            raise SettingError(
                f"train_on: '{self.train_on}' is unknown: expected unsplit or data:NAME"
            )
        if self.protocol == "paper":
            raise SettingError(
                "train_on: the paper's protocol always trains on the tested traces: leave it out"
            )
        if self.resplits > 1 or self.merged:
            raise SettingError(
                "train_on: training uses no split traces: leave out resplits and merged"
            )
        if self.world == "open" and self.train_on != "unsplit":
            raise SettingError("train_on: training on other traces needs world=closed")

    @property
    def training(self) -> Spec:
        """Settings that produce the loads for training and validation."""
        if self.train_on is None:
            return self
        counter = "+counter" if Observer.parse(self.observer).counter else ""
        return replace(
            self,
            schedule=None,
            every=None,
            mode="together",
            delays=(),
            draw="load",
            defence=None,
            path_defence=None,
            observer=f"merged{counter}",
            train_on=None,
        )

    @property
    def is_simulation_only(self) -> bool:
        """Whether no program splits loads like this: a built-in schedule, at both ends at once."""
        split = self.split()
        return split is not None and split.is_simulation_only

    @property
    def session(self) -> int | None:
        """Number of loads in a session, which share their probabilities; None without sessions."""
        rule, _, loads = self.draw.partition(":")
        return int(loads) if rule == "session" else None

    def _refuse_decoys(self, name: str, text: str | None) -> None:
        """Rejects decoys before a split, or without a far end, which alone can drop them."""
        if text is None or not isinstance(parse(text), Decoys):
            return
        if name == "defence":
            raise SettingError(
                "defence: decoys are added to paths after the split: use path_defence"
            )
        if self.mode.startswith("follow"):
            raise SettingError(
                "path_defence: an unmodified server cannot recognise decoys: use a far end, "
                "with the mode together or independent"
            )

    def split(self) -> Split | None:
        """Returns the split of the loads, or None."""
        # Always made, so that a path count of 0 is rejected even without a split.
        whole = self.schedule is None
        split = Split(
            "uniform" if self.schedule is None else self.schedule,
            "never" if whole else self.every,
            self.paths,
            self.mode,
            self.delays,
            self.resplits,
            self.seed,
            self.draw,
        )
        return None if whole else split

    def pipeline(self) -> Pipeline:
        """Returns the stages that are set: padding of loads, the split, padding of each path."""
        padding = (self.defence, self.path_defence)
        before, after = (None if text is None else parse(text) for text in padding)
        split = self.split()
        return Pipeline([stage for stage in (before, split, after) if stage is not None])

    def design(self) -> Design:
        """Returns the settings that choose which loads are used."""
        return Design(**{item.name: getattr(self, item.name) for item in fields(Design)})

    def idle(self, recorded: bool | None = None) -> Iterator[tuple[str, str]]:
        """Yields settings without an effect, given the others, each with the reason.

        In a grid of settings, some are without effect in places. In a single evaluation, the user
        expects an effect of each given setting.

        Args:
            recorded: whether the traces are split already; None if that is not known yet.
        """
        for names, wanted, why in _IDLE:
            if not wanted(self):
                changed = (name for name in names if getattr(self, name) != self._usual(name))
                yield from ((name, why) for name in changed)
        if self.schedule is None and recorded is False and self.observer != "random":
            yield "observer", "without a split every observer sees everything"

    def _usual(self, name: str) -> Any:
        """Returns the value of a setting that is not given."""
        return usual_mode(self.schedule, self.path_defence) if name == "mode" else _default(name)

    def told(self, recorded: str | None = None) -> str:
        """Returns the settings in one line.

        Args:
            recorded: how the traces had been split when they were recorded.
        """
        split = str(self.split() or (f"split as {recorded}" if recorded else "not split"))
        parts = [text for text in (self.defence, split, self.path_defence) if text]
        parts += [f"observer {self.observer}", self.attack, f"{self.world} world", self.protocol]
        parts += [] if self.train_on is None else [f"trained on {self.train_on}"]
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Returns all settings, in the form for JSON."""
        return asdict(self) | {"parameters": dict(self.parameters), "delays": list(self.delays)}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Checks names and types, then builds a spec.

        Raises:
            SettingError: with the nearest name if one is unknown, or with the expected type.
        """
        types = get_type_hints(cls)
        for name, value in settings.items():
            if name not in types:
                raise SettingError(unknown("setting", name, types))
            if not _suits(name, value):
                raise SettingError(f"{name}: {value!r} is no {_KINDS[name]}")
        values = dict(settings)
        if "delays" in values:
            values["delays"] = tuple(
                tuple(delay) if isinstance(delay, list) else delay for delay in values["delays"]
            )
        return cls(**values)


_IDLE: tuple[tuple[tuple[str, ...], Callable[[Spec], bool], str], ...] = (
    (
        ("every", "paths", "mode", "delays", "draw"),
        lambda spec: spec.schedule is not None,
        "nothing is split without a schedule",
    ),
    (("folds",), lambda spec: spec.protocol == "paper", "only the paper's protocol has folds"),
    (
        ("validation_loads", "test_loads", "validation_run", "test_run"),
        lambda spec: spec.protocol == "honest",
        "the paper's protocol divides sub-traces 9:1",
    ),
    (
        ("monitored", "r"),
        lambda spec: spec.world == "open",
        "in a closed world all pages are monitored",
    ),
)
"""Settings, the condition under which they have an effect, and why they have none otherwise."""

_TEXTS = ("schedule", "every", "mode", "draw", "observer", "attack", "protocol", "world")
_MAYBE = ("defence", "path_defence", "train_on")
_KINDS: Mapping[str, str] = {
    **{item.name: "whole number" for item in fields(Spec)},
    **dict.fromkeys((*_TEXTS, *_MAYBE), "text"),
    "delays": "list of seconds, or of pairs up, down",
    "parameters": "table",
    "merged": "true or false",
    "r": "number",
}


def _default(name: str) -> Any:
    return Spec.__dataclass_fields__[name].default


def _suits(name: str, value: Any) -> bool:
    kind = _KINDS[name]
    if value is None:
        return _default(name) is None
    if kind == "text":
        return isinstance(value, str)
    if kind == "table":
        return isinstance(value, Mapping)
    if name == "merged":
        return isinstance(value, bool)
    if name == "delays":
        return isinstance(value, list | tuple) and all(map(_is_delay, value))
    numbers = int | float if name == "r" else int
    return isinstance(value, numbers) and not isinstance(value, bool)


def _is_delay(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) == 2 and all(map(_is_number, value))
    return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
