"""Properties of the forest and the support vector machine alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from anabranch.attacks import AttackError, Cumul, KFingerprinting
from anabranch.attacks.cumul import COSTS, WIDTHS, votes
from anabranch.attacks.features import kfp_features
from anabranch.attacks.forest import AT_ONCE, SmallForest

from .conftest import CLASSES, Data

SEED = 5


@pytest.fixture(scope="module")
def noisy() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns features of two overlapping classes, so that leaves are deep and some impure."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 3, 300)
    train = rng.normal(size=(300, 6)) + codes[:, None] * 0.5
    return train, codes, rng.normal(size=(50, 6))


def test_a_small_forest_predicts_as_the_large_one(
    noisy: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    train, codes, test = noisy
    ours = SmallForest.grow(train, codes, AT_ONCE, SEED, min_samples_leaf=4)
    state = int(np.random.SeedSequence(SEED).generate_state(1)[0])
    theirs = RandomForestClassifier(AT_ONCE, random_state=state, min_samples_leaf=4)
    theirs.fit(train.astype(np.float32), codes)
    np.testing.assert_allclose(ours.predict_proba(test), theirs.predict_proba(test), atol=1e-6)
    for tree, leaves in enumerate(theirs.apply(test.astype(np.float32)).T):
        same = leaves[:, None] == leaves
        renumbered = ours.leaves(test)[:, tree]
        np.testing.assert_array_equal(renumbered[:, None] == renumbered, same)


def test_a_forest_has_the_trees_asked_for(
    noisy: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    train, codes, test = noisy
    forest = SmallForest.grow(train, codes, 2 * AT_ONCE + 3, SEED)
    assert len(forest.trees) == 2 * AT_ONCE + 3
    assert forest.leaves(test).shape == (50, 2 * AT_ONCE + 3)
    first, second = forest.trees[0], forest.trees[AT_ONCE]
    assert first.threshold.tolist() != second.threshold.tolist()


def test_the_number_of_threads_changes_nothing(data: Data) -> None:
    one, two = (
        KFingerprinting(trees=10, jobs=jobs).fit(data.train, data.train_labels) for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.predict_proba(data.test), two.predict_proba(data.test))


def test_neighbours_vote(data: Data) -> None:
    attack = KFingerprinting(trees=25, decision="neighbours", k=3)
    attack.fit(data.train, data.train_labels)
    rows = attack.predict_proba(data.test)
    assert set(np.round(rows.ravel() * 3, 9)) <= {0.0, 1.0, 2.0, 3.0}
    assert attack.score(data.test, data.test_labels) > 0.95
    own = attack.predict_proba(data.train)
    assert (own[np.arange(40), np.repeat(np.arange(len(CLASSES)), 8)] > 0).all()


def test_a_fingerprint_is_nearest_to_itself(data: Data) -> None:
    attack = KFingerprinting(trees=25, decision="neighbours", k=1)
    attack.fit(data.train, data.train_labels)
    leaves = attack.forest_.leaves(kfp_features(data.train))
    np.testing.assert_array_equal(leaves, attack.fingerprints_)
    assert attack.score(data.train, data.train_labels) == 1.0


def test_an_unknown_decision_is_refused(data: Data) -> None:
    attack = KFingerprinting(decision="oracle")  # type: ignore[arg-type]
    with pytest.raises(AttackError, match="decision = 'oracle' is not one of forest, neighbours"):
        attack.fit(data.train, data.train_labels)


def test_a_search_takes_the_pair_that_the_validation_set_prefers(data: Data) -> None:
    """The validation set's labels are shifted by one: the worst pair for the test set wins."""
    right = Cumul(search=True).fit(
        data.train, data.train_labels, validation=(data.test, data.test_labels)
    )
    assert (right.cost_, right.width_) in {(c, w) for c in COSTS for w in WIDTHS}
    wrong = Cumul(search=True).fit(
        data.train, data.train_labels, validation=(data.test, np.roll(data.test_labels, 4))
    )
    assert right.score(data.test, data.test_labels) > wrong.score(data.test, data.test_labels)


def test_a_search_in_folds_of_whole_loads_repeats(data: Data) -> None:
    first, second = (
        Cumul(search=True).fit(data.train, data.train_labels, groups=data.groups // 2)
        for _ in range(2)
    )
    assert (first.cost_, first.width_) == (second.cost_, second.width_)
    assert first.score(data.test, data.test_labels) > 0.95


def test_without_a_search_the_parameters_are_kept(data: Data) -> None:
    attack = Cumul(cost=3.0, width=0.25).fit(data.train, data.train_labels)
    assert (attack.cost_, attack.width_) == (3.0, 0.25)


def test_a_machine_splits_its_vote_within_its_margin() -> None:
    pairs = np.array([[5.0, 1.0, -2.0], [0.5, 0.0, 0.0]])  # of 0 and 1, 0 and 2, 1 and 2
    shares = [[2, 0, 1], [1.25, 0.75, 1]]
    np.testing.assert_allclose(votes(pairs, 3), np.array(shares) / 3)


def test_a_search_that_loads_do_not_suffice_for_is_refused(data: Data) -> None:
    for groups, problem in (
        (np.arange(40) % 2, "too few page loads to divide them into 3 inner folds"),
        (np.where(data.train_labels == "ant", 0, np.arange(40) % 2 + 1), "loads of only one class"),
    ):
        labels = np.where(data.train_labels == "ant", "ant", "other")
        with pytest.raises(AttackError, match=problem):
            Cumul(search=True).fit(data.train, labels, groups=groups)


def test_many_classes_take_little_memory() -> None:
    classes = 400
    values = np.random.default_rng(0).normal(size=(3, classes * (classes - 1) // 2))
    shares = votes(values, classes)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    tracemalloc.start()
    votes(values, classes)
    assert tracemalloc.get_traced_memory()[1] < 4 * values.nbytes
    tracemalloc.stop()


def test_two_classes_alone_are_not_exchanged(data: Data) -> None:
    rows = np.flatnonzero(np.isin(data.train_labels, ["ant", "bee"]))
    attack = Cumul().fit(data.train[rows], data.train_labels[rows])
    assert attack.score(data.train[rows], data.train_labels[rows]) > 0.95
