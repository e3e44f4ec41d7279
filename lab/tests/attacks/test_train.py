"""The training loop, on a network that compiles in a moment."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.attacks.base import Sequences, Task
from anabranch.attacks.network import _with_validation
from anabranch.nets.layers import Dense, Key, Layer, State
from anabranch.nets.recipe import Plateau, Recipe
from anabranch.nets.train import Trained, _shuffled_batches, evaluate, logits, train
from anabranch.unfinished import Unfinished

RECIPE = Recipe("sgd", learning_rate=0.5, epochs=5, batch_size=8)

X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
CODES = (X[:, 0] > 0).astype(np.int64)


class First(Layer):
    """A dense layer over the first input."""

    inner: Dense

    def _apply(self, x: Any, state: State, key: Key) -> tuple[Any, State]:
        return self.inner(x[0], state, key)


def run(recipe: Recipe, **options: Any) -> tuple[Trained, list[tuple[Any, ...]]]:
    reports: list[tuple[Any, ...]] = []
    network = First(Dense(np.random.default_rng(0), 4, 2))
    trained = train(
        network, (X,), CODES, recipe, 0, on_epoch=lambda *report: reports.append(report), **options
    )
    return trained, reports


@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.1), ("adamax", 0.1), ("sgd", 0.5)])
def test_every_optimizer_descends(optimizer: Any, rate: float) -> None:
    recipe = replace(RECIPE, optimizer=optimizer, learning_rate=rate, epochs=30)
    trained, reports = run(recipe)
    assert reports[-1][1] < reports[0][1]
    assert evaluate(trained, (X,), CODES)[0] > 0.9


def test_no_epoch_leaves_the_initial_weights() -> None:
    trained, reports = run(replace(RECIPE, epochs=0))
    start = First(Dense(np.random.default_rng(0), 4, 2))
    np.testing.assert_allclose(logits(trained, (X,)), X @ start.inner.kernel, rtol=1e-5, atol=1e-6)
    assert reports == []


def test_the_rate_follows_the_recipe() -> None:
    _, reports = run(replace(RECIPE, decay=lambda epoch, step: 0.5**epoch))
    assert [report[3] for report in reports] == [0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_weight_decay_and_penalty_shrink_the_weights() -> None:
    def size(recipe: Recipe) -> float:
        return float(np.square(run(recipe)[0].network.inner.kernel).sum())  # type: ignore[attr-defined]

    plain = size(RECIPE)
    assert size(replace(RECIPE, weight_decay=0.1)) < plain
    assert size(replace(RECIPE, penalty=squares)) < plain


DROPPING = replace(RECIPE, optimizer="adam", learning_rate=0.1, epochs=6)


@pytest.mark.parametrize(
    "recipe", [DROPPING, replace(DROPPING, epochs=40, plateau=Plateau(1, 0.5, 0.01))]
)
@pytest.mark.parametrize("held_out", [None, ((X[:9],), CODES[:9])])
@pytest.mark.parametrize(("every_s", "losses"), [(math.inf, 0), (0.0, 2)])
def test_a_training_that_is_cut_goes_on_to_the_same_end(
    recipe: Recipe, held_out: Any, every_s: float, losses: int, tmp_path: Path
) -> None:
    whole, all_reports = run(recipe, validation=held_out)
    cut = 3, losses  # after three epochs, and two of the fourth one's four batches

    class CutError(Exception):
        pass

    class Until(Unfinished):
        def write(self, content: Any) -> None:
            super().write(content)
            if (len(content["plain"]["told"]), len(content["losses"])) == cut:
                raise CutError

    with pytest.raises(CutError):
        run(recipe, validation=held_out, unfinished=Until(tmp_path / "unit", every_s))
    kept = Unfinished(tmp_path / "unit")
    trained, reports = run(recipe, validation=held_out, unfinished=kept)
    assert kept.earlier().cpu_s > 0
    assert reports == all_reports
    np.testing.assert_array_equal(logits(trained, (X,)), logits(whole, (X,)))
    again, reports = run(recipe, validation=held_out, unfinished=Unfinished(tmp_path / "unit"))
    assert reports == all_reports, "a training that ended is not begun anew"
    np.testing.assert_array_equal(logits(again, (X,)), logits(whole, (X,)))


def test_a_damaged_file_costs_a_new_start_and_all_parts_are_forgotten(tmp_path: Path) -> None:
    unfinished = Unfinished(tmp_path / "unit").part("fold0").part("network")
    whole, _ = run(DROPPING, unfinished=unfinished)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-40])
    again, _ = run(DROPPING, unfinished=unfinished)
    np.testing.assert_array_equal(logits(again, (X,)), logits(whole, (X,)))
    other = tmp_path / "unit2.fold0.training"
    other.touch()
    (tmp_path / ".unit.fold0.network.training.abcd.part").touch()  # of a process that was killed
    Unfinished(tmp_path / "unit").forget()
    assert list(tmp_path.iterdir()) == [other]


def squares(network: Any) -> Any:
    """Returns a penalty on all weights of `First`."""
    return 0.1 * (network.inner.kernel**2).sum()


def test_without_progress_the_rate_falls_and_training_ends() -> None:
    recipe = replace(RECIPE, epochs=50, plateau=Plateau(patience=2, factor=0.1, floor=0.01))
    _, reports = run(recipe, validation=((X[:1],), np.array([-1])))
    assert [report[3] for report in reports] == pytest.approx([0.5, 0.5, 0.5, 0.05, 0.05])
    assert all(report[2] == 0.0 for report in reports)


def test_the_best_epoch_is_kept() -> None:
    """Training moves towards the labels, validation wants their opposite: the first
    epoch is best.
    """
    kept, reports = run(RECIPE, validation=((X,), 1 - CODES))
    best = max(report[2] for report in reports)
    assert evaluate(kept, (X,), 1 - CODES)[0] == pytest.approx(best)
    assert reports[-1][2] < best


def test_an_epoch_shows_every_sample_in_batches_of_one_shape() -> None:
    batches = list(_shuffled_batches(np.random.default_rng(5), 30, 8))
    assert {batch.shape for batch in batches} == {(8,)}
    seen = np.bincount(np.concatenate(batches), minlength=30)
    assert seen.min() == 1
    assert seen.sum() == 32
    assert [batch.size for batch in _shuffled_batches(np.random.default_rng(5), 3, 8)] == [3]


def test_predictions_do_not_depend_on_the_batch_size() -> None:
    trained, _ = run(RECIPE)
    np.testing.assert_allclose(logits(trained, (X,), 7), logits(trained, (X,), 128), rtol=1e-5)


def test_a_held_out_share_divides_loads() -> None:
    groups = np.repeat(np.arange(10), 3)
    traces = Sequences.from_lists([[float(i)] for i in range(30)], [[1]] * 30)
    task = _with_validation(Task(traces, CODES, groups, None, None), 0.2, seed=4)
    assert task.validation is not None
    held_out = set(task.validation[0].times // 3)
    assert len(held_out) == 2
    assert task.groups is not None
    assert held_out.isdisjoint(task.groups)
    assert len(task.X) == task.codes.size == 24
