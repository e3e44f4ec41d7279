"""scikit-learn's own checks of estimators, on every attack; exceptions have reasons in one file.

Networks train in most checks, so that only the smallest is checked, unless EVERY_NETWORK is set.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from anabranch.attacks import ATTACKS, Attack
from anabranch.attacks.network import NetworkAttack
from anabranch.nets import missing_of_jax

from .conftest import SMALL

FILE = Path(__file__).with_name("estimator_checks.toml")
LISTED = tomllib.loads(FILE.read_text())["exception"]
TINY = SMALL["p-fp"] | {"length": 16, "hidden": 8, "width": 4, "epochs": 20}
"""A network that needs seconds per check; it stands for all networks' common code."""


def parameters() -> dict[str, dict[str, Any]]:
    """Returns small parameters of each checked attack, by its name."""
    networks = {name for name, cls in ATTACKS.items() if issubclass(cls, NetworkAttack)}
    found = {name: SMALL.get(name, {}) for name in ATTACKS if name not in networks}
    if missing_of_jax():
        return found
    if os.environ.get("EVERY_NETWORK"):
        return found | {name: SMALL[name] for name in networks}
    return found | {"p-fp": TINY}


def chosen() -> list[Attack]:
    """Returns the attacks to check."""
    return [ATTACKS[name](**each) for name, each in parameters().items()]


def exceptions(attack: Attack) -> dict[str, str]:
    """Returns the names of the checks that an attack fails, and why; the file has them
    by attack.
    """
    (name,) = (name for name, cls in ATTACKS.items() if cls is type(attack))
    return {each["check"]: each["reason"] for each in LISTED if name in each["attacks"]}


@parametrize_with_checks(chosen(), expected_failed_checks=exceptions, xfail_strict=True)  # type: ignore[untyped-decorator]
def test_an_attack_is_an_estimator(estimator: Attack, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("each", LISTED, ids=lambda each: each["check"])
def test_an_exception_has_a_reason_and_names_attacks(each: dict[str, Any]) -> None:
    assert len(each["reason"]) > 30
    assert set(each["attacks"]) <= set(ATTACKS)
