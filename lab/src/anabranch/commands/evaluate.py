"""`anabranch-lab evaluate`: trains an attack and prints the share of loads that it recognises."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch import display, io, results
from anabranch.commands import progress
from anabranch.commands.errors import one_line
from anabranch.commands.evaluation_options import (
    Attacker,
    Division,
    Output,
    Padding,
    Reading,
    Scoring,
    Splitting,
    Training,
)
from anabranch.commands.groups import grouped
from anabranch.registry import ALIASES
from anabranch.splitting import after_warning, warn_together
from anabranch.validate import TraceError, source

if TYPE_CHECKING:
    from anabranch.evaluate.spec import Spec
    from anabranch.results import Result


@grouped
def evaluate(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="IN", help="Read the traces (recorded page loads) in this file or folder."
        ),
    ],
    reading: Reading,
    splitting: Splitting,
    padding: Padding,
    attacker: Attacker,
    division: Division,
    training: Training,
    scoring: Scoring,
    output: Output,
) -> None:
    """Train an attack on what an observer sees, and print the share of loads that it recognises."""
    with one_line():
        from anabranch import evaluate as lab

        other = None if training.file is None else io.read(training.file)
        digest = None if training.file is None else results.digest(training.file)
        settings = splitting.settings() | padding.settings() | attacker.settings()
        settings |= division.settings() | training.settings(digest) | scoring.settings()
        specs = _specs(settings, attacker.attack or ["k-fp"], attacker.parameter or [])
        for spec in specs:
            _refuse_idle(spec)
        warn_together(sum(spec.is_simulation_only for spec in specs), len(specs))
        if reading.form is not None and reading.form not in io.FORMATS:
            raise TraceError(
                f"--from: '{reading.form}' is unknown: choose one of {', '.join(io.FORMATS)}"
            )
        files = output.files(len(specs))
        for file in files:
            _check_out(file, data, reading.form, replace=output.replace)
        traces = io.read(data, reading.form, io.Meaning(unmonitored=reading.unmonitored_y))
        own = results.digest(data, reading.form)
        found = []
        for spec, file in zip(specs, files, strict=True):
            _refuse_idle(spec, recorded=traces.paths is not None)
            with source(data), after_warning(), progress.epochs() as on_epoch:
                done = lab.evaluate(spec, traces, own, on_epoch, None, other)
            found.append(_named(done, data))
            if file is not None:
                results.save(found[-1], file)
    if output.as_json:
        print(json.dumps(found[0].metrics if len(found) == 1 else _several(found)))
    elif len(found) == 1:
        display.show(found[0])
    else:
        display.show_several(found)


def _named(result: Result, data: Path) -> Result:
    """Returns the result with the name of the evaluated file."""
    return replace(result, facts=result.facts | {"file": data.resolve().name})


def _specs(settings: dict[str, Any], attacks: list[str], parameters: list[str]) -> list[Spec]:
    """Returns a spec for each attack, each with its own parameters."""
    from anabranch.evaluate import Spec
    from anabranch.evaluate.attack import name_of

    given = _parameters(parameters)
    names = [name_of(each) for each in attacks]
    if len(set(names)) < len(names):
        raise TraceError("--attack: one attack is given twice")
    own: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in given.items():
        of, dot, short = key.rpartition(".")
        of = ALIASES.get(of, of)
        if not dot and len(names) > 1:
            raise TraceError(
                f"--parameter {key}: there are several attacks: name one, as in "
                f"{names[0]}.{key}=VALUE"
            )
        if dot and of not in own:
            raise TraceError(
                f"--parameter {key}: the attack '{of}' is not evaluated here: "
                f"choose one of {', '.join(names)}"
            )
        own[of if dot else names[0]][short] = value
    return [Spec.from_dict(settings | {"attack": name, "parameters": own[name]})
            for name in names]  # fmt: skip


def _several(found: list[Result]) -> dict[str, Any]:
    """Returns each attack's numbers, and the first attack's gain over each other attack."""
    gains = {other.spec.attack.name: asdict(each) for _, other, each in display.pairs(found)}
    return {"attacks": {each.spec.attack.name: each.metrics for each in found}, "less": gains}


def _refuse_idle(spec: Spec, recorded: bool | None = None) -> None:
    for name, why in spec.idle(recorded):
        raise TraceError(f"--{_OPTIONS.get(name, name).replace('_', '-')}: {why}")


_OPTIONS = {"delays": "delay"}
"""Names of options that differ from the names of their settings.

`--delay` is repeated for each path, and all its values form the setting `delays`.
"""


def _parameters(texts: list[str]) -> dict[str, Any]:
    """Parses `NAME=VALUE`: a number, true or false, otherwise text."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise TraceError(f"--parameter '{text}': write NAME=VALUE")
        if name in found:
            raise TraceError(f"--parameter '{text}': {name} is given twice")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):  # not JSON, or JSON that is too long or too deep
            found[name] = value
    return found


def _check_out(out: Path | None, data: Path, form: str | None, *, replace: bool) -> None:
    """Refuses a target that exists or cannot be written, before the evaluation starts."""
    if out is None:
        return
    if out.suffix != ".json":
        raise TraceError("--out: the name of a result must end in .json", file=out)
    rows = out.with_suffix(".parquet")
    with source(out):
        if not out.parent.is_dir():
            raise TraceError("its folder does not exist")
        for file in (out, rows):
            if file.is_dir() or not os.access(out.parent, os.W_OK):
                raise TraceError("cannot be written", file=file)
            io.refuse_source(file, data, form)
        if rows.exists() and not out.exists():
            raise TraceError(
                "--out: the result's predictions would be written to this file, which exists: "
                "choose another name",
                file=rows,
            )
        if out.exists() and not replace:
            raise TraceError("--out: it exists: choose another name, or add --replace", file=out)
