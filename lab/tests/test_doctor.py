"""Installed parts, and estimates of a run's needs against real small runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch import doctor, io
from anabranch.evaluate import Spec, evaluate
from anabranch.nets import missing_of_jax
from anabranch.sweep import memory
from anabranch.sweep.estimate import FACTOR, Measured, Trial, Work, at_best, measure, work_of
from anabranch.traces import Traces
from evaluate.conftest import page_loads

WR: dict[str, Any] = {"schedule": "weighted", "every": "50p", "mode": "together", "resplits": 2}
NET: dict[str, Any] = {
    "attack": "p-fp",
    "parameters": {"length": 300, "width": 16, "hidden": 32, "epochs": 12, "batch_size": 32},
}


@pytest.fixture(scope="module")
def many() -> Traces:
    """Returns 10 pages of 60 loads."""
    return page_loads(loads=60)


def lab(*arguments: object, code: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{code}from anabranch.cli import main; main()"
    call = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, check=False)


@pytest.fixture
def no_kept_programs() -> Iterator[None]:
    """Has JAX compile every time: what the trial wrote to its cache would save the run that."""
    jax: Any = pytest.importorskip("jax")
    cache: Any = pytest.importorskip("jax.experimental.compilation_cache.compilation_cache")
    before = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    cache.reset_cache()  # JAX decides only once whether it uses one
    yield
    jax.config.update("jax_enable_compilation_cache", before)
    cache.reset_cache()


@pytest.mark.parametrize(
    "settings",
    [
        {"attack": "k-fp", "parameters": {"trees": 100}, **WR},
        {"attack": "cumul", **WR},
        {"attack": "forest"},
        NET,
    ],
    ids=lambda settings: settings["attack"],
)
def test_a_real_run_takes_what_was_said_within_the_factor(
    settings: dict[str, Any], many: Traces, request: pytest.FixtureRequest
) -> None:
    """In CPU time, so that other processes do not count."""
    if settings["attack"] == "p-fp":
        if missing_of_jax():
            pytest.skip("needs JAX")
        request.getfixturevalue("no_kept_programs")
    spec = Spec.of(**settings)
    measured = measure(spec, many, 1.0, time.process_time)
    work = work_of(spec, many)
    assert measured.trials[-1].work.samples < work.samples, "an estimate, not the run itself"
    if settings["attack"] == "p-fp":
        clear: Any = pytest.importorskip("jax").clear_caches
        clear()  # a run has a process of its own, which compiles
    said, began = measured.seconds(work), time.process_time()
    result = evaluate(spec, many)
    real = time.process_time() - began
    assert real / FACTOR < said < real * FACTOR, (said, real, str(measured))
    fold = result.facts["folds"][0]
    assert work.trained >= fold["train"]["samples"], "loads of which nothing is seen do not train"
    assert work.predicted == fold["validation"]["samples"] + fold["test"]["samples"]


def test_a_real_run_takes_no_more_memory_than_was_said(many: Traces, tmp_path: Path) -> None:
    io.write(many, tmp_path / "many.parquet")
    program = (
        "import re, sys; from anabranch import io; from anabranch.evaluate import *\n"
        "evaluate(Spec.of(attack='k-fp', parameters={'trees': 50}), io.read(sys.argv[1]))\n"
        # Not ru_maxrss, which a process inherits from its parent.
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    call = [sys.executable, "-c", program, str(tmp_path / "many.parquet")]
    real = int(subprocess.run(call, capture_output=True, text=True, check=True).stdout) << 10
    said = memory.needed(Spec.of(attack="k-fp", parameters={"trees": 50}), many)
    assert real < said < 4 * real


def test_the_work_of_every_protocol_is_known(many: Traces) -> None:
    for settings in (
        {"world": "open", "monitored": 4, **WR},
        {"protocol": "paper", "folds": 2, **WR},
        {"loads": 3, "merged": True, **WR},
    ):
        spec = Spec.of(attack="size", parameters={"trees": 1}, bootstrap=5, **settings)
        folds = evaluate(spec, many).facts["folds"]
        work = work_of(spec, many)
        assert work.folds == len(folds)
        trained = sum(fold["train"]["samples"] for fold in folds)
        # Empty loads, and parts of ten packets, do not train: an upper bound.
        assert trained <= work.trained <= 1.5 * trained


def test_trials_are_carried_on_as_they_grew() -> None:
    def of(*seconds: float) -> Measured:
        sizes = (100, 200)
        return Measured(
            tuple(Trial(Work(n, 0), elapsed) for n, elapsed in zip(sizes, seconds, strict=False))
        )

    assert of(1.0).seconds(Work(400, 0)) == pytest.approx(4.0)
    assert of(1.0, 1.5).seconds(Work(400, 0)) == pytest.approx(2.5), "half is spent in any case"
    assert of(1.0, 4.0).seconds(Work(400, 0)) == pytest.approx(16.0), "with the square"
    assert of(1.0, 8.0).seconds(Work(400, 0)) == pytest.approx(32.0), "never by more"
    assert of(2.0, 1.0).seconds(Work(400, 0)) == pytest.approx(1.0)
    network = Measured((Trial(Work(100, 100, 2), 10.0, ((6.0, 1.0),)),))
    # 5 s to compile, 1 s per epoch of 100 samples, 3 s for the rest.
    assert network.seconds(Work(200, 200, 10)) == pytest.approx(5 + 20 + 6)


def test_units_share_the_processors() -> None:
    assert at_best([3.0, 3.0, 2.0, 2.0, 2.0], 2) == 7.0
    assert at_best([5.0], 4) == 5.0
    assert at_best([], 2) == 0.0


def test_the_command_tells_what_a_sweep_needs(many: Traces, tmp_path: Path) -> None:
    io.write(many, tmp_path / "many.parquet")
    listing = tmp_path / "spec.toml"
    listing.write_text(
        '[common]\ndata = "many.parquet"\nattack = ["k-fp", "size"]\nseed = [0, 1]\n'
        "[attacks.k-fp]\ntrees = 20\n"
        '[[runs]]\nname = "small"\nloads = 4\n[[runs]]\nname = "all"\nworld = "open"\n'
    )
    before = sorted(tmp_path.iterdir())
    done = lab("doctor", listing, "--seconds", 1, "--jobs", 2, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)["sweep"]
    assert [each["unit"] for each in report["units"]][:2] == [
        "small: k-fp, random, seed 0",
        "small: k-fp, random, seed 1",
    ]
    assert len(report["units"]) == 8
    assert all(each["seconds"] > 0 and "samples in" in each["made"] for each in report["units"])
    assert report["seconds"] == pytest.approx(sum(each["seconds"] for each in report["units"]))
    assert 0.49 <= report["seconds_at_best"] / report["seconds"] <= 1.0
    assert sorted(tmp_path.iterdir()) == before, "nothing is kept"
    shown = lab("doctor", listing, "--seconds", 0).stdout
    assert "small: size, random, seed 1" in shown
    assert "Predicted times are right within a factor of 3" in shown


def test_a_unit_that_cannot_run_says_why(many: Traces, tmp_path: Path) -> None:
    io.write(many, tmp_path / "many.parquet")
    listing = tmp_path / "spec.toml"
    listing.write_text('[common]\ndata = "many.parquet"\nattack = ["size"]\npages = [5, 99]\n')
    done = lab("doctor", listing, "--seconds", 0, "--json")
    fits, not_fits = json.loads(done.stdout)["sweep"]["units"]
    assert fits["seconds"] > 0
    assert not_fits["seconds"] is None
    assert "pages: 99 are asked for, but the data have only 10" in not_fits["made"]


def test_what_is_missing_is_named_with_its_cure() -> None:
    found = doctor.installed()
    assert found["parts"]["the lab"]["versions"]["numpy"]
    assert found["parts"]["sweeps over a cluster"]["install"].startswith("pip install './lab[ray]'")
    hidden = (
        "from importlib import metadata as m; v = m.version\n"
        "def gone(name):\n"
        "    if name in ('matplotlib', 'ray'): raise m.PackageNotFoundError(name)\n"
        "    return v(name)\n"
        "m.version = gone\n"
        "import os; os.environ['COLUMNS'] = '250'\n"
    )
    done = lab("doctor", code=hidden)
    assert done.returncode == 0, done.stderr
    assert "matplotlib: pip install './lab[report]'" in done.stdout
    assert "ray: pip install './lab[ray]'" in done.stdout
    assert "processors" in done.stdout


def test_a_gpu_that_jax_does_not_see_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert "pip install 'jax[cuda12]'" in str(doctor._advice({"cpu"}))
    assert doctor._advice({"gpu", "cpu"}) is None
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert "JAX_PLATFORMS=cpu is set" in str(doctor._advice({"cpu"}))
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert doctor._advice({"cpu"}) is None
    assert doctor.devices()["found"], "JAX is there, and finds at least the processor"
