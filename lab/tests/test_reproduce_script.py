"""`scripts/reproduce` in short, with a program that returns the committed data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
PROGRAM = """\
#!/bin/sh
# anabranch experiment NAME FOLDER --short ...
[ "$1 $4" = "experiment --short" ] || exit 2
echo "$2" >>"{calls}"
mkdir -p "$3"
[ "$2" != "{broken}" ] || {{ echo "no such peer"; exit 1; }}
case $2 in
pages) cp "{data}"/page-loads/*.parquet "$3" ;;
*) cp "{data}/$2"*.parquet "$3" ;;
esac
"""
NAMES = [
    "anonymity", "circumvention", "overhead", "unordered", "circuits", "camouflage", "pages",
]  # fmt: skip


def reproduced(
    folder: Path, *, broken: str = "", data: Path = RESULTS
) -> subprocess.CompletedProcess[str]:
    """Runs the script with a program whose experiment `broken` fails; `data` is what it returns."""
    calls, program = folder / "calls", folder / "anabranch"
    lab = folder / "cache/anabranch/venv-lab/bin/anabranch-lab"
    lab.parent.mkdir(parents=True)
    (folder / "web").mkdir()
    program.write_text(PROGRAM.format(calls=calls, broken=broken, data=data))
    lab.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from anabranch.cli import main; main()" "$@"\n'
    )
    for file in (program, lab):
        file.chmod(0o755)
    environment = {
        "ANABRANCH": str(program),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "WEB": str(folder / "web"),
        "CONSENSUSES": "a.tsv b.tsv",
    }
    command = [str(ROOT / "scripts/reproduce"), str(folder / "out"), "--short"]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_every_experiment_runs_in_order_and_committed_data_contradict_nothing(
    tmp_path: Path,
) -> None:
    done = reproduced(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "calls").read_text().split() == NAMES
    assert "; 0 contradict the committed verdict" in " ".join(done.stdout.split())


def test_a_failed_experiment_does_not_stop_the_others(tmp_path: Path) -> None:
    done = reproduced(tmp_path, broken="circuits")
    assert done.returncode == 1
    assert (tmp_path / "calls").read_text().split() == NAMES
    assert "reproduce: circuits failed:\nno such peer" in done.stdout


@pytest.mark.parametrize("column", ["round", "repetition"])
def test_data_of_one_round_are_compared_too(tmp_path: Path, column: str) -> None:
    """A short run has fewer rounds than an interval needs: its claims cannot be judged."""
    data = tmp_path / "data"
    (data / "page-loads").mkdir(parents=True)
    for file in (*RESULTS.glob("*.parquet"), *RESULTS.glob("page-loads/*.parquet")):
        table = pq.read_table(file)
        if column in table.column_names:
            table = table.filter([number == 0 for number in table[column].to_pylist()])
        pq.write_table(table, data / file.relative_to(RESULTS))
    done = reproduced(tmp_path, data=data)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cannot be judged" in done.stdout
