"""Options in groups: Typer sees each option, the command gets an object for each group."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from anabranch.commands.groups import grouped


@dataclass(frozen=True)
class Paper:
    PANEL: ClassVar[str] = "Of the paper"

    pages: Annotated[int, typer.Option(help="Number of pages.")] = 3
    words: Annotated[list[str] | None, typer.Option("--word", help="A word.")] = None


@dataclass(frozen=True)
class Ink:
    colour: Annotated[str, typer.Option(help="Colour of the ink.")] = "black"


app = typer.Typer()
given: list[object] = []


@app.command()
@grouped
def write(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    paper: Paper,
    ink: Ink,
    fast: Annotated[bool, typer.Option("--fast", help="Hurry.")] = False,
) -> None:
    """Write a letter."""
    given.extend([name, paper, ink, fast])


def run(*words: str) -> list[object]:
    given.clear()
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return list(given)


def test_a_command_gets_its_groups() -> None:
    assert run("Ann") == ["Ann", Paper(), Ink(), False]
    words = ("Ann", "--pages", "5", "--word", "a", "--word", "b", "--colour", "red", "--fast")
    assert run(*words) == ["Ann", Paper(5, ["a", "b"]), Ink("red"), True]


def test_help_has_each_group_under_its_heading() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"TERM": "dumb", "COLUMNS": "100"}).output
    _, _, paper = shown.partition("Of the paper")
    assert "--pages" in paper
    assert "--word" in paper
    assert "--colour" not in paper
    assert "Write a letter." in shown


def test_an_option_in_two_groups_is_refused() -> None:
    def twice(one: Ink, two: Ink) -> None:
        """Has one option twice."""

    with pytest.raises(TypeError, match="an option is in two groups"):
        grouped(twice)
