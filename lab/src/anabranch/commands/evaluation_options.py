"""The options of `evaluate`, in a group for each concern.

The method `settings` of a group returns its settings under the names used in files and by
`Spec.of`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from anabranch import io
from anabranch.commands.options import Seed
from anabranch.registry import attack_names, observer_rules
from anabranch.splitting import parse_delay


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading the traces, the argument IN."""

    PANEL: ClassVar[str] = "Traces"

    form: Annotated[
        str | None,
        typer.Option(
            "--from",
            help=f"Read the traces IN in this format: {', '.join(io.FORMATS)}. Needed only "
            "if the format is not recognised.",
        ),
    ] = None
    unmonitored_y: Annotated[
        int | None,
        typer.Option(
            "--unmonitored-y",
            metavar="Y",
            help="In the npz file IN, the unmonitored pages have this class number (y).",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Splitting:
    """Options of the split over paths."""

    PANEL: ClassVar[str] = "Split"

    schedule: Annotated[
        str | None,
        typer.Option(
            help="Split the traces by this schedule: the rule that chooses the path of "
            "each run (consecutive packets), as in `anabranch-lab split`. Without "
            "this option the traces are not split."
        ),
    ] = None
    every: Annotated[
        str | None,
        typer.Option(
            help="Set the length of a run (consecutive packets on one path), as in "
            "`anabranch-lab split`."
        ),
    ] = None
    paths: Annotated[int, typer.Option(help="Split over this number of paths, 1 or more.")] = 3
    mode: Annotated[
        str | None,
        typer.Option(
            help="Set how packets from the client and packets from the server get their "
            "paths: follow, follow:20ms, independent or together. `anabranch-lab "
            "split --help` explains them. Default: follow, or the mode that "
            "--schedule or --path-defence needs."
        ),
    ] = None
    draw: Annotated[
        str,
        typer.Option(
            help="Draw new random probabilities of the paths at these times: load (for "
            "each page load), session:20 (after 20 loads), silence:1s (after a pause "
            "of 1 s)."
        ),
    ] = "load"
    delay: Annotated[
        list[str] | None,
        typer.Option(
            metavar="S|UP/DOWN",
            help="Add a delay to a path, in seconds; `anabranch-lab split --help` explains "
            "the values.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Returns the settings. If `mode` is missing, `Spec` uses the default of the schedule."""
        found = asdict(self) | {"delays": [parse_delay(text) for text in self.delay or []]}
        del found["delay"]
        if self.mode is None:
            del found["mode"]
        return found


@dataclass(frozen=True, slots=True)
class Padding:
    """Options of padding."""

    PANEL: ClassVar[str] = "Padding"

    defence: Annotated[
        str | None,
        typer.Option(
            help="Add this padding before the split. `anabranch-lab defend --help` lists "
            "the kinds of padding."
        ),
    ] = None
    path_defence: Annotated[
        str | None,
        typer.Option(
            help="Add this padding to each path after the split. `anabranch-lab defend "
            "--help` lists the kinds of padding."
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Returns the settings."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Attacker:
    """Options of the observer and its attacks."""

    PANEL: ClassVar[str] = "Attacker"

    observer: Annotated[
        str,
        typer.Option(
            help=f"Set the paths that the attack sees: {observer_rules()}. Append +counter "
            "if the attack also sees unencrypted packet numbers. Append +earlier to "
            "random or largest if the attack also knows earlier loads of the same "
            "session (with --draw session:N)."
        ),
    ] = "random"
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this attack (a classifier that names the page of a load): "
            f"{attack_names()}; FILE.py:Class; or a name from an installed package. "
            "Repeat the option to compare the first attack with each of the others on "
            "the same loads. Default: k-fp."
        ),
    ] = None
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ATTACK.]NAME=VALUE",
            help="Set a parameter of the attack. With several attacks, write ATTACK.NAME=VALUE.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Returns the settings that all attacks share."""
        return {"observer": self.observer}


@dataclass(frozen=True, slots=True)
class Division:
    """Options that select loads and divide them into training, validation and test sets."""

    PANEL: ClassVar[str] = "Loads"

    protocol: Annotated[
        str,
        typer.Option(
            help="Set how loads are divided into training and test sets. honest: each load "
            "is in one set as a whole. paper: the parts of a load on different paths "
            "are separate samples, so parts of one load can be in both sets, as in "
            "the CoMPS paper."
        ),
    ] = "honest"
    folds: Annotated[
        int,
        typer.Option(
            help="With --protocol paper, run this number of folds (divisions into training "
            "and test sets), 1 to 10."
        ),
    ] = 1
    world: Annotated[
        str,
        typer.Option(
            help="Choose the test. closed: the attack is trained on all pages; open: there "
            "are also loads of pages that the attack does not know."
        ),
    ] = "closed"
    pages: Annotated[
        int | None,
        typer.Option(help="Use this number of pages, chosen at random. Default: all pages."),
    ] = None
    monitored: Annotated[
        int | None,
        typer.Option(
            help="With --world open, use this number of monitored pages, on which the "
            "attack is trained."
        ),
    ] = None
    loads: Annotated[
        int | None, typer.Option(help="Train on this number of loads of each page.")
    ] = None
    validation_loads: Annotated[
        int | None, typer.Option(help="Validate on this number of loads of each page.")
    ] = None
    test_loads: Annotated[
        int | None, typer.Option(help="Test on this number of loads of each page.")
    ] = None
    test_run: Annotated[
        int | None,
        typer.Option(
            help="Test on the loads that have this number in the column `run` of the "
            "traces (the repetition of the recording)."
        ),
    ] = None
    validation_run: Annotated[
        int | None,
        typer.Option(
            help="Validate on the loads that have this number in the column `run` of the "
            "traces (the repetition of the recording)."
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Returns the settings."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Training:
    """Options of the training set."""

    PANEL: ClassVar[str] = "Training"

    resplits: Annotated[
        int,
        typer.Option(
            help="Split each training load this number of times, with different random choices."
        ),
    ] = 1
    merged: Annotated[
        bool, typer.Option("--merged", help="Also train on the traces before the split.")
    ] = False
    train_on: Annotated[
        str | None,
        typer.Option(
            metavar="unsplit|FILE",
            help="Train an attack that does not know the split. unsplit: train on the "
            "training loads before padding and split. FILE: train on loads of the "
            "same pages in this file.",
        ),
    ] = None

    @property
    def file(self) -> Path | None:
        """The file of separate traces for training, if any."""
        return None if self.train_on in (None, "unsplit") else Path(str(self.train_on))

    def settings(self, digest: str | None) -> dict[str, Any]:
        """Returns the settings, with `file` replaced by its `digest`."""
        return asdict(self) | ({} if digest is None else {"train_on": f"data:{digest}"})


@dataclass(frozen=True, slots=True)
class Scoring:
    """Options of the metrics."""

    PANEL: ClassVar[str] = "Numbers"

    r: Annotated[
        float,
        typer.Option(
            help="For the r-precision, assume that users make r unmonitored loads for each "
            "monitored load."
        ),
    ] = 20.0
    bootstrap: Annotated[
        int,
        typer.Option(
            help="Compute the confidence intervals from this number of bootstrap resamples."
        ),
    ] = 1000
    seed: Seed = 0

    def settings(self) -> dict[str, Any]:
        """Returns the settings."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Output:
    """Options of the output."""

    PANEL: ClassVar[str] = "Output"

    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write the result to FILE.json and the predictions to FILE.parquet. With "
            "several attacks: FILE.0.json and so on.",
        ),
    ] = None
    replace: Annotated[
        bool, typer.Option("--replace", help="Let --out replace an older result.")
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as one JSON object.")
    ] = False

    def files(self, number: int) -> list[Path | None]:
        """Returns a file for each of `number` results: FILE.0.json, FILE.1.json, and so on."""
        if self.out is None or number == 1:
            return [self.out] * number
        return [self.out.with_suffix(f".{place}{self.out.suffix}") for place in range(number)]
