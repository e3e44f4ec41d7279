"""Each page of docs/results names its data, and the tables that have none in the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anabranch.reproduction import rows

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the pages and data that a test may change."""
    return Path(shutil.copytree(RESULTS, tmp_path / "results"))


def test_every_page_and_data_file_is_listed() -> None:
    assert list(rows.problems(RESULTS)) == []


def test_the_table_is_what_the_list_and_the_files_make() -> None:
    text = (RESULTS / "README.md").read_text("utf-8")
    assert rows.written(RESULTS) in text, "run: make reproduce-index"


def test_a_file_without_a_page_and_a_page_without_an_entry_are_reported(copy: Path) -> None:
    (copy / "other.json").write_text("[]")
    (copy / "other.md").write_text("# Other")
    (copy / "wide.parquet").unlink()
    found = list(rows.problems(copy))
    assert found == [
        "other.md: not both in rows.toml and in the folder",
        "other.json: no page of rows.toml has it",
        "designs.md: wide.parquet is missing",
        "wide.md: wide.parquet is missing",
    ]


def test_a_page_that_hides_a_lack_of_rows_is_reported(copy: Path) -> None:
    page = copy / "covertness.md"
    page.write_text(page.read_text("utf-8").replace(rows.LOST, "were counted"), "utf-8")
    (found,) = rows.problems(copy)
    assert found == f"covertness.md: has '{rows.LOST}' 0 times, but 1 tables without rows"


def test_an_interval_that_no_data_hold_is_reported(copy: Path) -> None:
    page = copy / "systems.md"
    text = page.read_text("utf-8")
    page.write_text(text.replace("37.1 % (28.3–46.7)", "37.1 % (28.4–46.7)", 1), "utf-8")
    (found,) = rows.problems(copy)
    assert found == (
        "systems.md: 1 intervals are in no data file, and rows.toml has 0: 37.1 (28.4–46.7)"
    )
