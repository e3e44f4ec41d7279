"""Third-party attacks, defences and schedules, which never touch our tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier

from anabranch import io, plugins, results
from anabranch.attacks import AttackError, Sequences
from anabranch.attacks.foreign import attack_class
from anabranch.evaluate import Spec, add_attack, evaluate
from anabranch.evaluate.attack import make, name_of
from anabranch.observers import SettingError
from anabranch.plugins import PluginError
from anabranch.report.collection import Collection
from anabranch.splitting import Schedule, Split, SplitError
from anabranch.sweep import read, sweep
from anabranch.traces import Traces

EXAMPLE = Path(__file__).parents[2] / "examples/bursts.py"
PACKAGE = '''
import numpy as np
from anabranch.attacks import CourseForest
from anabranch.defences import Defence
from anabranch.defences.base import padded
from anabranch.splitting import Schedule

class Halves(CourseForest):
    """Twenty moments."""

class Echo(Defence):
    """A dummy up after each packet down."""
    name = "echo"
    def __str__(self):
        return "echo"
    def shape(self, times, sizes, seed, facts):
        return padded(times, sizes, times[sizes < 0] + 0.001, [], 100)

class Blocks(Schedule):
    """Runs of some packets, paths in turn."""
    def __init__(self, length="10"):
        self.length = int(length)
    def __str__(self):
        return f"blocks:{self.length}"
    def assign(self, times, sizes, paths, chance):
        return (np.arange(times.size) // self.length + chance.integers(paths)) % paths
'''
POINTS = """
[anabranch.attacks]
halves = strangers:Halves

[anabranch.defences]
echo = strangers:Echo

[anabranch.schedules]
blocks = strangers:Blocks
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields an installed package with an entry point of each kind."""
    folder = tmp_path / "site"
    metadata = folder / "strangers-1.2.dist-info"
    metadata.mkdir(parents=True)
    (folder / "strangers.py").write_text(PACKAGE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(plugins, "_ADDED", {})
    plugins.installed.cache_clear()
    yield folder
    sys.modules.pop("strangers", None)
    plugins.installed.cache_clear()


def lab(*arguments: object, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-c", "from anabranch.cli import main; main()", *map(str, arguments)]
    there = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{there}" if path else there}
    return subprocess.run(call, capture_output=True, text=True, check=False, env=environment)


def test_a_strangers_file_is_evaluated_beside_ours(data: Path, tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60
    attacks = ["--attack", f"{EXAMPLE}:Bursts", "--attack", "k-fp", "--attack", "size"]
    options = ["--parameter", "k-fp.trees=20", "--parameter", "bursts.py:Bursts.most=15"]
    done = lab("evaluate", data, *attacks, *options, "--out", tmp_path / "found.json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    kept = [results.load(tmp_path / f"found.{place}.json") for place in range(3)]
    assert [each.spec.attack.name for each in kept] == ["bursts.py:Bursts", "k-fp", "size"]
    assert kept[0].spec.attack.parameters == {"most": 15}
    assert kept[0].facts["outside"]["file"] == "bursts.py"
    assert len(kept[0].facts["outside"]["sha256"]) == 64
    for each in kept:
        accuracy = each.metrics["accuracy"]
        name = each.spec.attack.name
        (line,) = (line for line in lines if line.split()[0] == name and "(" in line)
        assert f"{100 * accuracy['value']:.1f} ({100 * accuracy['low']:.1f}-" in line
    assert kept[0].metrics["accuracy"]["value"] > 0.5, "five times what guessing finds"
    (first, second) = (line.strip() for line in lines if " minus " in line)
    assert first.startswith("bursts.py:Bursts minus k-fp")
    assert second.startswith("bursts.py:Bursts minus size")
    gain = kept[0].metrics["accuracy"]["value"] - kept[1].metrics["accuracy"]["value"]
    assert f"{100 * gain:+.1f}" in first
    shown = json.loads(lab("evaluate", data, *attacks, *options, "--json").stdout)
    assert shown["attacks"]["k-fp"] == kept[1].metrics
    assert shown["less"]["k-fp"]["gain"]["value"] == pytest.approx(gain)


def test_a_result_of_a_file_is_read_where_the_file_is_not(data: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(EXAMPLE.read_text().replace("Bursts", "Mine"))
    out = tmp_path / "results" / "one.json"
    out.parent.mkdir()
    assert lab("evaluate", data, "--attack", f"{mine}:Mine", "--out", out).returncode == 0
    mine.write_text("raise SystemExit('a report ran somebody else\\'s file')")
    assert results.load(out).spec.attack.name == "mine.py:Mine"
    (entry,) = Collection.read([out.parent])
    assert entry.spec.attack.name == "mine.py:Mine"
    with pytest.raises(
        SettingError, match=r"mine\.py:Mine is not part of this program and was not found"
    ):
        evaluate(entry.spec, io.read(data))


def test_a_sweep_takes_files_into_its_processes(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text())
    listing = tmp_path / "spec.toml"
    listing.write_text(
        f'[common]\ndata = "{data}"\nattack = "mine.py:Bursts"\nseed = [0, 1]\n'
        '[attacks."mine.py:Bursts"]\nmost = 30\n'
    )
    units = read(listing)
    assert [unit.spec.attack.parameters for unit in units] == [{"most": 30}] * 2
    report = sweep(units, tmp_path / "out", jobs=2)
    assert (report.done, report.failed) == (2, [])
    assert sweep(read(listing), tmp_path / "out").kept == 2
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text() + "\n# another version\n")
    assert sweep(read(listing), tmp_path / "out").done == 2, "other code has other results"


def test_packages_add_by_entry_points(package: Path, data: Path, pages: Traces) -> None:
    name = name_of("halves")
    assert name == "package:halves"
    spec = Spec.of(attack=name, parameters={"trees": 5, "moments": 5}, schedule="blocks:7",
                defence="echo", bootstrap=20)  # fmt: skip
    result = evaluate(spec, pages)
    assert result.facts["outside"] == {"package": "strangers", "version": "1.2"}
    assert result.facts["folds"][0]["overhead"]["up"] > 0
    options = ["--attack", "halves", "--schedule", "blocks", "--defence", "echo"]
    done = lab("evaluate", data, *options, "--parameter", "trees=5", path=package)
    assert (done.returncode, done.stderr) == (0, "")
    assert "blocks --every never --paths 3" in done.stdout
    refused = lab("evaluate", data, "--attack", "halve", path=package)
    assert "did you mean 'package:halves'" in refused.stderr or "there are" in refused.stderr


def test_a_schedule_from_outside_splits_by_its_seed(package: Path, pages: Traces) -> None:
    split = Split("blocks:7", None, 3, seed=4)
    paths = split.split(pages).paths
    assert paths is not None
    first = paths[pages.packets(0)]
    assert (np.diff(first) != 0).sum() == (first.size - 1) // 7
    again, whole = split.split(pages[5:9]).paths, split.split(pages)[5:9].paths
    assert again is not None
    assert whole is not None
    np.testing.assert_array_equal(again, whole)
    other = split.split(pages, replica=1).paths
    assert other is not None
    assert not np.array_equal(paths, other)
    late = Split("blocks:7", None, 3, delays=(0.0, 0.1, 0.2), seed=4).split(pages)
    assert late.times.max() > pages.times.max()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"every": "50p"}, "every: .* is from another package"),
        ({"mode": "independent"}, "mode: .* is from another package"),
        ({"draw": "session:3"}, "draw: .* is from another package"),
        ({"schedule": "blocks:x"}, "blocks:x.*ValueError"),
    ]
    for settings, problem in cases:
        with pytest.raises(SplitError, match=problem):
            Split(**({"schedule": "blocks", "every": None} | settings))


class Bad(Schedule):
    """A schedule that names a path that does not exist."""

    def __str__(self) -> str:
        return "bad"

    def assign(self, times: Any, sizes: Any, paths: int, chance: Any) -> Any:
        return np.full(times.size, paths)


def test_an_instance_of_a_schedule_is_checked(pages: Traces) -> None:
    with pytest.raises(SplitError, match="'bad' returned a path that is not from 0 to 2"):
        Split(Bad(), None, 3).split(pages)


class Fair(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator with a seed and a validation of its own."""

    def __init__(self, seed: int = 9, wrong: str = "") -> None:
        self.seed = seed
        self.wrong = wrong

    def fit(self, X: Sequences, y: Any, groups: Any = None, validation: Any = None) -> Fair:
        self.classes_ = np.unique(y)
        self.seen_ = (len(groups), len(validation[0]), len(validation[1]))
        if self.wrong == "fit":
            raise RuntimeError("no idea")
        return self

    def predict_proba(self, X: Sequences) -> Any:
        width = self.classes_.size - (self.wrong == "shape")
        rows = np.full((len(X), width), 1 / width)
        return rows * np.nan if self.wrong == "numbers" else rows

    def predict(self, X: Sequences) -> Any:
        return self.classes_[np.zeros(len(X), np.int64)]


def test_an_instance_is_evaluated_and_given_what_it_asks_for(pages: Traces) -> None:
    name = add_attack(Fair(wrong=""))
    result = evaluate(Spec.of(attack=name, seed=2**40, bootstrap=10), pages)
    assert result.metrics["accuracy"]["value"] == pytest.approx(0.1)
    attack = make(name, {}, 3)
    assert attack.get_params()["seed"] == 3
    held_out = (pages[:20], pages.labels[:20])
    attack.fit(pages, pages.labels, groups=np.arange(len(pages)), validation=held_out)
    assert vars(attack)["estimator_"].seen_ == (200, 20, 20)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("fit", r"Fair: line \d+: RuntimeError: no idea"),
        ("shape", r"the shape \(40, 9\); expected \(40, 10\)"),
        ("numbers", "values that are not finite numbers"),
    ],
)
def test_what_an_estimator_does_wrong_is_one_line(pages: Traces, wrong: str, problem: str) -> None:
    spec = Spec.of(attack=add_attack(Fair), parameters={"wrong": wrong}, bootstrap=10)
    with pytest.raises(AttackError, match=problem) as error:
        evaluate(spec, pages)
    assert "\n" not in str(error.value)


def test_an_estimator_without_probabilities_votes(pages: Traces) -> None:
    kind = attack_class(DummyClassifier(strategy="prior"), "dummy")
    rows = kind().fit(pages, pages.labels).predict_proba(pages[:3])
    np.testing.assert_allclose(rows.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("none.py:X", "none.py: No such file"),
        ("mine.py:Mint", "mine.py: has no Mint; did you mean Mine?"),
        ("mine.py:np", "np: it is not a scikit-learn estimator: it has no fit"),
        ("torn.py:X", "torn.py: line 2: SyntaxError"),
        ("loud.py:X", "loud.py: line 1: ZeroDivisionError"),
        ("k-fq", "unknown attack 'k-fq': did you mean 'k-fp'"),
        ("package:none", "package:none is not part of this program and was not found"),
    ],
)
def test_what_cannot_be_had_is_one_line(
    data: Path, tmp_path: Path, text: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("import numpy as np\nclass Mine: pass\n")
    (tmp_path / "torn.py").write_text("\ndef (")
    (tmp_path / "loud.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((PluginError, AttackError, SettingError)) as error:
        evaluate(Spec.of(attack=name_of(text)), io.read(data))
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(EXAMPLE.read_text())
    assert name_of("one/same.py:Bursts", tmp_path) == "same.py:Bursts"
    (tmp_path / "one" / "same.py").write_text(EXAMPLE.read_text() + "\n")
    assert name_of("one/same.py:Bursts", tmp_path) == "same.py:Bursts", "a notebook changes it"
    with pytest.raises(PluginError, match="two different attacks have this name"):
        name_of("two/same.py:Bursts", tmp_path)


def test_settings_of_several_attacks_are_named(data: Path) -> None:
    both = ["--attack", "k-fp", "--attack", "size"]
    for option, problem in [
        (
            "trees=5",
            "--parameter trees: there are several attacks: name one, as in k-fp.trees=VALUE",
        ),
        (
            "rf.epochs=5",
            "--parameter rf.epochs: the attack 'rf' is not evaluated here: "
            "choose one of k-fp, size",
        ),
    ]:
        done = lab("evaluate", data, *both, "--parameter", option)
        assert (done.returncode, done.stdout) == (2, "")
        assert problem in done.stderr
    assert "one attack is given twice" in lab("evaluate", data, *both, *both).stderr
    assert Spec().changed(attack="x.py:X").attack.name == "x.py:X", "not looked at before it runs"
