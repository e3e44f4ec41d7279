"""Attacks in scikit-learn's tools, and every accepted form of input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, VotingClassifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from anabranch import io
from anabranch.attacks import AttackError, CourseForest, KFingerprinting, Sequences
from anabranch.attacks.features import kfp_features
from anabranch.attacks.sequences import from_rows, sequences_of
from anabranch.traces import Builder, Traces

from .conftest import Data, small


def pairs(X: Sequences) -> list[tuple[Any, Any]]:
    """Returns the times and sizes of each load."""
    bounds = zip(X.offsets, X.offsets[1:], strict=False)
    return [(X.times[begin:end], X.sizes[begin:end]) for begin, end in bounds]


@pytest.fixture(scope="module")
def traces(data: Data) -> Traces:
    """Returns the training set as recorded loads, with labels in the order of their pages."""
    builder = Builder()
    for (times, sizes), label in zip(pairs(data.train), data.train_labels, strict=True):
        builder.add(label, times, sizes)
    return builder.build()


def rows(X: Sequences) -> np.ndarray:
    """Returns X in WFlib's form, padded with 0."""
    table = np.zeros((len(X), int(X.lengths.max()) + 3))
    table[X.owners, X.positions] = X.directions * np.maximum(X.times, 1e-9)
    return table


def test_cross_validation_takes_every_form(data: Data, traces: Traces) -> None:
    forms: dict[str, Any] = {
        "sequences": data.train,
        "traces": traces,
        "list": pairs(data.train),
        "columns": [np.column_stack(each) for each in pairs(data.train)],
    }
    found = {
        name: cross_val_score(small("forest"), X, data.train_labels, cv=2)
        for name, X in forms.items()
    }
    assert found["sequences"].min() > 0.9
    for name, scores in found.items():
        np.testing.assert_array_equal(scores, found["sequences"], err_msg=name)
    table = cross_val_score(small("forest"), rows(data.train), data.train_labels, cv=2)
    assert table.min() > 0.9, "a table has no sizes, and directions suffice here"


def test_a_search_finds_the_better_parameter(data: Data) -> None:
    grid = {"trees": [1, 30], "window": [1e-3, 6.0]}
    search = GridSearchCV(CourseForest(moments=10), grid, cv=2)
    search.fit(data.train, data.train_labels)
    assert search.best_params_["window"] == 6.0
    assert search.score(data.test, data.test_labels) > 0.9
    assert search.best_estimator_.get_params()["moments"] == 10


def test_an_attack_ends_a_pipeline_and_its_features_begin_one(data: Data) -> None:
    whole = Pipeline([("attack", small("k-fp"))]).set_params(attack__trees=10)
    assert whole.fit(data.train, data.train_labels).score(data.test, data.test_labels) > 0.9
    theirs = make_pipeline(
        FunctionTransformer(kfp_features), ExtraTreesClassifier(50, random_state=0)
    )
    scores = cross_val_score(theirs, data.train, data.train_labels, cv=2)
    assert scores.min() > 0.9


def test_attacks_vote(data: Data) -> None:
    members = [("k-fp", small("k-fp")), ("forest", small("forest")), ("cumul", small("cumul"))]
    vote = VotingClassifier(members, voting="soft").fit(data.train, data.train_labels)
    assert vote.score(data.test, data.test_labels) > 0.9
    mean = np.mean([each.predict_proba(data.test) for each in vote.estimators_], axis=0)
    np.testing.assert_allclose(vote.predict_proba(data.test), mean)


def test_groups_and_divisions_keep_loads_together(data: Data) -> None:
    twice = Sequences.concatenate([data.train, data.train])
    labels, groups = np.tile(data.train_labels, 2), np.tile(data.groups, 2)
    guesses = cross_val_predict(small("forest"), twice, labels, groups=groups, cv=GroupKFold(2))
    assert (guesses == labels).mean() > 0.9
    first, second, _, _ = train_test_split(data.train, data.train_labels, random_state=0)
    assert isinstance(first, Sequences)
    assert len(first) + len(second) == len(data.train)


def test_a_list_is_what_it_stands_for(data: Data) -> None:
    for form in (pairs(data.train), [list(zip(*each, strict=True)) for each in pairs(data.train)]):
        seen = sequences_of(form)
        assert seen is not None
        np.testing.assert_array_equal(seen.times, data.train.times)
        np.testing.assert_array_equal(seen.sizes, data.train.sizes)
    ragged = sequences_of([[0.0, -0.1], [0.0, -0.2, 0.3], []])
    assert ragged is not None
    assert ragged.lengths.tolist() == [2, 3, 0]
    assert ragged.sizes.tolist() == [1, -1, 1, -1, 1]
    attack = KFingerprinting(trees=5).fit(pairs(data.train), data.train_labels.tolist())
    np.testing.assert_array_equal(attack.predict(pairs(data.test)), attack.predict(data.test))


def test_a_table_is_read_as_its_file_would_be(traces: Traces, tmp_path: Path) -> None:
    io.write(traces, str(tmp_path / "loads.npz"))
    read = io.read(str(tmp_path / "loads.npz"))
    with np.load(tmp_path / "loads.npz") as file:
        table = from_rows(file["X"])
    np.testing.assert_array_equal(table.offsets, read.offsets)
    np.testing.assert_array_equal(table.sizes, read.sizes)
    np.testing.assert_allclose(table.times, read.times, atol=1e-9)


@pytest.mark.parametrize(
    ("X", "problem"),
    [
        ([([0.0, 1.0], [1.0]), ([], [])], "trace 0 has 2 times but 1 sizes"),
        ([([0.0], [1.0]), "loads"], "trace 1: "),
        ([np.zeros((2, 3)), np.zeros((2, 2))], r"trace 0: the array has the shape \(2, 3\)"),
        ([([0.0], [0.5]), ([], [])], "trace 0: a size is not a whole number"),
        ([([1.0, 0.0], [1, 1]), ([], [])], "times are not in order"),
        (np.array([[np.nan, 1.0], [1.0, 2.0]]), "Input X contains NaN"),
        ([1.0, 2.0], "Expected 2D array"),
    ],
)
def test_what_is_no_trace_is_named(X: Any, problem: str) -> None:
    with pytest.raises((AttackError, ValueError), match=problem):
        small("k-fp").fit(X, ["a", "b"])
    with pytest.raises((AttackError, ValueError), match="1 class"):
        small("k-fp").fit([([0.0], [1]), ([], [])], ["a", "a"])
