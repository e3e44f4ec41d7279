"""Two results of the same loads."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch import metrics, results
from anabranch.evaluate import Spec
from anabranch.metrics import Outcomes, PairError
from report.conftest import WR, outcomes, result

ONE = outcomes(Spec.of(**WR), 0.5, np.random.default_rng(1))
"""Ten loads of each of ten pages."""
NOTHING = ONE[np.zeros(len(ONE), np.bool_)]


def test_a_difference_by_hand() -> None:
    page = np.array([0, 0, 0, 1, 1, 1], np.int32)
    rows = replace(ONE[np.arange(6)], page=page, guess=np.array([0, 0, 1, 1, 0, 0], np.int32))
    better = replace(rows, guess=np.array([1, 0, 0, 1, 1, 1], np.int32))
    found = metrics.difference(rows, better, 100, 0)
    assert (found.loads, found.pages) == (6, 2)
    assert (found.first.value, found.second.value) == pytest.approx((3 / 6, 5 / 6))
    assert found.gain.value == pytest.approx(2 / 6)
    assert (found.only_first, found.only_second) == (1, 3)
    # Page 0 gains nothing, page 1 two loads of three: resampled, from neither to both.
    assert (found.gain.low, found.gain.high) == pytest.approx((0, 2 / 3))


def test_what_pages_have_in_common_falls_out() -> None:
    easy = replace(ONE, guess=np.where(ONE.page < 5, ONE.page, -1).astype(np.int32))
    rare = np.arange(len(ONE)) % 10 == 9
    better = replace(easy, guess=np.where(rare, ONE.page, easy.guess).astype(np.int32))
    found = metrics.difference(easy, better, 500, 0)
    assert found.gain.value == pytest.approx(0.05)
    assert found.gain.low > 0.01
    assert found.first.high > found.second.value, "by their own intervals they do not differ"


def test_equal_results_do_not_differ() -> None:
    found = metrics.difference(ONE, ONE, 100, 0)
    assert (found.gain.low, found.gain.value, found.gain.high) == (0, 0, 0)


def test_loads_are_found_by_their_names_and_others_left_out() -> None:
    shuffled = ONE[np.random.default_rng(2).permutation(len(ONE))]
    found = metrics.difference(ONE, shuffled[np.arange(70)], 100, 0)
    assert (found.loads, found.only_first, found.only_second) == (70, 0, 0)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (ONE[[0, 0]], "several predictions"),
        (replace(ONE, run=ONE.run + 1), "no load in common"),
        (NOTHING, "no load in common"),
        (replace(ONE, page=ONE.page[::-1]), "compare results of the same data"),
    ],
)
def test_what_cannot_be_compared_is_refused(other: Outcomes, said: str) -> None:
    with pytest.raises(PairError, match=said):
        metrics.difference(ONE, other, 10, 0)


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = "from anabranch.cli import main; main()"
    command = [sys.executable, "-c", program, "compare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_compares_two_files(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    results.save(result(0.2, **WR), first)
    results.save(result(0.6, **WR), second)
    done = lab(first, second, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    numbers = json.loads(done.stdout)
    assert numbers["gain"]["value"] == pytest.approx(
        numbers["second"]["value"] - numbers["first"]["value"]
    )
    shown = lab(first, second)
    assert f"{100 * numbers['gain']['value']:+.1f} points" in shown.stdout
    assert "100 loads of 10 pages" in shown.stdout


def test_files_that_do_not_compare_end_the_command(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.json" for name in ("one", "open", "data", "bare")}
    results.save(result(0.5, **WR), files["one"])
    results.save(result(0.5, world="open", monitored=5, **WR), files["open"])
    results.save(replace(result(0.5, **WR), data="e" * 64), files["data"])
    results.save(replace(result(0.5, **WR), outcomes=NOTHING), files["bare"])
    for name, said in (
        ("open", "an open-world result"),
        ("data", "this result is for other data than"),
        ("bare", "without predictions"),
    ):
        done = lab(files["one"], files[name])
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"anabranch-lab: {files[name]}: ")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert lab(files["one"], tmp_path / "none.json").returncode == 2
    content = json.loads(files["one"].read_text())
    files["data"].write_text(json.dumps(content | {"spec": content["spec"] | {"paths": 0}}))
    assert (
        "data.json: the result has unknown settings: paths: 0"
        in lab(files["one"], files["data"]).stderr
    )
    files["bare"].with_suffix(".parquet").unlink()
    assert (
        "bare.parquet: the file of its predictions is missing"
        in lab(files["one"], files["bare"]).stderr
    )
    files["one"].write_text(json.dumps(content | {"facts": {}}))
    assert lab(files["one"], files["one"]).returncode == 0
