"""The contract of every attack, in the manner of scikit-learn's estimator checks."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

from anabranch.attacks import ATTACKS, Attack, AttackError, EpochReport, Sequences
from anabranch.attacks.network import NetworkAttack
from anabranch.attacks.ranges import Range
from anabranch.evaluate.attack import make
from anabranch.nets import MissingExtraError
from anabranch.observers import SettingError

from .conftest import CLASSES, SMALL, Data, small

NETWORKS = [name for name, attack in ATTACKS.items() if issubclass(attack, NetworkAttack)]


def quick(name: str, **changes: int) -> Attack:
    """Returns the small attack with few epochs, for tests that do not need its accuracy."""
    return small(name, **({"epochs": 2} if name in NETWORKS else {}), **changes)


def test_learns_a_separable_set(fitted: Attack, data: Data) -> None:
    assert fitted.score(data.test, data.test_labels) > 0.95


def test_probabilities_are_rows_that_sum_to_one(fitted: Attack, data: Data) -> None:
    rows = fitted.predict_proba(data.test)
    assert rows.shape == (len(data.test), len(CLASSES))
    assert rows.dtype == np.float64
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-9)


def test_columns_follow_the_classes(fitted: Attack, data: Data) -> None:
    assert fitted.classes_.tolist() == sorted(CLASSES)
    best = fitted.predict_proba(data.test).argmax(axis=1)
    np.testing.assert_array_equal(fitted.predict(data.test), fitted.classes_[best])


def test_a_row_does_not_depend_on_its_neighbours(fitted: Attack, data: Data) -> None:
    whole = fitted.predict_proba(data.test)
    np.testing.assert_allclose(fitted.predict_proba(data.test[5:7]), whole[5:7], atol=1e-5)
    assert fitted.predict_proba(data.test[:0]).shape == (0, len(CLASSES))


def test_a_seed_replays(name: str, data: Data) -> None:
    first, second = (
        quick(name).fit(data.train, data.train_labels).predict_proba(data.test) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_another_seed_differs(name: str, data: Data) -> None:
    if name == "cumul":
        pytest.skip("draws nothing without a search")
    first, second = (
        quick(name, seed=seed).fit(data.train, data.train_labels).predict_proba(data.test)
        for seed in (0, 1)
    )
    assert not np.array_equal(first, second)


def test_saves_and_loads(fitted: Attack, data: Data, tmp_path: Path) -> None:
    path = tmp_path / "attack"
    fitted.save(path)
    loaded = type(fitted).load(path)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.predict_proba(data.test), fitted.predict_proba(data.test))
    assert [file.name for file in tmp_path.iterdir()] == ["attack"]


def test_travels_to_another_process(fitted: Attack, data: Data) -> None:
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(data.test), fitted.predict_proba(data.test))


def test_a_file_of_another_kind_is_refused(fitted: Attack, tmp_path: Path) -> None:
    other = next(attack for attack in ATTACKS.values() if attack is not type(fitted))
    path = tmp_path / "attack"
    fitted.save(path)
    with pytest.raises(AttackError, match="attack: this file contains the attack"):
        other.load(path)
    path.write_bytes(b"no pickle")
    with pytest.raises(AttackError, match=str(path)):
        type(fitted).load(path)


def test_parameters_survive_a_clone(name: str, data: Data) -> None:
    attack = small(name)
    copy = clone(attack)
    assert copy is not attack
    assert copy.get_params() == attack.get_params()
    assert attack.get_params().items() >= SMALL[name].items()
    assert copy.set_params(seed=9).get_params()["seed"] == 9
    with pytest.raises(NotFittedError):
        copy.predict_proba(data.test)
    with pytest.raises(NotFittedError):
        copy.save("unwritten")


def test_construction_only_stores(name: str) -> None:
    attack = small(name)
    assert vars(attack) == attack.get_params()


def test_empty_and_one_packet_traces_are_classified(fitted: Attack) -> None:
    odd = Sequences.from_lists([[], [0.5], [], [3.0]], [[], [-1500], [], [60]])
    rows = fitted.predict_proba(odd)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(rows[0], rows[2], atol=1e-6)


def test_empty_and_one_packet_traces_are_trained_on(name: str, data: Data) -> None:
    odd = Sequences.from_lists([[], [0.5], []], [[], [-1500], []])
    labels = np.concatenate([data.train_labels, CLASSES[:3]])
    attack = quick(name).fit(Sequences.concatenate([data.train, odd]), labels)
    assert np.isfinite(attack.predict_proba(data.test)).all()


def test_labels_unknown_to_training_count_as_misses(fitted: Attack, data: Data) -> None:
    labels = data.test_labels.copy()
    labels[:2] = "yak"
    right = fitted.predict(data.test) == labels
    assert not right[:2].any()
    assert fitted.score(data.test, labels) == right.mean() <= 18 / 20


def test_integer_labels_and_an_unknown_one_in_validation(name: str, data: Data) -> None:
    labels = np.unique(data.train_labels, return_inverse=True)[1] * 10 - 20
    held_out = np.unique(data.test_labels, return_inverse=True)[1] * 10 - 20
    held_out[0] = 999
    attack = quick(name).fit(data.train, labels, validation=(data.test, held_out))
    assert attack.classes_.tolist() == [-20, -10, 0, 10, 20]
    assert set(attack.predict(data.test)) <= {-20, -10, 0, 10, 20}


def test_input_that_does_not_fit_is_refused(name: str, data: Data) -> None:
    with pytest.raises(AttackError, match="y: the shape"):
        small(name).fit(data.train, data.train_labels[:-1])
    with pytest.raises(AttackError, match="groups: the shape"):
        small(name).fit(data.train, data.train_labels, groups=data.groups[:-1])
    with pytest.raises(AttackError, match="validation set is empty"):
        small(name).fit(data.train, data.train_labels, validation=(data.test[:0], []))
    with pytest.raises(AttackError, match="two classes"):
        small(name).fit(data.train, np.zeros(len(data.train)))


def test_every_parameter_has_a_range(name: str) -> None:
    parameters = ATTACKS[name]().get_params()
    ATTACKS[name]().check_parameters()
    ranged = {key for key, default in parameters.items() if not isinstance(default, bool)}
    assert ATTACKS[name].ranges.keys() == ranged


def test_parameters_out_of_range_are_refused_before_any_work(name: str, data: Data) -> None:
    for key in ATTACKS[name]().get_params():
        for value in unsuitable(ATTACKS[name].ranges.get(key)):
            with pytest.raises(SettingError, match=f"^{name}: {key} = ") as refused:
                make(name, {key: value}, 0)
            assert "\n" not in str(refused.value)
            attack = small(name, **{key: value})
            with pytest.raises(AttackError, match=f"^{key} = "):
                attack.fit(data.train, data.train_labels)


def unsuitable(allowed: object) -> list[Any]:
    """Returns values that a parameter rejects."""
    values: list[Any] = [None, "oracle", math.nan, math.inf, -math.inf]
    if isinstance(allowed, Range):
        values += [allowed.least - 1, allowed.most * 2, True]
        values += [0] if allowed.least > 0 else []
    return values


def test_the_least_parameters_of_all_work(name: str, data: Data) -> None:
    attack = small(name, **{"epochs": 1} if name in NETWORKS else {})
    ranges = {key: span for key, span in attack.ranges.items() if isinstance(span, Range)}
    attack.set_params(**{key: span.least for key, span in ranges.items() if key != "epochs"})
    rows = attack.fit(data.train, data.train_labels).predict_proba(data.test)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-9)


@pytest.mark.parametrize("seed", [2**32, 5_000_000_000, 2**64 - 1])
def test_large_seeds_work(name: str, data: Data, seed: int) -> None:
    divides: dict[str, Any] = {"cumul": {"search": True}, "var-cnn": {"validation_share": 0.2}}
    attack = small(name, seed=seed, **divides.get(name, {}))
    attack.set_params(**{"epochs": 1} if name in NETWORKS else {})
    assert np.isfinite(attack.fit(data.train, data.train_labels).predict_proba(data.test)).all()


def test_times_are_looked_at_where_they_are_needed(fitted: Attack, data: Data) -> None:
    timeless = replace(data.test, times=np.zeros_like(data.test.times))
    same = np.array_equal(fitted.predict_proba(timeless), fitted.predict_proba(data.test))
    assert same is not fitted.needs_times


@pytest.mark.parametrize("name", ["p-fp"], indirect=True)
def test_a_training_that_diverges_is_told(name: str, data: Data) -> None:
    attack = quick(name).fit(data.train, data.train_labels)
    assert isinstance(attack, NetworkAttack)
    (weights,) = attack.weights_.values()
    weights[0] = np.full_like(weights[0], np.nan)
    with pytest.raises(AttackError, match="diverged"):
        attack.predict_proba(data.test)


@pytest.mark.parametrize("name", ["var-cnn"], indirect=True)
def test_loads_that_do_not_divide_are_told(name: str, data: Data) -> None:
    few = [0, len(data.train) - 1]
    with pytest.raises(AttackError, match=r"^validation_share = 0\.9: too few page loads"):
        small(name, validation_share=0.9).fit(data.train[few], data.train_labels[few])


@pytest.mark.parametrize("name", NETWORKS, indirect=True)
def test_one_epoch_lowers_the_loss(name: str, data: Data) -> None:
    """At the published rate; the set is repeated six times, as two mini-batches may
    lead anywhere.
    """
    rate = ATTACKS[name]().get_params()["learning_rate"]
    X, y = Sequences.concatenate([data.train] * 6), np.tile(data.train_labels, 6)
    before, after = (
        log_loss(data.train_labels, attack.fit(X, y).predict_proba(data.train))
        for attack in (small(name, epochs=epochs, learning_rate=rate) for epochs in (0, 1))
    )
    assert after < before


@pytest.mark.parametrize("name", NETWORKS, indirect=True)
def test_every_epoch_is_reported(name: str, data: Data) -> None:
    seen: list[EpochReport] = []
    attack = quick(name)
    attack.fit(data.train, data.train_labels, on_epoch=seen.append)
    assert isinstance(attack, NetworkAttack)
    assert attack.history_ == seen
    assert [(r.member, r.epoch) for r in seen] == [(m, e) for m in attack.members for e in (1, 2)]
    assert all(r.validation_accuracy is None and r.loss > 0 for r in seen)


@pytest.mark.parametrize("name", ["df", "rf"], indirect=True)
def test_validation_chooses_the_epoch(name: str, data: Data) -> None:
    attack = small(name, epochs=12)
    attack.fit(data.train, data.train_labels, validation=(data.test, data.test_labels))
    assert isinstance(attack, NetworkAttack)
    accuracies = [r.validation_accuracy for r in attack.history_]
    assert len(set(accuracies)) > 1, "a choice between equals shows nothing"
    assert attack.score(data.test, data.test_labels) == pytest.approx(
        max(a for a in accuracies if a is not None)
    )


@pytest.mark.parametrize("missing", ["jax", "jaxlib", "equinox", "optax"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_missing_extra_is_one_clear_line(
    name: str, missing: str, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_spec
    monkeypatch.setattr(
        "anabranch.nets.find_spec", lambda module: None if module == missing else found(module)
    )
    with pytest.raises(MissingExtraError) as error:
        small(name).fit(data.train, data.train_labels)
    assert "\n" not in str(error.value)
    assert f"need {missing}: pip install './lab[nets]'" in str(error.value)


def test_every_attack_can_be_named_without_jax() -> None:
    program = """
import sys
sys.modules["jax"] = None
from anabranch.attacks import ATTACKS
print(*[attack().get_params()["seed"] for attack in ATTACKS.values()])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["0"] * len(ATTACKS), done.stderr


def counted(X: Sequences, hidden: np.ndarray) -> Sequences:
    """Returns X with counters, as if ``hidden`` unseen packets preceded each seen one
    (sequences,).
    """
    own = np.ones(X.times.size, np.int64)
    steps = own + hidden[X.owners]
    counts = np.zeros(X.times.size, np.int64)
    for way in (X.sizes > 0, X.sizes < 0):
        sums = np.cumsum(steps[way])
        first = np.searchsorted(X.owners[way], np.arange(len(X)))
        before = np.concatenate([[0], sums])[first]
        counts[way] = sums - before[X.owners[way]]
    return replace(X, counts=counts)


def test_counters_are_used_or_refused(name: str, data: Data) -> None:
    """Equal packets; only the counters distinguish the two pages."""
    same = Sequences.concatenate([data.train[:1]] * 40)
    labels = np.arange(40) % 2
    X = counted(same, labels * 3)
    if not ATTACKS[name].uses_counter:
        with pytest.raises(AttackError, match=r"^\w+ cannot use packet counters: "):
            small(name).fit(X, labels)
        return
    attack = small(name).fit(X, labels)
    assert attack.score(X, labels) == 1.0
    with pytest.raises(
        AttackError, match="trained with packet counters, but these sequences come without"
    ):
        attack.predict(same)
    blind = quick(name).fit(same, labels)
    assert blind.score(same, labels) == 0.5
    with pytest.raises(AttackError, match="trained without packet counters"):
        blind.predict(X)
