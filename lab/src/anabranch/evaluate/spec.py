"""The settings of one evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from anabranch.defences import Decoys, Pipeline
from anabranch.evaluate.attack import refuse_counter
from anabranch.evaluate.flat import flat, parts
from anabranch.evaluate.parts import AttackSettings, Padding, Scoring, Splitting, Training
from anabranch.observers import Observer, SettingError
from anabranch.protocol import Design
from anabranch.splitting import Split, usual_mode


@dataclass(frozen=True, slots=True)
class Spec:
    """Settings of one evaluation. Equal settings, data and versions give equal results.

    The parts check their own settings; a spec checks settings that concern several parts. `of`
    makes a spec from the names that files and options use.

    Attributes:
        splitting: the split over paths.
        padding: padding of loads and of paths.
        observer: the paths that the attack sees.
        attack: the attack and its parameters.
        design: the protocol, and the loads that it uses.
        training: the training set.
        scoring: the metrics.
        seed: seed of every random draw.

    Raises:
        SettingError, SplitError, AttackError, DefenceError: if a setting is wrong.
    """

    splitting: Splitting = field(default_factory=Splitting)
    padding: Padding = field(default_factory=Padding)
    observer: Observer = field(default_factory=Observer)
    attack: AttackSettings = field(default_factory=AttackSettings)
    design: Design = field(default_factory=Design)
    training: Training = field(default_factory=Training)
    scoring: Scoring = field(default_factory=Scoring)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise SettingError(f"seed: {self.seed} is negative")
        if not self.splitting.mode:
            usual = replace(self.splitting, mode=self.usual_mode)
            object.__setattr__(self, "splitting", usual)
        self._check_training()
        self.split()
        if self.attack.is_known:
            self.attack.make(self.seed)
            if self.observer.counter or self.observer.earlier:
                refuse_counter(self.attack.name)
        if self.observer.earlier and (
            self.splitting.schedule is None or self.splitting.session is None
        ):
            raise SettingError(
                "observer: +earlier needs probabilities that several loads share: give a "
                "schedule with draw=session:N"
            )
        self._check_path_defence()

    def _check_training(self) -> None:
        if self.training.on is None:
            return
        if self.design.protocol == "paper":
            raise SettingError(
                "train_on: the paper's protocol always trains on the tested traces: leave "
                "train_on out"
            )
        if self.design.world == "open" and self.training.uses_other_traces:
            raise SettingError("train_on: training on other traces needs world=closed")

    def _check_path_defence(self) -> None:
        """Rejects padding of paths that other settings exclude.

        Decoys need a far end (our program in front of the server). With padding of paths, the
        observer cannot use the packet counter, because a far end hides it.
        """
        _, after = self.padding.stages()
        if isinstance(after, Decoys) and self.splitting.mode.startswith("follow"):
            raise SettingError(
                "path_defence: an unmodified server cannot recognise decoys: use a far end, "
                "with the mode together or independent"
            )
        if after is not None and self.observer.counter:
            raise SettingError(
                "path_defence: padding of paths needs a far end, which hides the packet counter: "
                "leave out +counter"
            )

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Returns a spec with these settings, named as in files, and defaults for all others.

        Raises:
            SettingError: with the nearest name if one is unknown, or with the expected type.
        """
        return cls.from_dict(settings)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Returns a spec with these settings, as `of` does."""
        return cls(**parts(settings))

    def to_dict(self) -> dict[str, Any]:
        """Returns all settings by their names in files, in the form for JSON."""
        return flat(self)

    def changed(self, **settings: Any) -> Self:
        """Returns a copy of the spec with new values for these settings, named as in files."""
        return self.from_dict(self.to_dict() | settings)

    @property
    def usual_mode(self) -> str:
        """The default mode of the split, which depends on the other settings."""
        return usual_mode(self.splitting.schedule, self.padding.path_defence)

    def of_training(self) -> Spec:
        """Returns the settings that produce the loads for training and validation."""
        if self.training.on is None:
            return self
        return replace(
            self,
            splitting=Splitting(paths=self.splitting.paths, mode="together"),
            padding=Padding(),
            observer=Observer("merged", counter=self.observer.counter),
            training=replace(self.training, on=None),
        )

    @property
    def is_simulation_only(self) -> bool:
        """Whether only a simulation can make this split: a built-in schedule, mode `together`.

        In this mode one schedule chooses the paths of both directions. In a tunnel, each end has a
        schedule of its own.
        """
        split = self.split()
        return split is not None and split.is_simulation_only

    def split(self) -> Split | None:
        """Returns the split of the loads, or None."""
        return self.splitting.split(self.training.resplits, self.seed)

    def pipeline(self) -> Pipeline:
        """Returns the stages that are set: padding of loads, the split, padding of each path."""
        before, after = self.padding.stages()
        split = self.split()
        return Pipeline([stage for stage in (before, split, after) if stage is not None])

    def idle(self, recorded: bool | None = None) -> Iterator[tuple[str, str]]:
        """Yields settings that have no effect because of other settings, each with the reason.

        In a grid of settings such settings are allowed. In a single evaluation, the user expects
        each given setting to have an effect.

        Args:
            recorded: whether the traces were split when recorded; None if this is not known yet.
        """
        settings, usual = self.to_dict(), Spec().to_dict() | {"mode": self.usual_mode}
        for names, wanted, why in _IDLE:
            if not wanted(self):
                changed = (name for name in names if settings[name] != usual[name])
                yield from ((name, why) for name in changed)
        if self.splitting.schedule is None and recorded is False and self.observer != Observer():
            yield "observer", "without a split every observer sees everything"

    def describe(self, recorded: str | None = None) -> str:
        """Returns the settings in one line.

        Args:
            recorded: the split with which the traces were recorded, as text; None without one.
        """
        split = str(self.split() or (f"split as {recorded}" if recorded else "not split"))
        texts = [text for text in (self.padding.defence, split, self.padding.path_defence) if text]
        texts += [f"observer {self.observer}", self.attack.name, f"{self.design.world} world"]
        texts += [self.design.protocol]
        texts += [] if self.training.on is None else [f"trained on {self.training.on}"]
        return ", ".join(texts)


_IDLE: tuple[tuple[tuple[str, ...], Callable[[Spec], bool], str], ...] = (
    (
        ("every", "paths", "mode", "delays", "draw"),
        lambda spec: spec.splitting.schedule is not None,
        "nothing is split without a schedule",
    ),
    (
        ("folds",),
        lambda spec: spec.design.protocol == "paper",
        "only the paper's protocol has folds",
    ),
    (
        ("validation_loads", "test_loads", "validation_run", "test_run"),
        lambda spec: spec.design.protocol == "honest",
        "the paper's protocol divides sub-traces 9:1, whatever their run",
    ),
    (
        ("monitored", "r"),
        lambda spec: spec.design.world == "open",
        "in a closed world all pages are monitored",
    ),
)
"""Settings, the condition under which they have an effect, and why they have none otherwise."""
