"""`anabranch-lab compare`: tests whether two results differ by more than chance."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from anabranch.metrics.bootstrap import MOST_RESAMPLES
from anabranch.validate import TraceError

if TYPE_CHECKING:
    from anabranch.metrics import Difference, Estimate
    from anabranch.results import Result

File = Annotated[
    Path,
    typer.Argument(
        help="Compare this result: a .json file of `anabranch-lab evaluate --out`. Its "
        ".parquet file (predictions) must be in the same folder."
    ),
]


def compare(
    first: File,
    second: File,
    bootstrap: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_RESAMPLES,
            help="Compute the confidence interval from this number of bootstrap resamples.",
        ),
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Use this seed for the random resamples.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as one JSON object.")
    ] = False,
) -> None:
    """Compare the closed-world accuracy of two results on the page loads that both tested.

    The command prints the difference of the two accuracies, and its confidence interval. Because
    the bootstrap draws the same pages for both results, the interval of the difference can show
    which result is better even if the intervals of the two results overlap.
    """
    from anabranch import metrics, results

    pair = results.load(first), results.load(second)
    _check(pair, (first, second))
    try:
        found = metrics.difference(pair[0].outcomes, pair[1].outcomes, bootstrap, seed)
    except metrics.PairError as error:
        raise TraceError(str(error), file=second) from error
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        _show(found, pair)


def _check(pair: tuple[Result, Result], files: tuple[Path, Path]) -> None:
    for result, file in zip(pair, files, strict=True):
        if result.spec.design.world != "closed":
            raise TraceError(
                "an open-world result cannot be compared, because it has its own threshold: give "
                "closed-world results",
                file=file,
            )
        if not len(result.outcomes):
            raise TraceError(
                "a result without predictions cannot be compared: evaluate it again", file=file
            )
    if pair[0].data != pair[1].data:
        raise TraceError(f"this result is for other data than {files[0]}", file=files[1])


def _show(found: Difference, pair: tuple[Result, Result]) -> None:
    table = Table("", "accuracy", "95 % interval by page", "recognised by it alone", box=None)
    rows = (("first", found.first, found.only_first), ("second", found.second, found.only_second))
    for name, estimate, alone in rows:
        table.add_row(name, f"{estimate.value:.1%}", _interval(estimate), f"{alone} loads")
    gain = found.gain
    points = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f} points"
    table.add_row("second minus first", f"{100 * gain.value:+.1f} points", points, "")
    for name, result in zip(("first", "second"), pair, strict=True):
        print(f"{name}: {result.spec.describe(result.facts.get('recorded_split'))}")
    print(f"{found.loads} loads of {found.pages} pages, which both results tested")
    Console().print(table)


def _interval(estimate: Estimate) -> str:
    return f"{estimate.low:.1%} to {estimate.high:.1%}"
