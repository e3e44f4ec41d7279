"""Third-party attacks, defences and schedules: from a file, a package, or this process.

| group of entry points | item under a name |
|---|---|
| `anabranch.attacks` | a class: an `Attack`, or another estimator: `fit`, `predict_proba` |
| `anabranch.defences` | a `Defence` class, or a `Family` that reads its settings |
| `anabranch.schedules` | a function from the text after the name's colon to a `Schedule` |

An item is loaded only when the user names it, because loading runs code of its file or package.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["attacks", "defences", "schedules"]


class PluginError(ValueError):
    """Error of a named item that cannot be loaded or registered; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A third-party attack, defence or schedule that has been loaded.

    Attributes:
        thing: the class or function.
        origin: identifies its version in results: a file's name and SHA-256, or a package's name
            and version; empty for an item that this process added.
        path: path of its file, if any. The file may change and be loaded again.
    """

    thing: Any
    origin: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None


_ADDED: dict[tuple[Kind, str], Plugin] = {}


def add(kind: Kind, name: str, found: Plugin) -> None:
    """Registers an item in this process under a name.

    Raises:
        PluginError: if an item of another file already has the name.
    """
    known = _ADDED.get((kind, name))
    if known is not None and known.path != found.path:
        raise PluginError(f"{name}: two different {kind} have this name")
    _ADDED[kind, name] = found


def find(kind: Kind, name: str) -> Plugin | None:
    """Returns the item added as `name`, or provided by a package; None if there is none.

    Raises:
        PluginError: if its package cannot be imported.
    """
    added = _ADDED.get((kind, name))
    if added is not None:
        return added
    point = installed(kind).get(name)
    if point is None:
        return None
    try:
        thing = point.load()
    except Exception as error:
        raise PluginError(f"{name}: its package cannot be imported: {error!r}") from error
    package = point.dist
    origin = {} if package is None else {"package": package.name, "version": package.version}
    add(kind, name, Plugin(thing, origin))
    return _ADDED[kind, name]


@cache
def installed(kind: Kind) -> Mapping[str, metadata.EntryPoint]:
    """Returns the entry points of a kind by their names, without loading them."""
    return {point.name: point for point in metadata.entry_points(group=f"anabranch.{kind}")}


def names(kind: Kind) -> list[str]:
    """Returns the available names of a kind, in addition to the lab's own."""
    return sorted({*installed(kind), *(name for each, name in _ADDED if each == kind)})


def file_and_class(text: str) -> tuple[str, str] | None:
    """Returns the parts of `FILE.py:Class`, or None if the text has another form."""
    file, _, name = text.rpartition(":")
    return (file, name) if file.endswith(".py") and name else None


def from_file(text: str, folder: Path = Path()) -> tuple[str, Plugin]:
    """Loads `FILE.py:Class`.

    The file runs as a module of its own; it may import files next to it.

    Args:
        text: file and class; a relative path starts at `folder`.
        folder: base of relative paths.

    Returns:
        The name for settings and results (the file without its folder), and the class.

    Raises:
        PluginError: if there is no such file or class, or running the file fails.
    """
    parts = file_and_class(text)
    if parts is None:
        raise PluginError(f"'{text}' does not have the form FILE.py:Class")
    path = (folder / parts[0]).resolve()
    try:
        code = path.read_bytes()
    except OSError as error:
        raise PluginError(f"{path.name}: {error.strerror}") from error
    digest = hashlib.sha256(code).hexdigest()
    module = _module(path, code, digest)
    thing = getattr(module, parts[1], None)
    if thing is None:
        near = get_close_matches(parts[1], vars(module), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise PluginError(f"{path.name}: has no {parts[1]}{hint}")
    found = Plugin(thing, {"file": path.name, "sha256": digest}, path)
    return f"{path.name}:{parts[1]}", found


def _module(path: Path, code: bytes, digest: str) -> ModuleType:
    """Returns a file as a module; runs it unless this process already ran the same content.

    Pickles find the module by its name, which contains the start of `digest`.
    """
    name = f"anabranch_file_{path.stem}_{digest[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        exec(compile(code, str(path), "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise PluginError(f"{path.name}: {describe(error, path)}") from error
    return module


def describe(error: BaseException, path: Path | None = None) -> str:
    """Formats an error of third-party code in one line: type, message and line number in `path`.

    Args:
        error: the error that was raised.
        path: file whose innermost frame in the traceback gives the line number; None for the
            innermost frame in any file.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path is None or Path(frame.filename) == path]
    if isinstance(error, SyntaxError):
        where = f"line {error.lineno}: "
    else:
        where = f"line {own[-1].lineno}: " if own else ""
    return f"{where}{type(error).__name__}: {error}"
