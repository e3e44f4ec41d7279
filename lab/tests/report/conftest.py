"""Results with known numbers, made without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import metrics, results
from anabranch.evaluate import Spec
from anabranch.metrics import Outcomes
from anabranch.report import page
from anabranch.report.collection import Collection
from anabranch.results import Result, plain

PAGES, LOADS = 10, 10

WR: dict[str, Any] = {"schedule": "weighted", "every": "50p", "paths": 3, "mode": "together"}


def outcomes(spec: Spec, accuracy: float, chance: np.random.Generator) -> Outcomes:
    """Returns predictions with about `accuracy` right; more of them where more is seen."""
    n = PAGES * LOADS
    page = np.repeat(np.arange(PAGES, dtype=np.int32), LOADS)
    monitored = page < (spec.design.monitored or PAGES)
    share = np.ones(n) if spec.splitting.schedule is None else chance.random(n)
    right = chance.random(n) < np.clip(accuracy * (0.5 + share), 0, 1)
    guess = np.where(right, page, (page + 1) % (spec.design.monitored or PAGES)).astype(np.int32)
    score = np.where(right & monitored, 0.6, 0.3) + 0.3 * chance.random(n)
    zeros: Any = np.zeros(n, np.int16)
    load = np.arange(n, dtype=np.int64)
    return Outcomes(
        run=np.ones(n, np.int32),
        load=load,
        path=zeros,
        page=page,
        monitored=monitored,
        packets=load + 1,
        share=share,
        guess=guess,
        score=score,
        rest=1 - score,
        fold=zeros,
    )


def result(accuracy: float = 0.5, elapsed: float = 2.0, **settings: Any) -> Result:
    """Returns a result of `settings`, as of an evaluation; `together` if no mode is named."""
    usual: dict[str, Any] = {"bootstrap": 50, "mode": "together"}
    spec = Spec.of(**usual | settings)
    chance = np.random.default_rng([spec.seed, int(1000 * accuracy)])
    found = outcomes(spec, accuracy, chance)
    if spec.design.world == "closed":
        measured = metrics.closed_world(found, 98, spec.scoring.bootstrap, spec.seed)
    else:
        grid = metrics.thresholds(found)
        accepted, curve = found.score >= 0.6, found.score[:, None] >= grid
        scoring = (spec.scoring.r, spec.scoring.bootstrap, spec.seed)
        measured = metrics.open_world(found, accepted, curve, *scoring)
    side = {"samples": len(found), "loads": len(found), "packets": 100}
    costs = ("up", "down", "bandwidth", "median_bandwidth", "time", "median_time")
    padded = spec.padding.defence or spec.padding.path_defence
    fold = {
        "train": side,
        "test": side,
        "overhead": {"loads": 100} | dict.fromkeys(costs, 0.4) if padded else None,
        "test_samples_of_training_loads": 0.75 if spec.design.protocol == "paper" else 0.0,
    }
    facts = {"division": "by run", "folds": [fold], "recorded_split": None}
    names = tuple(f"page {page}" for page in range(PAGES))
    times = {"wall_s": elapsed, "cpu_s": elapsed}
    return Result(
        spec=spec,
        data="d" * 64,
        facts=facts,
        metrics=plain(measured),
        elapsed=times,
        names=names,
        outcomes=found,
    )


def several() -> list[Result]:
    """Returns results of two attacks, a full and a reduced design, two observers, both worlds, both
    protocols.
    """
    opened: dict[str, Any] = {"world": "open", "monitored": 5}
    return [
        result(0.97),
        result(0.98, attack="rf"),
        result(0.2, **WR),
        result(0.15, loads=40, resplits=2, **WR),
        result(0.55, attack="rf", loads=40, resplits=2, parameters={"epochs": 20}, **WR),
        result(0.4, observer="largest", **WR),
        result(0.3, protocol="paper", **WR),
        result(0.9, **opened),
        result(0.3, **opened, **WR),
        result(0.5, **opened, **WR, attack="rf", loads=40),
        result(0.4, **opened, **WR, protocol="paper"),
        result(0.8, defence="wtf-pad"),
    ]


def save_all(found: list[Result], folder: Path) -> Path:
    """Returns a folder of results with meaningless file names."""
    folder.mkdir(exist_ok=True)
    for number, each in enumerate(found):
        results.save(each, folder / f"{number:04x}.json")
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the results of `several`."""
    return save_all(several(), tmp_path_factory.mktemp("results") / "some.results")


@pytest.fixture(scope="session")
def built(folder: Path) -> page.Page:
    """Returns the page of `folder`, with all of the paper's places."""
    found = Collection.read([folder], paper=True)
    return page.build(found, "anabranch-lab report some.results --paper")
