"""Attacks by name with their parameters: built-in ones, and third-party ones.

Names of third-party attacks contain a colon; names of built-in ones do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch import plugins
from anabranch.attacks import ATTACKS, Attack, AttackError
from anabranch.attacks.foreign import SEEDS, attack_class
from anabranch.attacks.network import NetworkAttack
from anabranch.nets import require_jax
from anabranch.observers import SettingError, unknown
from anabranch.registry import ALIASES


def is_foreign(name: str) -> bool:
    """Returns whether a name has the form of a third-party attack's; the attack may not exist."""
    return ":" in name


def known(name: str) -> type[Attack] | None:
    """Returns the class of an attack; None for a third-party attack that was not found.

    Raises:
        SettingError: if a name without a colon is not that of a built-in attack.
    """
    if not is_foreign(name):
        if name not in ATTACKS:
            installed = sorted(_named(each) for each in plugins.names("attacks"))
            raise SettingError(unknown("attack", name, [*ATTACKS, *ALIASES, *installed]))
        return ATTACKS[name]
    found = plugins.find("attacks", name.removeprefix(PACKAGED))
    return None if found is None else attack_class(found.thing, name)


def class_of(name: str) -> type[Attack]:
    """Returns the class of an attack.

    Raises:
        SettingError: if there is no such attack, or a third-party attack was not found.
    """
    found = known(name)
    if found is None:
        raise SettingError(
            f"attack: {name} is not part of this program and was not found: give its file as "
            "FILE.py:Class, or install its package"
        )
    return found


def origin(name: str) -> Mapping[str, str]:
    """Returns facts that identify a third-party attack's version; empty for built-in attacks."""
    if not is_foreign(name):
        return {}
    found = plugins.find("attacks", name.removeprefix(PACKAGED))
    return {} if found is None else found.origin


PACKAGED = "package:"
"""Prefix, in settings and results, of the name of an attack from a package's entry point."""


def name_of(text: str, folder: Path = Path()) -> str:
    """Returns the name of an attack for settings; loads the attack if it is in a file.

    Args:
        text: a built-in name or its alias, the name of an entry point, or `FILE.py:Class`.
        folder: folder to which a relative path of the file refers.

    Raises:
        OutsideError: if the file or class cannot be loaded.
        AttackError: if the class is not an estimator.
    """
    if plugins.file_and_class(text) is not None:
        name, found = plugins.from_file(text, folder)
        plugins.add("attacks", name, found)
        attack_class(found.thing, name)
        return name
    if text not in ATTACKS and text in plugins.names("attacks"):
        return _named(text)
    return ALIASES.get(text, text)


def add(estimator: Any) -> str:
    """Registers an estimator, or a class of estimators, as an attack in this process.

    Returns:
        The attack's name for `Spec.attack`.

    Raises:
        AttackError: if `estimator` is neither.
    """
    thing = estimator if isinstance(estimator, type) else type(estimator)
    name = f"{thing.__module__}:{thing.__qualname__}"
    attack_class(estimator, name)
    plugins.add("attacks", name, plugins.Plugin(estimator))
    return name


def _named(point: str) -> str:
    return point if is_foreign(point) else f"{PACKAGED}{point}"


def make(name: str, parameters: Mapping[str, Any], seed: int) -> Attack:
    """Creates an attack that is not yet fitted.

    Raises:
        SettingError: if there is no such attack or parameter, or a parameter is out of range.
    """
    kind = class_of(name)
    takes = kind().get_params(deep=False)
    for key in parameters:
        if key not in takes:
            raise SettingError(unknown(f"parameter of {name}", key, takes))
    seeds = {key: seed for key in SEEDS if key in takes}
    attack = kind(**(seeds | dict(parameters)))
    try:
        attack.check_parameters()
    except AttackError as error:
        raise SettingError(f"{name}: {error}") from error
    return attack


def refuse_counter(name: str) -> None:
    """Rejects an attack that cannot use counters.

    Raises:
        SettingError: if it cannot; the message names the attacks that can.
    """
    if not class_of(name).uses_counter:
        able = ", ".join(each for each, attack in ATTACKS.items() if attack.uses_counter)
        raise SettingError(
            f"observer: the attack {name} cannot use the packet counter; these attacks can: {able}"
        )


def require(name: str) -> None:
    """Checks that an attack and its libraries are available, before any work is done.

    Raises:
        SettingError: if there is no such attack, or a third-party attack was not found.
        MissingExtraError: if it is a network and JAX is not installed.
    """
    if issubclass(class_of(name), NetworkAttack):
        require_jax()
