"""The tables of docs/results/guards.md are those of its data."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
TABLE = runpy.run_path(str(ROOT / "lab/results/guards_table.py"))


def rows() -> list[dict[str, Any]]:
    """Returns the committed rows."""
    found: list[dict[str, Any]] = json.loads((RESULTS / "guards.json").read_text())
    return found


def test_the_page_has_the_tables_of_its_data() -> None:
    assert [row["setting"] for row in rows()] == list(TABLE["SETTINGS"])
    assert TABLE["tables"](rows()) in (RESULTS / "guards.md").read_text(encoding="utf-8")


def test_a_changed_number_is_not_in_the_page() -> None:
    """The twin: the comparison above can fail."""
    changed = rows()
    changed[1]["accuracy"]["k-fp, largest"]["value"] += 0.01
    assert TABLE["tables"](changed) not in (RESULTS / "guards.md").read_text(encoding="utf-8")


def test_a_folder_of_measurements_becomes_rows(tmp_path: Path) -> None:
    line = (
        "9 loads: 100 cells recorded, 150 seen; by the fullest leg 0.500 of a load's cells and "
        "0.750 of its first 50 downward ones; 3 s"
    )
    (tmp_path / "one.txt").write_text(line)
    accuracy = {"value": 0.5, "low": 0.25, "high": 0.75}
    for attack in ("k-fp", "rocket"):
        result = tmp_path / f"one.{attack}.random.json"
        result.write_text(json.dumps({"metrics": {"accuracy": accuracy}}))
    (row,) = TABLE["measured"](tmp_path)
    assert (row["cells_recorded"], row["cells_seen"], row["fullest_share"]) == (100, 150, 0.5)
    assert "| one leg | 50.0 % | 75.0 % | 50.0 % (25.0–75.0) | the same |" in TABLE["tables"]([row])


def test_a_setting_without_its_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "eta.txt").write_text("killed")
    with pytest.raises(ValueError, match=r"eta\.txt has no line of the program guards"):
        TABLE["measured"](tmp_path)
