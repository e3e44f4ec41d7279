"""Options and arguments that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from anabranch import io

Form = StrEnum("Form", list(io.FORMATS))  # type: ignore[misc]  # mypy wants the names spelt out

Input = Annotated[
    Path,
    typer.Argument(
        metavar="IN", help="Read the traces (recorded page loads) in this file or folder."
    ),
]
InputForm = Annotated[
    Form | None,
    typer.Option(
        "--from",
        help="Read the traces IN in this format. Needed only if the format is not recognised.",
    ),
]
Replace = Annotated[bool, typer.Option("--replace", help="Let the file OUT replace an older file.")]
Seed = Annotated[
    int,
    typer.Option(
        help="Use this seed for all random choices. The same seed gives the same results."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")]
