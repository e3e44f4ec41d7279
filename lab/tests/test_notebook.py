"""The notebook of the examples: plain Python that runs and prints its recorded output."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
RUNNER = EXAMPLES / "run_notebook.py"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_it_keeps(notebook: Path) -> None:
    pytest.importorskip("matplotlib")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import run_notebook as r; "
        "from pathlib import Path; import json; p = Path(sys.argv[2]); "
        "print(json.dumps([r.run(p), r.kept(r.read(p))]))"
    )
    call = [sys.executable, "-c", program, str(EXAMPLES), str(notebook)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed, kept = json.loads(done.stdout)
    assert printed == kept, f"python {RUNNER.name} {notebook.name} --write keeps what it prints now"
    assert sum(map(bool, kept)) >= 4


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_plain_python_within_its_columns(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text())["cells"]:
        lines = "".join(cell["source"]).splitlines()
        assert max(map(len, lines)) <= 120
        if cell["cell_type"] == "code":
            ast.parse("\n".join(lines))


def test_there_is_one() -> None:
    assert [each.name for each in NOTEBOOKS] == ["tour.ipynb"]


def test_a_cell_that_fails_is_named_and_what_differs_is_told(tmp_path: Path) -> None:
    target = tmp_path / "bad.ipynb"
    cell: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": []}

    def made(*sources: str) -> None:
        cells = [cell | {"source": [source]} for source in sources]
        target.write_text(json.dumps({"nbformat": 4, "cells": cells}))

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, str(RUNNER), str(target), *options]
        return subprocess.run(call, capture_output=True, text=True, check=False)

    made("a = 1", "print(a + b)")
    assert "bad.ipynb, cell 2: NameError" in run().stderr
    made("a = 1", "print(a)")
    assert run().returncode == 1, "it keeps nothing yet"
    assert run("--write").returncode == 0
    assert run().returncode == 0
    assert json.loads(target.read_text())["cells"][1]["outputs"][0]["text"] == ["1\n"]
