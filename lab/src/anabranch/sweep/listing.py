"""Reads a sweep's TOML into units of work.

```toml
[common]                      # settings of all runs
data = "loads.parquet"        # from the folder of this file; may be left to the command line
attack = ["k-fp", "rf"]       # a list: one unit for each value
seed = [0, 1]

[attacks.rf]                  # parameters of an attack
epochs = 20

[[runs]]
name = "undefended"

[[runs]]
name = "WR 50p"
schedule = "weighted"
every = "50p"
paths = [2, 3, 5]
```
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from anabranch import io, plugins, results
from anabranch.evaluate import ERRORS, Spec
from anabranch.evaluate.attack import make, name_of
from anabranch.evaluate.flat import SETTINGS
from anabranch.evaluate.parts import AttackSettings
from anabranch.observers import SettingError, unknown
from anabranch.registry import ALIASES, option_name
from anabranch.validate import TraceError, source

_READING = ("data", "form", "unmonitored_y")
_TABLES = ("common", "attacks", "runs")
_OWN = ("name", *_READING)
_SETTINGS = tuple(SETTINGS)
_LISTS = ("delays",)
"""Settings whose values are lists themselves, and do not give a unit for each element."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One evaluation of a sweep.

    Attributes:
        name: readable name of its run.
        data: path of the traces.
        form: format of the traces, or None to detect it.
        unmonitored_y: class number of unmonitored pages, as `io.Meaning.unmonitored`.
        spec: the evaluation.
        attack_file: for an attack from a file, `FILE.py:Class` with the absolute path, from which
            other processes load it.
        training: path of other training traces than `data`, if any.
    """

    name: str
    data: Path
    form: str | None
    unmonitored_y: int | None
    spec: Spec
    attack_file: str | None = None
    training: Path | None = None

    @property
    def where(self) -> tuple[Path, str | None]:
        """Path and format of the data, for `io.files`."""
        return self.data, self.form

    @property
    def reading(self) -> dict[str, Any]:
        """Returns the options that change how the data are read."""
        return {"form": self.form, "unmonitored_y": self.unmonitored_y}

    def __str__(self) -> str:
        attack = option_name(self.spec.attack.name)
        return f"{self.name}: {attack}, {self.spec.observer}, seed {self.spec.seed}"


def read(path: Path, data: Path | None = None) -> list[Unit]:
    """Reads the units of a sweep, in the order of the file.

    Args:
        path: path of the TOML file.
        data: traces for runs that do not name any.

    Raises:
        TraceError: if the file is invalid; the message has the file and, if known, the line and
            the nearest valid name.
    """
    with source(path):
        text = path.read_text()
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"not TOML: {error}") from error
        try:
            units = list(_units(content, path.parent, data))
        except ERRORS as error:
            raise TraceError(f"{_line(text, str(error))}{error}") from error
        if not units:
            raise TraceError("lists no evaluations")
        return units


def _units(content: Mapping[str, Any], folder: Path, data: Path | None) -> Iterator[Unit]:
    _known("table", content, _TABLES)
    common = _table(content.get("common", {}), "common")
    written = _table(content.get("attacks", {}), "attacks")
    attacks = {ALIASES.get(name, name): parameters for name, parameters in written.items()}
    for attack, parameters in attacks.items():
        make(name_of(attack, folder), _table(parameters, f"attacks.{attack}"), 0)
    runs = content.get("runs", [{}])
    if not isinstance(runs, list):
        raise SettingError("runs: write each run as a table [[runs]]")
    if not runs:
        raise SettingError("runs: the list is empty: give at least one run")
    for number, run in enumerate(runs):
        named = {"name": f"run {number}"} | ({} if data is None else {"data": str(data.absolute())})
        settings = named | dict(common) | dict(_table(run, "runs"))
        _known("setting", settings, (*_OWN, *_SETTINGS))
        for name in ("every", "delays"):
            if name in run and "schedule" not in settings:
                raise SettingError(
                    f"{name}: this setting needs a schedule: add a schedule, or leave {name} out"
                )
        for chosen in _expanded(settings):
            yield _unit(chosen, attacks, folder)


def _unit(settings: dict[str, Any], attacks: Mapping[str, Any], folder: Path) -> Unit:
    name, data, form = (settings.pop(key, None) for key in ("name", "data", "form"))
    unmonitored_y = settings.pop("unmonitored_y", None)
    if data is None:
        raise SettingError("a run names no traces: add `data` to it or to [common], or use --data")
    for key, value in (("name", name), ("data", data)):
        if not isinstance(value, str):
            raise SettingError(f"{key}: {value!r} is not a text")
    if form is not None and form not in io.FORMATS:
        raise SettingError(unknown("form", str(form), io.FORMATS))
    if unmonitored_y is not None and not isinstance(unmonitored_y, int):
        raise SettingError(f"unmonitored_y: {unmonitored_y!r} is not a whole number")
    attack = settings.get("attack", AttackSettings().name)
    own = settings.pop("parameters", {})
    if not isinstance(own, Mapping):
        raise SettingError(f"parameters: {own!r} is not a table")
    training = _training(settings, folder)
    shared = attacks.get(ALIASES.get(attack, attack), {}) if isinstance(attack, str) else {}
    known = {"attack": name_of(attack, folder)} if isinstance(attack, str) else {}
    spec = Spec.from_dict(settings | known | {"parameters": {**shared, **own}})
    file = plugins.file_and_class(attack) if known else None
    from_file = None if file is None else f"{(folder / file[0]).absolute()}:{file[1]}"
    place = (folder / data).absolute()
    return Unit(name, place, form, unmonitored_y, spec, from_file, training)


def _training(settings: dict[str, Any], folder: Path) -> Path | None:
    """Returns the file of `train_on`, if any, and replaces it by its digest in the settings."""
    text = settings.get("train_on")
    if not isinstance(text, str) or text == "unsplit":
        return None
    file = (folder / text).absolute()
    settings["train_on"] = f"data:{results.digest(file)}"
    return file


def _expanded(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields settings for each combination of listed values; the last setting varies fastest."""
    options = []
    for key, value in settings.items():
        listed = isinstance(value, list) and key not in _LISTS
        if listed and not value:
            raise SettingError(f"{key}: the list is empty: give at least one value")
        options.append([(key, part) for part in (value if listed else [value])])
    for chosen in product(*options):
        yield dict(chosen)


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{name}: is not a table")
    return value


def _known(kind: str, names: Any, known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise SettingError(unknown(kind, name, known))


def _line(text: str, problem: str) -> str:
    """Returns `line N: ` for the key that the message begins with or quotes, if it occurs once."""
    quoted = re.search(r"unknown [^']*'([^']+)'|^([\w-]+):(?: ([\w-]+) =)?", problem)
    if quoted is None:
        return ""
    name = re.escape(next(part for part in reversed(quoted.groups()) if part))
    key = re.compile(rf"^\s*(?:{name}\s*=|\[+(?:[\w.-]*\.)?{name}\]+)")
    value = re.compile(rf"=.*[\"']{name}[\"']")
    lines = text.splitlines()
    for pattern in (key, value):
        places = [number for number, line in enumerate(lines, 1) if pattern.search(line)]
        if len(places) == 1:
            return f"line {places[0]}: "
    return ""
