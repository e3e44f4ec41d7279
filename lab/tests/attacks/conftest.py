"""Small data and small attacks, so that the suite needs seconds per network instead of minutes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch.attacks import ATTACKS, Attack, Sequences
from anabranch.attacks.network import NetworkAttack

collect_ignore = [] if find_spec("jax") else ["test_nets.py", "test_train.py"]

CLASSES = ("ant", "bee", "cat", "dog", "elk")
LOADS = 12
TRAINED = 8

DF = {
    "length": 128,
    "width": 4,
    "hidden": 128,
    "epochs": 120,
    "batch_size": 20,
    "learning_rate": 0.005,
}
SMALL: dict[str, dict[str, Any]] = {
    "k-fp": {"trees": 25},
    "k-fp-paths": {"trees": 25, "paths": 2},
    "cumul": {},
    "p-fp": {"length": 120, "width": 8, "hidden": 32, "epochs": 40, "batch_size": 10},
    "df": DF,
    "tik-tok": DF,
    "var-cnn": {
        "length": 128,
        "width": 4,
        "hidden": 32,
        "epochs": 40,
        "batch_size": 20,
        "learning_rate": 0.001,
        "patience": 30,
        "validation_share": 0.0,
    },
    "forest": {"moments": 20, "window": 6.0, "trees": 40},
    "size": {"trees": 40},
    "rocket": {"slots": 100, "window": 6.0, "convolutions": 8},
    "rf": {
        "slots": 120,
        "window": 6.0,
        "width": 8,
        "epochs": 30,
        "batch_size": 20,
        "learning_rate": 0.005,
    },
}
"""Parameters for small networks; learning rates and epochs suit 40 training loads.

With each of six seeds, every network learns the whole test set.
"""


@dataclass(frozen=True)
class Data:
    """A training and a test set of five pages that are easy to distinguish."""

    train: Sequences
    train_labels: NDArray[np.str_]
    groups: NDArray[np.int64]
    test: Sequences
    test_labels: NDArray[np.str_]


def make_load(rng: np.random.Generator, page: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns one load: bursts whose length, pause and direction depend on the page,
    with jitter.
    """
    times, sizes, now = [0.0], [600], 0.0
    for burst in range(6):
        incoming = 3 + 4 * ((page + burst) % 5) + int(rng.integers(0, 2))
        for direction, count in ((1, 1 + page), (-1, incoming)):
            gaps = rng.uniform(0.001, 0.003, count)
            times += list(now + np.cumsum(gaps))
            sizes += [direction * (500 + 40 * page)] * count
            now = times[-1]
        now += (0.2 + 0.12 * page) * rng.uniform(0.9, 1.1)
    return np.array(times), np.array(sizes)


@pytest.fixture(scope="session")
def data() -> Data:
    """Returns 5 classes x 12 loads: 8 of each for training, 4 for the test."""
    rng = np.random.default_rng(7)
    loads = [[make_load(rng, page) for _ in range(LOADS)] for page in range(len(CLASSES))]
    parts = []
    for chosen in (slice(None, TRAINED), slice(TRAINED, None)):
        flat = [load for page in loads for load in page[chosen]]
        labels = np.repeat(CLASSES, len(flat) // len(CLASSES))
        parts.append((Sequences.from_lists(*zip(*flat, strict=True)), labels))
    (train, train_labels), (test, test_labels) = parts
    return Data(train, train_labels, np.arange(len(train)), test, test_labels)


@pytest.fixture(scope="session", params=list(ATTACKS))
def name(request: pytest.FixtureRequest) -> str:
    """Returns every attack in turn."""
    if issubclass(ATTACKS[request.param], NetworkAttack):
        pytest.importorskip("jax")
    return str(request.param)


@pytest.fixture(scope="session")
def fitted(name: str, data: Data) -> Attack:
    """Returns the small attack, trained once for all tests that do not change it."""
    return small(name).fit(data.train, data.train_labels, groups=data.groups)


def small(name: str, **changes: Any) -> Attack:
    """Returns an attack of test size."""
    return ATTACKS[name](**(SMALL.get(name, {}) | changes))
