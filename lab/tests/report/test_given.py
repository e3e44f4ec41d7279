"""Reports of the results given, and such results in other programs' forms."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from anabranch import plot, results
from anabranch.metrics import difference
from anabranch.observers import SettingError
from anabranch.report import export, page
from anabranch.report.collection import Collection
from anabranch.report.html import document
from anabranch.report.tables import Table, percent
from anabranch.results import Result
from report.conftest import WR, result, save_all, several
from report.test_command import lab, plain_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOUR: dict[str, Any] = {"schedule": "weighted:4", "every": "100ms", "paths": 2}


def built(found: list[Result], folder: Path, *, paper: bool = False) -> page.Page:
    return page.build(Collection.read([save_all(found, folder)], paper=paper), "")


def test_a_report_has_no_place_for_what_it_was_not_given(tmp_path: Path) -> None:
    """Two attacks, one setting that is not in the paper; the twin has all of the paper's places."""
    found = [result(0.4, **FOUR), result(0.3, attack="size", **FOUR)]
    text = document(built(found, tmp_path / "a"))
    for word in ('class="missing"', "DF", "Var-CNN", "Table 3", "WR 50p", "CoMPS", "figure-6"):
        assert word not in re.sub(r"<style>.*?</style>|<p>RR, UR.*?</p>", "", text, flags=re.DOTALL)
    for word in (
        "WR:4 100 ms × 2",
        "size alone",
        *(percent(each.metrics["accuracy"]["value"]) for each in found),
    ):
        assert word in text
    assert 'class="missing"' in document(built(found, tmp_path / "b", paper=True))


def test_every_result_that_is_given_is_shown(tmp_path: Path) -> None:
    opened: dict[str, Any] = {"world": "open", "monitored": 5}
    found = [
        *several(),
        result(0.35, **opened, **FOUR, observer="largest"),
        result(0.3, attack="df", **opened, **WR),
    ]
    made = built(found, tmp_path / "a")
    tables = {part.key: part for section in made.sections for part in section.parts
              if isinstance(part, Table)}  # fmt: skip
    assert all(table.rows for table in tables.values())
    assert len(tables["all"].rows) == len(found)
    assert len(tables["open-world"].rows) == sum(each.spec.design.world == "open" for each in found)
    assert {"figure-open-world", "figure-open-world-paper"} <= {each.key for each in made.figures}
    (drawn,) = (each.svg for each in made.figures if each.key == "figure-open-world")
    assert "the fullest path" in drawn
    third = [" ".join(cell.text for cell in row) for row in tables["table-3"].rows]
    assert len(third) == 2, "what both have, from either"
    assert all("DF" in row for row in third)


def test_an_attack_from_outside_has_its_place(tmp_path: Path) -> None:
    ours = result(0.4, **FOUR)
    theirs = replace(ours, spec=ours.spec.changed(attack="mine.py:Mine"))
    text = document(built([ours, theirs], tmp_path / "a"))
    assert "mine.py:Mine" in text
    assert "k-FP" in text


def test_csv_holds_every_number(folder: Path, tmp_path: Path) -> None:
    done = lab(folder, "--out", tmp_path / "o", "--csv", tmp_path / "a.csv",
               "--latex", tmp_path / "a.tex")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "--csv a.csv --latex a.tex" in plain_text(tmp_path / "o" / "report.html")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    files = {file.name: results.load(file) for file in folder.glob("*.json")}
    assert {row["file"] for row in rows} == set(files)
    for row in rows:
        kept = files[row["file"]]
        for name, estimate in results.estimates(kept.metrics):
            for part, column in (("value", name), ("low", f"{name}_low"), ("high", f"{name}_high")):
                wanted = estimate[part]
                assert row[column] == ("" if wanted is None else str(wanted))
        assert row["attack"] == kept.spec.attack.name
        assert row["paths"] == str(kept.spec.splitting.paths)
        assert float(row["cpu_s"]) == kept.elapsed["cpu_s"]
    assert any(row["accuracy"] == "" for row in rows), "of the open world"


def test_latex_is_a_table_for_each_world(folder: Path) -> None:
    found = Collection.read([folder])
    text = export.latex(found)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == len(found) + 2
    for row in rows:
        assert len(re.findall(r"(?<!\\)&", row)) in (4, 6)
    (best,) = found.select(attack="rf", world="closed", observer="whole")
    value, low, high = (100 * (best.estimate("accuracy")[part] or 0)
                        for part in ("value", "low", "high"))  # fmt: skip
    assert f"{value:.1f} [{low:.1f}, {high:.1f}]" in text
    assert export.escaped("a_b & 5 % × #1 ~ ^ {x} \\") == (
        r"a\_b \& 5 \% $\times$ \#1 \textasciitilde{} \textasciicircum{} \{x\} \textbackslash{}"
    )
    assert not re.search(r"[^\x00-\x7f]", text), "every sign is LaTeX's own"


def test_accuracy_is_drawn_with_its_interval(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib").use("agg")
    found = [result(0.9, **WR), result(0.2, **WR), result(0.5, attack="rf", **WR)]
    axes = plot.accuracy(found)
    values = sorted(100 * each.metrics["accuracy"]["value"] for each in found)
    (dots,) = axes.containers
    assert dots[0].get_xdata().tolist() == pytest.approx(values)
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels[1].startswith("RF: WR 50p × 3, a random path")
    again = plot.accuracy(found[:1], axes, label=lambda each: each.spec.attack.name, color="red")
    assert again is axes
    cast("Figure", axes.figure).savefig(tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").stat().st_size > 1000


def test_curves_and_differences_are_drawn() -> None:
    pytest.importorskip("matplotlib").use("agg")
    opened: dict[str, Any] = {"world": "open", "monitored": 5}
    both = [result(0.9, **opened), result(0.5, attack="rf", **opened)]
    axes = plot.curve(both)
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "k-FP: undefended",
        "RF: undefended",
    ]
    first, other = result(0.9, **WR), result(0.2, **WR)
    gain = difference(other.outcomes, first.outcomes, 50, 0).gain
    (dots,) = plot.differences(first, [other]).containers
    assert dots[0].get_xdata().tolist() == pytest.approx([100 * gain.value])
    cases: list[tuple[Callable[..., Any], list[Result]]] = [
        (plot.accuracy, both),
        (plot.curve, [first]),
        (plot.curve, []),
    ]
    for draw, given in cases:
        with pytest.raises(SettingError, match=r"world|no result"):
            draw(given)


def of_key(made: page.Page, key: str) -> Table | None:
    parts = [part for section in made.sections for part in section.parts]
    tables = (part for part in parts if isinstance(part, Table))
    return next((table for table in tables if table.key == key), None)


def test_each_number_stands_beside_what_the_size_tells(tmp_path: Path) -> None:
    other = {**FOUR, "every": "20ms"}
    seen: dict[str, Any] = {"attack": "rocket", "observer": "largest"}
    found = [
        result(0.4, **FOUR, **seen),
        result(0.2, **FOUR, attack="size", observer="largest", loads=60),
        result(0.3, **other, **seen),
    ]
    elsewhere = replace(result(0.6, **FOUR, **seen), data="e" * 64)
    table = of_key(built([*found, elsewhere], tmp_path / "a"), "sizes")
    assert table is not None
    (row,) = table.rows
    setting = ["WR:4 100 ms × 2", "MiniRocket + LDA", "the fullest path"]
    assert [cell.text for cell in row[:3]] == setting
    texts = [[value.text for value in cell.values] for cell in row[3:]]
    wanted = [percent(each.metrics["accuracy"]["value"]) for each in (*found[:2], elsewhere)]
    assert texts == [[wanted[0]], [wanted[1]], [wanted[2]], []]
    assert row[6].missing, "of the other data no size was measured"
    # The twin: without a number of the size there is nothing to compare with.
    assert of_key(built([found[0], found[2]], tmp_path / "b"), "sizes") is None


def test_numbers_that_were_restored_from_tables_have_a_page(tmp_path: Path) -> None:
    """They lack the number of test loads."""
    both = [result(0.4, **FOUR), result(0.3, attack="size", **FOUR)]
    bare = [
        replace(each, metrics={key: part for key, part in each.metrics.items()
                               if key != "predictions"})
        for each in both
    ]  # fmt: skip
    table = of_key(built(bare, tmp_path / "a"), "sizes")
    assert table == of_key(built(both, tmp_path / "b"), "sizes")
    assert table is not None


def test_a_report_says_what_of_a_sweep_is_missing(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(
        'runs = [{ schedule = "weighted:4", every = ["100ms", "20ms"], paths = 2 }]\n'
        '[common]\nattack = ["rocket", "size"]\nobserver = "largest"\nbootstrap = 50\n'
        'mode = "together"\n'
    )
    seen: dict[str, Any] = {"observer": "largest"}
    found = [
        result(0.4, **FOUR, **seen, attack="rocket"),
        result(0.1, **FOUR, **seen, attack="size"),
    ]
    folder = save_all(found, tmp_path / "some.results")
    out = tmp_path / "out"
    done = lab(folder, "--out", out, "--planned", sweep)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(plain_text(out / "report.html").split())
    assert "--planned sweep.toml" in text
    assert "2 of 4 planned evaluations are complete; not run: WR:4 20 ms × 2." in text
    assert "Lowest: WR:4 100 ms × 2, MiniRocket + LDA" in text
    # The twin: all planned evaluations are present.
    other = {**FOUR, "every": "20ms"}
    more = [result(0.3, **other, **seen, attack=name) for name in ("rocket", "size")]
    save_all([*found, *more], folder)
    assert lab(folder, "--out", out, "--planned", sweep).returncode == 0
    text = " ".join(plain_text(out / "report.html").split())
    assert "4 of 4 planned evaluations are complete." in text
    assert "; not run" not in text
    (tmp_path / "bad.toml").write_text("[common]\nattacks = 3\n")
    failed = lab(folder, "--out", out, "--planned", tmp_path / "bad.toml")
    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert "bad.toml" in failed.stderr
