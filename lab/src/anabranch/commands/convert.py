"""`anabranch-lab convert`: checks traces and writes them in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch import io, validate
from anabranch.commands.options import Form, Input, InputForm, Replace
from anabranch.io.headers import End, end
from anabranch.validate import TraceError, source


def convert(
    source_path: Input,
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Write this file or folder.")],
    form: InputForm = None,
    to: Annotated[
        Form | None,
        typer.Option(
            help="Write OUT in this format. Needed only if the name of OUT does not end in "
            ".parquet or .npz."
        ),
    ] = None,
    label: Annotated[
        str,
        typer.Option(
            help="Give the traces in a capture this label (name of the page), because "
            "captures contain no labels."
        ),
    ] = "",
    unmonitored: Annotated[
        bool,
        typer.Option(
            "--unmonitored",
            help="Mark all pages of IN as unmonitored: as pages that an attack does not learn.",
        ),
    ] = False,
    unmonitored_y: Annotated[
        int | None,
        typer.Option(
            "--unmonitored-y",
            metavar="Y",
            help="In the npz file IN, the unmonitored pages have this class number (y).",
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="In captures, use only packets from and to this server. Packets to it are the "
            "uplink.",
        ),
    ] = None,
    allow_single: Annotated[
        bool,
        typer.Option("--allow-single", help="Accept monitored pages with only one load."),
    ] = False,
    replace: Replace = False,
) -> None:
    """Check traces and convert them to another format."""
    meaning = io.Meaning(label, not unmonitored, unmonitored_y, _server(server))
    traces = io.read(source_path, form, meaning)
    if not allow_single:
        with source(source_path):
            validate.labels(traces)
    io.refuse_source(target, source_path, form)
    io.refuse_existing(target, replace=replace)
    io.write(traces, target, to)
    print(f"{len(traces)} loads, {traces.times.size} packets: {target}")


def _server(text: str | None) -> End | None:
    try:
        return None if text is None else end(text)
    except ValueError as error:
        raise TraceError(f"--server: {error}") from error
