from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from anabranch import sim
from anabranch.sim import Done, Plan, SimError, sweep

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "anabranch"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", CACHE / "target")) / "debug" / "anabranch"
PROGRAM = os.environ.get("ANABRANCH", str(BUILT))

needs_program = pytest.mark.skipif(
    not Path(PROGRAM).exists(), reason=f"{PROGRAM} is not there: cargo build -p anabranch makes it"
)
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: make lab-ray installs it"
)

SCENARIO = """duration = '4s'
delay = ['5ms', '20ms']
[relays]
count = 4
exits = 1
[clients]
bulk = 1
"""


@pytest.fixture
def scenarios(tmp_path: Path) -> tuple[Path, ...]:
    texts = {"one.toml": SCENARIO, "two.toml": f"{SCENARIO}legs = 2\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tuple(tmp_path / name for name in texts)


def swept_by_the_program(plan: Plan, folder: Path) -> str:
    """Returns the hash of a sweep by `anabranch sim sweep` alone."""
    done = subprocess.run(plan.command(folder, "--json"), capture_output=True, check=True)
    return str(json.loads(done.stdout.splitlines()[-1])["hash"])


@needs_program
def test_processes_find_what_the_program_finds_and_continue(
    scenarios: tuple[Path, ...], tmp_path: Path
) -> None:
    first = sweep(Plan(tmp_path / "a", scenarios, program=PROGRAM), jobs=2)
    assert (first.kept, first.done, len(first.nodes)) == (0, 2, 1)
    plan = Plan(tmp_path / "a", scenarios, networks=2, program=PROGRAM)
    names = list[str]()
    both = sweep(plan, jobs=1, on_run=lambda name, _: names.append(name))
    assert (both.kept, both.done) == (2, 2)
    assert sorted(names) == ["one-n2-s1", "two-n2-s1"]
    assert both.hash == swept_by_the_program(plan, tmp_path / "b")
    for name in ("one-n1-s1", "two-n2-s1"):
        files = [tmp_path / at / "runs" / f"{name}.parquet" for at in "ab"]
        assert files[0].read_bytes() == files[1].read_bytes()
    # The program continues a folder of this module.
    more = Plan(tmp_path / "a", scenarios, networks=3, program=PROGRAM)
    assert swept_by_the_program(more, tmp_path / "a") != both.hash
    assert sweep(more).done == 0


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a Ray of two nodes on loopback, with one processor each."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes(timeout=60)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield
    ray.shutdown()
    cluster.shutdown()


@needs_ray
@needs_program
@pytest.mark.usefixtures("two_nodes")
def test_ray_shares_a_sweep_among_two_nodes(scenarios: tuple[Path, ...], tmp_path: Path) -> None:
    plan = Plan(tmp_path / "a", scenarios, networks=2, seeds=2, program=PROGRAM)
    report = sweep(plan, executor="ray", memory=100 << 20)
    assert (report.kept, report.done, len(report.nodes)) == (0, 8, 2)
    assert report.hash == swept_by_the_program(plan, tmp_path / "b")
    assert sweep(plan, executor="ray").done == 0


@needs_program
def test_a_scenario_that_is_refused_is_told_with_its_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(SCENARIO.replace("bulk = 1", "bulk = 0"))
    with pytest.raises(SimError, match=r"bad.toml:6: there is no client"):
        sweep(Plan(tmp_path / "a", (bad,), program=PROGRAM))
    assert not (tmp_path / "a").exists()


def test_a_missing_program_is_told(tmp_path: Path) -> None:
    with pytest.raises(SimError, match="the program 'no-such' was not found"):
        sweep(Plan(tmp_path, (tmp_path / "s.toml",), program="no-such"))


def run_of(header: dict[str, object]) -> Done:
    return Done("elsewhere", header, {"unit": "one-n1-s1"}, b"PAR1")


def test_a_run_of_another_program_is_not_stored(tmp_path: Path) -> None:
    header: dict[str, object] = {"program": "1"}
    journal = tmp_path / sim.JOURNAL
    journal.write_text(json.dumps(header) + "\n")
    with sim._journal(tmp_path) as add:
        add("one-n1-s1", run_of(header))
        with pytest.raises(SimError, match="on elsewhere differs"):
            add("two-n1-s1", run_of({"program": "2"}))
    assert journal.read_text().splitlines() == ['{"program": "1"}', '{"unit": "one-n1-s1"}']
    files = [file.name for file in (tmp_path / sim.RUNS).iterdir()]
    assert files == ["one-n1-s1.parquet"]


def test_two_sweeps_never_write_one_folder(tmp_path: Path) -> None:
    journal = tmp_path / sim.JOURNAL
    journal.write_text("{}\n")
    with journal.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(SimError, match="another process writes"), sim._journal(tmp_path):
            pass
