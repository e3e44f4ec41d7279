"""Parser of defence settings: `front:client=1700,server=2500`, `wtf-pad`, `maybenot:front`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from anabranch import plugins
from anabranch.defences.base import Defence, DefenceError
from anabranch.defences.decoys import Decoys
from anabranch.defences.front import Front
from anabranch.defences.jitter import Jitter
from anabranch.defences.maybenot import NAMED, Maybenot
from anabranch.defences.wtf_pad import CONFIGURATIONS, WtfPad


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of defence.

    Attributes:
        make: class or function that makes a defence from its settings.
        settings: names of the settings, each with the parser of its value.
        bare: the setting that a value without a name sets; None if there is none.
        syntax: syntax of its settings, as shown to users.
        about: description in one line.
        label: its name in tables and figures; empty if that is the name in settings.
    """

    make: Callable[..., Defence]
    settings: Mapping[str, Callable[[str], Any]]
    bare: str | None
    syntax: str
    about: str
    label: str = ""


SERIALISED = "02"
"""Prefix of Maybenot's serialised machines.

They may end in `=`, which is then not the sign between the name and value of a setting.
"""


def _machines(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(";"))))


def _maybenot(machines: str = "none", **settings: Any) -> Maybenot:
    """Makes a `Maybenot`; `machines` is a name or serialised machines.

    Serialised machines run at both ends, except at an end for which `settings` give others.
    """
    if not machines.startswith(SERIALISED):
        return Maybenot(machines, **settings)
    serialised = _machines(machines)
    return Maybenot(**({"client": serialised, "server": serialised} | settings))


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "front": Family(
            Front,
            {"client": int, "server": int, "w_min": float, "w_max": float, "size": int},
            None,
            "front[:client=1700,server=1700,w_min=1,w_max=14]",
            "dummy packets at Rayleigh-distributed times after the start of each load, at most "
            "1,700 for each end by default",
            "FRONT",
        ),
        "wtf-pad": Family(
            WtfPad,
            {"config": str, "size": int},
            "config",
            f"wtf-pad[:{'|'.join(CONFIGURATIONS)}]",
            "dummy packets in long pauses, by the histograms of the WTF-PAD paper",
            "WTF-PAD",
        ),
        "jitter": Family(
            Jitter,
            {"delay": str, "ends": str},
            "delay",
            "jitter:0-20ms[,ends=client]",
            "a random delay for each packet, without dummy packets; packets keep their order",
        ),
        "decoys": Family(
            Decoys,
            {"budget": str},
            "budget",
            "decoys:10%",
            "dummy packets on idle paths after a split, limited to 10 % of the bytes of the other "
            "packets",
        ),
        "maybenot": Family(
            _maybenot,
            {
                "machines": str,
                "client": _machines,
                "server": _machines,
                "delay": float,
                "pps": int,
                "size": int,
                "most_events": int,
            },
            "machines",
            f"maybenot:{'|'.join(NAMED)}|{SERIALISED}...[,client=M;M,server=M,delay=0.01,pps=N]",
            "dummy packets and delays by state machines of the Maybenot framework",
        ),
    }
)
"""Built-in families by name. `front`, `wtf-pad` and `maybenot` accept `size`, bytes of a dummy."""


def family(name: str) -> Family | None:
    """Returns a built-in or third-party family by name; None if there is none.

    Raises:
        DefenceError: if a package provides an item that is not a defence under that name.
        OutsideError: if the package cannot be imported.
    """
    found = None if name in FAMILIES else plugins.find("defences", name)
    if found is None:
        return FAMILIES.get(name)
    thing = found.thing
    if isinstance(thing, Family):
        return thing
    if isinstance(thing, type) and issubclass(thing, Defence):
        return Family(thing, {}, None, name, (thing.__doc__ or name).strip().splitlines()[0])
    raise DefenceError(
        f"{name}: its package provides neither a Defence nor a Family under this name"
    )


def parse(text: str) -> Defence:
    """Parses the text of a defence: a name, then a colon and settings, separated by commas.

    Raises:
        DefenceError: if there is no such defence or setting, or a value is wrong.
    """
    name, _, rest = text.strip().partition(":")
    kind = family(name)
    if kind is None:
        known = ", ".join(
            [*(each.syntax for each in FAMILIES.values()), *plugins.names("defences")]
        )
        raise DefenceError(f"the defence '{name}' is unknown; expected one of {known}")
    settings: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, value = _setting(kind, name, part)
        if key in settings:
            raise DefenceError(f"{name}: {key} is given twice")
        settings[key] = value
    return kind.make(**settings)


def _setting(family: Family, name: str, part: str) -> tuple[str, Any]:
    key, given, value = (piece.strip() for piece in part.partition("="))
    if family.bare is not None and (not given or key.startswith(SERIALISED)):
        key, value = family.bare, part.strip()
    if key not in family.settings:
        raise DefenceError(f"{name} has no setting '{key}'; expected {family.syntax}")
    try:
        return key, family.settings[key](value)
    except ValueError:
        raise DefenceError(f"{name}: '{value}' is not a valid value of {key}") from None
