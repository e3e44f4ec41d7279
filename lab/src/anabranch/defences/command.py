"""`anabranch-lab defend`: pads traces and prints the cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from anabranch import io
from anabranch.commands.options import AsJson, Form, Input, InputForm, Replace, Seed
from anabranch.defences.overhead import Overhead, overhead
from anabranch.defences.pipeline import Pipeline
from anabranch.defences.texts import FAMILIES, parse
from anabranch.validate import source

KINDS = "\n\n".join(
    ["Kinds of PADDING:", *(f"{each.syntax}: {each.about}." for each in FAMILIES.values())]
)
"""The kinds of padding, each in a paragraph. In the table of options their syntax would be cut."""

_ABOUT = {
    "up": "padding per real byte, up",
    "down": "padding per real byte, down",
    "bandwidth": "padding per real byte, both",
    "median_bandwidth": "padding per real byte, median load",
    "time": "time added per second",
    "median_time": "time added per second, median load",
}


def defend(
    source_path: Input,
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Write this file or folder.")],
    defence: Annotated[
        list[str],
        typer.Option(
            metavar="PADDING",
            help="Add this padding; its kinds are listed below. Repeat the option to add several "
            "kinds, one after the other.",
        ),
    ],
    seed: Seed = 0,
    replica: Annotated[
        int,
        typer.Option(
            min=0,
            max=(1 << 63) - 1,
            metavar="N",
            help="Choose one of many variants of the random padding of the same loads.",
        ),
    ] = 0,
    as_json: AsJson = False,
    form: InputForm = None,
    to: Annotated[
        Form | None,
        typer.Option(
            help="Write OUT in this format. Needed only if the name of OUT does not end in "
            ".parquet or .npz."
        ),
    ] = None,
    replace: Replace = False,
) -> None:
    """Add padding to traces, and print how many bytes and how much time it costs.

    In split traces each path is padded separately. OUT does not mark padding packets, because an
    observer cannot distinguish them from other packets.
    """
    pipeline = Pipeline([parse(text) for text in defence])
    traces = io.read(source_path, form)
    io.refuse_source(target, source_path, form)
    io.refuse_existing(target, replace=replace)
    with source(source_path):
        done = pipeline.apply(traces, seed, replica)
    io.write(done.bare(), target, to)
    _tell(pipeline, seed, overhead(traces, done), as_json)


def _tell(pipeline: Pipeline, seed: int, cost: Overhead, as_json: bool) -> None:
    summary = cost.summary()
    if as_json:
        print(json.dumps({"defence": str(pipeline), "seed": seed} | summary))
        return
    table = Table("what", "value", box=None, show_header=False)
    table.add_row("defence", str(pipeline))
    table.add_row("loads", str(summary["loads"]))
    for name, about in _ABOUT.items():
        value = summary[name]
        table.add_row(about, "-" if value is None else f"{value:.1%}")
    Console().print(table)
