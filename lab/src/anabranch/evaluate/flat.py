"""Maps the settings of a `Spec` to the flat names that files, sweeps and options use.

Stored results of all versions of this program contain these names, and a stored result is named
after a hash over them. Therefore a setting keeps its name here when it moves to another part.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

from anabranch.evaluate.parts import AttackSettings, Padding, Scoring, Splitting, Training
from anabranch.observers import Observer, SettingError, unknown
from anabranch.protocol import Design
from anabranch.splitting import Delay

if TYPE_CHECKING:
    from anabranch.evaluate.spec import Spec

PARTS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "splitting": Splitting,
        "padding": Padding,
        "attack": AttackSettings,
        "design": Design,
        "training": Training,
        "scoring": Scoring,
    }
)
"""Classes of the parts of a `Spec` that have several settings."""


class Place(NamedTuple):
    """The place of a setting in a `Spec`.

    `part` is an attribute of the `Spec`. `field` is a field of this part, or empty if the attribute
    itself is the setting.
    """

    part: str
    field: str


def _of(part: str, *names: str) -> dict[str, Place]:
    return {name: Place(part, name) for name in names}


SETTINGS: Final[Mapping[str, Place]] = MappingProxyType(
    _of("splitting", "schedule", "every", "paths", "mode", "delays", "draw")
    | _of("padding", "defence", "path_defence")
    | {"observer": Place("observer", "")}
    | {"attack": Place("attack", "name"), "parameters": Place("attack", "parameters")}
    | _of("design", "protocol", "folds", "world", "pages", "monitored", "loads")
    | _of("design", "validation_loads", "test_loads", "test_run", "validation_run")
    | _of("training", "resplits", "merged")
    | _of("scoring", "r", "bootstrap")
    | {"seed": Place("seed", ""), "train_on": Place("training", "on")}
)
"""The place of each setting, in the order of files."""


def flat(spec: Spec) -> dict[str, Any]:
    """Returns all settings of a spec, in the form for JSON."""
    found: dict[str, Any] = {}
    for name, (part, field) in SETTINGS.items():
        value = getattr(spec, part)
        found[name] = getattr(value, field) if field else value
    return found | {
        "delays": list(found["delays"]),
        "observer": str(spec.observer),
        "parameters": dict(spec.attack.parameters),
    }


def parts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a `Spec` with these settings, and defaults for all others.

    Raises:
        SettingError: if a name is unknown (with the nearest name) or a type wrong (with the
            expected type).
        SplitError, AttackError, DefenceError: if a setting is wrong.
    """
    fields: dict[str, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise SettingError(unknown("setting", name, SETTINGS))
        if not _suits(_TYPES[name], value):
            raise SettingError(f"{name}: {value!r} is not valid: expected {_kind(_TYPES[name])}")
        part, field = SETTINGS[name]
        if name == "observer":
            found[name] = Observer.parse(value)
        elif not field:
            found[name] = value
        else:
            fields.setdefault(part, {})[field] = _delays(value) if name == "delays" else value
    return found | {part: PARTS[part](**own) for part, own in fields.items()}


def _delays(given: Any) -> tuple[Delay, ...]:
    return tuple(tuple(delay) if isinstance(delay, list) else delay for delay in given)


def _type(place: Place) -> Any:
    return get_type_hints(PARTS[place.part])[place.field]


_TYPES: Mapping[str, Any] = {
    name: _type(place) if place.field else {"observer": str, "seed": int}[name]
    for name, place in SETTINGS.items()
}
"""The type of each setting."""

_KINDS: Mapping[Any, str] = {
    str: "text",
    Literal: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Mapping: "a table",
    tuple: "a list of seconds, or of pairs up, down",
}
"""Names of types in messages."""


def _bare(hint: Any) -> tuple[Any, bool]:
    """Returns a type without its parameters, and whether it may be None."""
    members = get_args(hint)
    if NoneType in members:
        return next(each for each in members if each is not NoneType), True
    return get_origin(hint) or hint, False


def _kind(hint: Any) -> str:
    return _KINDS[_bare(hint)[0]]


def _suits(hint: Any, value: Any) -> bool:
    kind, optional = _bare(hint)
    if value is None:
        return optional
    if kind is tuple:
        return isinstance(value, list | tuple) and all(map(_is_delay, value))
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, str if kind is Literal else kind)


def _is_delay(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) == 2 and all(map(_is_number, value))
    return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
