"""Tables of built-in attacks and of observers' rules, in the order in which lists show them.

Help texts, messages, tables and figures read these rows. The module imports no attack, so that
commands without attacks start without scikit-learn; `anabranch.attacks.ATTACKS` has the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from anabranch import palette
from anabranch.palette import Colour


@dataclass(frozen=True, slots=True)
class AttackRow:
    """A built-in attack.

    Attributes:
        name: its name in settings and result files; names with a colon are third-party attacks'.
        place: module in `anabranch.attacks` and class, such as `rf:RobustFingerprinting`.
        label: its name in tables and figures.
        colour: its colour in figures.
        alias: another name that options and sweeps accept, and that help texts show.
        expected: whether a full report shows the attack as not run if it has no results.
    """

    name: str
    place: str
    label: str
    colour: Colour
    alias: str | None = None
    expected: bool = False


ATTACKS: Final[tuple[AttackRow, ...]] = (
    AttackRow("rf", "rf:RobustFingerprinting", "RF", palette.BLUE, expected=True),
    AttackRow("df", "df:DeepFingerprinting", "DF", palette.VERMILION, expected=True),
    AttackRow("tik-tok", "tiktok:TikTok", "Tik-Tok", palette.SKY, expected=True),
    AttackRow("var-cnn", "varcnn:VarCNN", "Var-CNN", palette.PINK, expected=True),
    AttackRow("p-fp", "pfp:PFP", "p-FP(C)", palette.ORANGE, expected=True),
    AttackRow("k-fp", "kfp:KFingerprinting", "k-FP", palette.GREEN, expected=True),
    AttackRow("cumul", "cumul:Cumul", "CUMUL", palette.VIOLET, expected=True),
    AttackRow("k-fp-paths", "kfp_paths:PathForest", "k-FP by path", palette.BROWN),
    AttackRow(
        "rocket", "rocket:MiniRocket", "MiniRocket + LDA", Colour("#882255", "#d982ad"),
        alias="minirocket",
    ),
    AttackRow("forest", "course:CourseForest", "forest", Colour("#707015", "#cccc5c")),
    AttackRow("size", "course:Size", "size alone", Colour("#332288", "#9c92ea")),
)  # fmt: skip
"""The built-in attacks."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {row.alias: row.name for row in ATTACKS if row.alias is not None}
)
"""Alternative names of attacks, each mapped to the name in results."""

BY_NAME: Final[Mapping[str, AttackRow]] = MappingProxyType({row.name: row for row in ATTACKS})
"""The built-in attacks by name."""


def option_name(attack: str) -> str:
    """Returns the name of an attack in options and sweeps: its alias, if it has one."""
    row = BY_NAME.get(attack)
    return attack if row is None or row.alias is None else row.alias


def attack_names() -> str:
    """Returns the names of all built-in attacks, for help texts."""
    return ", ".join(
        row.name if row.alias is None else f"{row.alias} (in results: {row.name})"
        for row in ATTACKS
    )


@dataclass(frozen=True, slots=True)
class ObserverRow:
    """A rule by which an observer watches paths.

    Attributes:
        syntax: its name in settings; K stands for a number of paths.
        about: the paths that the attack sees, for help texts and messages.
        label: its name in tables and figures.
        earlier: whether `+earlier` can follow the name.
    """

    syntax: str
    about: str
    label: str
    earlier: bool = False


OBSERVERS: Final[tuple[ObserverRow, ...]] = (
    ObserverRow("random", "one path", "a random path", earlier=True),
    ObserverRow("largest", "the path with most packets", "the fullest path", earlier=True),
    ObserverRow(
        "any", "an attack on each path; it is enough if one of them names the page",
        "any path, each with its own observer",
    ),
    ObserverRow("merged", "all paths", "all paths together"),
    ObserverRow("merged:K", "K paths", "K paths together"),
)  # fmt: skip
"""The rules of observers."""

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {"counter": "with the counter", "earlier": "earlier loads known"}
)
"""Labels in tables of an observer's additional knowledge, by the name after `+` in settings."""


def observer_rules() -> str:
    """Returns the rules of observers, for help texts and messages."""
    *most, last = (f"{row.syntax} ({row.about})" for row in OBSERVERS)
    return f"{', '.join(most)} or {last}"
