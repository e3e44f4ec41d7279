"""`anabranch-lab`: the lab on the command line.

Exit code 0: success. 2: the input or an option is wrong; one line names it, and nothing is written.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, NoReturn, TextIO

import typer

from anabranch import __version__
from anabranch.camouflage.command import camouflage
from anabranch.commands.convert import convert
from anabranch.commands.evaluate import evaluate
from anabranch.commands.inspect import inspect
from anabranch.commands.simulate import simulate
from anabranch.commands.split import split
from anabranch.commands.sweep import sweep
from anabranch.compare import compare
from anabranch.covertness.command import covertness
from anabranch.defences.base import DefenceError
from anabranch.defences.command import KINDS, defend
from anabranch.doctor import doctor
from anabranch.plugins import PluginError
from anabranch.report.command import report
from anabranch.reproduction import reproduction
from anabranch.splitting import SplitError
from anabranch.validate import TraceError, TraceWarning

app = typer.Typer(
    name="anabranch-lab",
    help="Measure what an observer of one path learns from traffic that is split over several "
    "paths.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def main() -> None:
    """Runs the command line; every expected error becomes one line and exit code 2."""
    warnings.showwarning = _warn
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="anabranch-lab", standalone_mode=False)
        if sys.stdout is not None:  # None if stdout was closed before the start
            sys.stdout.flush()
    except typer.TyperException as error:
        _end(error.format_message())
    except (TraceError, SplitError, DefenceError, PluginError) as error:
        _end(str(error))
    except OSError as error:
        # Errors of files are `TraceError`s, so this error means that the reader of stdout has
        # gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _end(f"standard output: {error.strerror}")
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _end(problem: str) -> NoReturn:
    print(f"anabranch-lab: {problem}".replace("\n", " "), file=sys.stderr)
    sys.exit(2)


def _warn(  # as `warnings.showwarning` is called
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints the lab's own warnings as one line, and a library's warnings as Python does."""
    if issubclass(category, TraceWarning):
        text = f"anabranch-lab: warning: {message}".replace("\n", " ")
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    print(text, file=file or sys.stderr)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"anabranch-lab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


for _command in (
    evaluate,
    sweep,
    simulate,
    compare,
    report,
    doctor,
    covertness,
    camouflage,
    convert,
    inspect,
    split,
    defend,
    reproduction,
):
    app.command(epilog=KINDS if _command is defend else None)(_command)
