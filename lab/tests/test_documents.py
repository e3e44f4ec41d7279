"""Every `anabranch-lab` line of README, the guides and the lab's README parses unchanged."""

import re
import shlex
from pathlib import Path
from typing import cast

import pytest
import typer

from anabranch.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "lab/README.md", *sorted(ROOT.glob("docs/guide/*.md"))]


def commands() -> list[str]:
    """Returns the command lines, without continuation and comment, each with its document."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")
        lines = re.findall(r"^(?:    |\* \[[^`]*`)?(anabranch-lab [^\n`]*)", text, re.MULTILINE)
        found += [f"{document.name}: {line}" for line in lines]
    return found


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_documents_parses(line: str) -> None:
    """With the command line's own parser; nothing is run."""
    _, _, command = line.partition(": ")
    words = shlex.split(command, comments=True)[1:]
    program = cast("typer.core.TyperGroup", typer.main.get_command(app))
    context = program.make_context("anabranch-lab", list(words), resilient_parsing=False)
    name, sub, rest = program.resolve_command(context, words)
    assert sub is not None
    sub.make_context(name, rest, parent=context)


def test_the_documents_have_commands() -> None:
    """The twin: an empty list would prove nothing."""
    assert len(commands()) > 15
