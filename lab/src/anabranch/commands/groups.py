"""Groups of options as dataclasses.

Typer reads the options of a command from one flat signature. `grouped` makes this signature from a
function whose parameters are groups: dataclasses whose fields are annotated as Typer's options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeGuard, get_args, get_type_hints

from typer.models import OptionInfo


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with a flat signature for Typer, in which fields replace their groups.

    A group's class may define `PANEL`, the heading of its options in the help.

    Raises:
        TypeError: if two groups have fields with the same name.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, type[Any]] = {
        each.name: each.annotation for each in own if _is_group(each.annotation)
    }
    plain = [each for each in own if each.name not in groups]
    options = [option for group in groups.values() for option in _options(group)]
    names = [each.name for each in (*plain, *options)]
    if len(set(names)) < len(names):
        raise TypeError(f"{command.__name__}: an option is in two groups: {', '.join(names)}")

    @wraps(command)
    def flat(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    flat.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # `inspect` reads it
        [*plain, *options]
    )
    return flat


def _is_group(kind: Any) -> TypeGuard[type[Any]]:
    return isinstance(kind, type) and is_dataclass(kind)


def _options(group: type[Any]) -> Iterator[inspect.Parameter]:
    """Yields the fields of a group as parameters, under the group's heading."""
    hints = get_type_hints(group, include_extras=True)
    panel = getattr(group, "PANEL", None)
    for each in fields(group):
        kind, *metadata = get_args(hints[each.name])
        infos = [_headed(info, panel) for info in metadata]
        yield inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(each),
            annotation=Annotated[(kind, *infos)],
        )


def _headed(info: Any, panel: str | None) -> Any:
    if not isinstance(info, OptionInfo) or info.rich_help_panel is not None:
        return info
    info = copy(info)
    info.rich_help_panel = panel
    return info


def _default(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default
