"""The table of attacks and observers is what help, messages, tables and figures show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch import palette, registry
from anabranch.attacks import ATTACKS
from anabranch.cli import app
from anabranch.observers import Observer, SettingError
from anabranch.report import drawing, setting
from anabranch.sweep import listing


def help_of(command: str) -> str:
    """Returns the help of a command without line breaks."""
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "1000", "TERM": "dumb"})
    assert done.exit_code == 0
    return " ".join(done.output.split())


def test_every_attack_has_its_class_label_and_colour() -> None:
    assert list(ATTACKS) == [row.name for row in registry.ATTACKS]
    assert [setting.attack(row.name) for row in registry.ATTACKS] == [
        row.label for row in registry.ATTACKS
    ]
    assert [drawing.colour_of(row.name) for row in registry.ATTACKS] == [
        row.colour.light for row in registry.ATTACKS
    ]


def test_labels_and_colours_distinguish_attacks() -> None:
    text = {palette.INK, palette.FAINT, palette.MUTED}
    colours = {row.colour for row in registry.ATTACKS} - text
    assert len({colour.light for colour in colours}) == len(registry.ATTACKS)
    assert len({colour.dark for colour in colours}) == len(registry.ATTACKS)
    assert len({row.label for row in registry.ATTACKS}) == len(registry.ATTACKS)


def test_a_third_party_attack_has_its_name_and_the_colour_of_text() -> None:
    assert setting.attack("bursts:Bursts") == "bursts:Bursts"
    assert drawing.colour_of("bursts:Bursts") == palette.INK.light


def test_help_lists_every_attack_and_observer() -> None:
    shown = help_of("evaluate")
    assert registry.attack_names() in shown
    assert registry.observer_rules() in shown


def test_a_message_lists_every_observer() -> None:
    with pytest.raises(SettingError) as refused:
        Observer.parse("nobody")
    assert registry.observer_rules() in str(refused.value)


@pytest.mark.parametrize("row", registry.OBSERVERS, ids=lambda row: row.syntax)
def test_every_observer_is_parsed_and_has_its_label(row: registry.ObserverRow) -> None:
    text = row.syntax.replace("K", "2")
    for extra, about in registry.EXTRAS.items():
        if extra == "earlier" and not row.earlier:
            with pytest.raises(SettingError):
                Observer.parse(f"{text}+{extra}")
        else:
            assert str(Observer.parse(f"{text}+{extra}")) == f"{text}+{extra}"
            label = row.label.replace("K", "2")
            assert setting.observer(f"{text}+{extra}") == f"{label}, {about}"


def test_an_attack_is_named_to_users_as_options_name_it() -> None:
    names = [registry.option_name(row.name) for row in registry.ATTACKS]
    assert [registry.ALIASES.get(name, name) for name in names] == list(registry.BY_NAME)
    assert registry.option_name("rocket") == "minirocket"
    assert registry.option_name("installed-by-another-package") == "installed-by-another-package"


def test_a_sweep_names_its_units_as_the_options_do(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text('[[runs]]\nname = "two"\nattack = ["rocket", "k-fp"]\n')
    units = listing.read(file, tmp_path / "loads.parquet")
    assert [str(unit) for unit in units] == [
        "two: minirocket, random, seed 0",
        "two: k-fp, random, seed 0",
    ]


def test_the_command_line_starts_without_scikit_learn() -> None:
    program = "import sys, anabranch.cli; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
