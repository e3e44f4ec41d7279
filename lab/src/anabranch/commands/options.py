"""Options and arguments that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from anabranch import io

Form = StrEnum("Form", list(io.FORMATS))  # type: ignore[misc]  # mypy wants the names spelt out

Input = Annotated[Path, typer.Argument(metavar="IN", help="File or folder of traces to read.")]
InputForm = Annotated[
    Form | None, typer.Option("--from", help="Format of IN, if its name does not show it.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Let OUT replace an older file.")]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
