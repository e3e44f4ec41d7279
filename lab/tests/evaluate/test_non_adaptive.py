"""Observers on every path, and attackers trained on other data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from anabranch import io, results, sweep
from anabranch.evaluate import Spec, evaluate
from anabranch.metrics import Outcomes
from anabranch.observers import Observer, SettingError
from anabranch.report.collection import Collection
from anabranch.splitting import Split
from anabranch.traces import Traces
from making import made
from report.conftest import result
from test_cli import lab

K_FP = {"attack": "k-fp", "parameters": {"trees": 5}, "bootstrap": 5}


@pytest.fixture
def pages() -> Traces:
    return made(60, labels=3, unmonitored=0)


def outcomes(*rows: tuple[int, int, int, int, float]) -> Outcomes:
    """Returns outcomes with load, path, page, guess and score of each row."""
    load, path, page, guess, score = (np.array(column) for column in zip(*rows, strict=True))
    many = len(rows)
    ones, truth = np.ones(many, np.int64), np.ones(many, np.bool_)
    return Outcomes(
        np.zeros(many, np.int32), load, path, page, truth, ones, ones / 2, guess, score,
        np.zeros(many), np.zeros(many, np.int16),
    )  # fmt: skip


def test_a_load_is_lost_if_one_of_its_observers_names_it() -> None:
    said = outcomes(
        (1, 0, 7, 7, 0.3), (2, 0, 8, 7, 0.9), (3, 0, 9, 9, 0.2),
        (1, 1, 7, 8, 0.9), (2, 1, 8, 9, 0.4), (3, 1, 9, 9, 0.6),
    ).of_any()  # fmt: skip
    assert said.load.tolist() == [1, 2, 3]
    assert said.right.tolist() == [True, False, True]
    assert said.score.tolist() == [0.3, 0.9, 0.6]
    assert said.path.tolist() == [0, 0, 1]


def test_each_path_has_its_observer(pages: Traces) -> None:
    split = Split("uniform", "5p", 3, "independent").split(pages)
    views = [Observer.parse("any").see(split, path=path) for path in range(3)]
    assert sum(view.traces.times.size for view in views) == split.times.size
    for path, view in enumerate(views):
        assert set(view.path.tolist()) == {path}
        assert view.traces.times.size == np.count_nonzero(split.paths == path)
    assert str(Observer.parse("any+counter")) == "any+counter"
    with pytest.raises(SettingError, match="observer 'any:2'"):
        Observer.parse("any:2")


def test_observers_on_every_path_name_what_one_of_them_does(pages: Traces) -> None:
    setting = {"schedule": "uniform", "every": "5p", "mode": "independent"}
    found = evaluate(Spec.of(observer="any", **setting, **K_FP), pages)
    assert found.metrics["predictions"] == len(found.outcomes)
    keys = set(zip(found.outcomes.run.tolist(), found.outcomes.load.tolist(), strict=True))
    assert len(keys) == len(found.outcomes), "a row for each load"
    fold = found.facts["folds"][0]
    samples, loads = fold["train"]["samples"], fold["train"]["loads"]
    assert 2 * loads < samples <= 3 * loads, "what nobody sees does not train"


def test_who_does_not_know_of_the_split_has_learnt_whole_loads(pages: Traces) -> None:
    setting = {"schedule": "uniform", "every": "5p", "mode": "independent"}
    naive = evaluate(Spec.of(train_on="unsplit", **setting, **K_FP), pages)
    whole = evaluate(Spec.of(**K_FP), pages)
    knowing = evaluate(Spec.of(**setting, **K_FP), pages)
    sides = [each.facts["folds"][0] for each in (naive, whole, knowing)]
    assert sides[0]["train"] == sides[1]["train"]
    assert sides[0]["test"] == sides[2]["test"]
    assert sides[0]["test"]["packets"] < sides[1]["test"]["packets"]
    padded = Spec.of(train_on="unsplit", defence="front", **K_FP)
    assert evaluate(padded, pages).facts["folds"][0]["train"] == sides[1]["train"]


def test_other_traces_of_the_same_pages_may_train(pages: Traces, tmp_path: Path) -> None:
    other = made(60, labels=4, unmonitored=0, seed=9)
    digest = f"data:{'0' * 64}"
    spec = Spec.of(train_on=digest, **K_FP)
    found = evaluate(spec, pages, training=other)
    train = found.facts["folds"][0]["train"]
    rows = np.isin(other.label, [other.names.index(name) for name in pages.names])
    assert 0 < train["loads"] < rows.sum()
    assert found.facts["folds"][0]["test_samples_of_training_loads"] == 0.0
    with pytest.raises(SettingError, match="must be given together"):
        evaluate(spec, pages)
    for name, traces in (("in", pages), ("other", other)):
        io.write(traces, tmp_path / f"{name}.parquet")
    (tmp_path / "a.toml").write_text(
        '[common]\ndata = "in.parquet"\nattack = "k-fp"\nbootstrap = 5\n'
        '[attacks.k-fp]\ntrees = 5\n[[runs]]\nname = "WireGuard, then QUIC"\n'
        'train_on = "other.parquet"\n[[runs]]\nname = "plain"\n'
    )
    done = sweep.sweep(sweep.read(tmp_path / "a.toml"), tmp_path / "results")
    assert not done.failed
    names = {each.run_name: each for each in Collection.read([tmp_path / "results"])}
    assert "trained on others" in names["WireGuard, then QUIC"].design
    assert names["plain"].result.facts["file"] == "in.parquet"
    shown = results.load(names["WireGuard, then QUIC"].file)
    assert shown.metrics["accuracy"] == pytest.approx(found.metrics["accuracy"])
    words = ["--attack", "k-fp", "--parameter", "trees=5", "--bootstrap", 5, "--json"]
    at = tmp_path / "in.parquet"
    process = lab("evaluate", at, "--train-on", tmp_path / "other.parquet", *words)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"train_on": "whatever"}, "expected unsplit or data:NAME"),
        ({"train_on": "unsplit", "resplits": 2, "schedule": "uniform"}, "leave out resplits"),
        ({"train_on": "unsplit", "protocol": "paper"}, "the paper's protocol always trains on"),
        ({"train_on": "data:0", "world": "open"}, "needs world=closed"),
    ],
)
def test_what_such_an_attacker_cannot_be_is_refused(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(SettingError, match=problem):
        Spec.from_dict(settings)


def test_results_keep_their_names() -> None:
    """Later settings are not part of the name of a result without them."""
    spec = Spec.from_dict({"attack": "k-fp"})
    old = {name: value for name, value in spec.to_dict().items() if name != "train_on"}
    assert results.key(Spec.from_dict(old), "d") == results.key(spec, "d")
    assert spec.splitting.mode == "together", "of what is not split, as it was"
    other = Spec.from_dict({"attack": "k-fp", "train_on": "unsplit"})
    assert results.key(other, "d") != results.key(spec, "d")


def test_a_stored_result_keeps_the_default_that_it_was_made_with(tmp_path: Path) -> None:
    """Results of the first format that lack a mode are of splits at both ends at once."""
    made = result(0.5, schedule="weighted", every="50p", mode="together")
    results.save(made, tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["spec"].pop("mode") == "together"
    (tmp_path / "a.json").write_text(json.dumps(content))
    kept = results.load(tmp_path / "a.json").spec
    assert kept == made.spec
    assert kept.splitting.mode == "together"
    assert results.key(kept, "d") == results.key(made.spec, "d")
    del content["spec"]["paths"]
    (tmp_path / "a.jsonl").write_text(json.dumps({"file": "a"} | content) + "\n")
    ((_, numbers),) = results.lines(tmp_path / "a.jsonl")
    assert numbers.spec == made.spec
