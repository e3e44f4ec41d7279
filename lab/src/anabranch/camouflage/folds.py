"""Predictions for every load, by an attack trained on other repetitions (turns)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks import Attack
from anabranch.evaluate.attack import make
from anabranch.metrics import Outcomes
from anabranch.traces import Traces

FOLDS = 4
OTHER = ""
"""Class of all unmonitored sites."""
Parameters = dict[str, int | float]


def folds_of(turns: Sequence[int]) -> list[NDArray[np.int32]]:
    """Returns the turns (repetitions) tested in each fold: at most `FOLDS` int32 arrays."""
    known = np.unique(np.asarray(turns, np.int32))
    count = min(FOLDS, known.size)
    return [known[number::count] for number in range(count)]


def trained(
    name: str, parameters: Parameters, learnt: Traces, folds: Sequence[NDArray[np.int32]]
) -> list[Attack]:
    """Returns an attack for each fold, trained on the loads of all other turns.

    Args:
        name: name of the attack.
        parameters: parameters of the attack.
        learnt: loads to train on; unmonitored sites are one class.
        folds: as returned by `folds_of`.

    Raises:
        AttackError: if the attack cannot be trained on these loads.
    """
    attacks = []
    for out in folds:
        own = learnt[~np.isin(learnt.run, out)]
        attack = make(name, parameters, 0)
        attacks.append(attack.fit(own, np.where(own.monitored, own.labels, OTHER)))
    return attacks


def predicted(
    attacks: Sequence[Attack], tested: Traces, folds: Sequence[NDArray[np.int32]]
) -> Outcomes:
    """Returns predictions for all loads, each by the attack that was not trained on its turn."""
    parts = []
    for number, (attack, out) in enumerate(zip(attacks, folds, strict=True)):
        inside = np.isin(tested.run, out)
        if inside.any():  # a kind may lack a turn
            parts.append(_outcomes(attack, number, tested[inside]))
    return Outcomes.concatenate(parts)


def _outcomes(attack: Attack, fold: int, seen: Traces) -> Outcomes:
    places = {name: code for code, name in enumerate(seen.names)}
    codes = np.array([places.get(name, -1) for name in attack.classes_.tolist()], np.int32)
    proba = attack.predict_proba(seen)
    inside = attack.classes_ != OTHER
    within = proba[:, inside]
    count = len(seen)
    return Outcomes(
        run=seen.run,
        load=seen.load,
        path=np.full(count, -1, np.int16),
        page=seen.label,
        monitored=seen.monitored,
        packets=seen.lengths,
        share=np.ones(count),
        guess=codes[inside][within.argmax(axis=1)],
        score=within.max(axis=1),
        rest=proba[:, ~inside].sum(axis=1),
        fold=np.full(count, fold, np.int16),
    )
