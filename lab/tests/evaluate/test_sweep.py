from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import joblib
import pytest

from anabranch import io, results
from anabranch.evaluate import Spec
from anabranch.nets import MissingExtraError
from anabranch.observers import SettingError
from anabranch.sweep import Report, Unit, executors, memory, read, sweep
from anabranch.traces import Traces
from anabranch.validate import TraceError

LISTING = """
[common]
data = "{data}"
loads = 6
seed = [0, 1]
bootstrap = 50

[attacks.k-fp]
trees = 20

[[runs]]
name = "undefended"

[[runs]]
name = "weighted"
schedule = "weighted"
every = "20p"
paths = [2, 3]
"""


@pytest.fixture
def listing(data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(LISTING.format(data=data))
    return path


def stamps(folder: Path) -> dict[str, int]:
    """Returns the modification time of each file."""
    return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}


def test_lists_become_units_with_the_attacks_parameters(listing: Path) -> None:
    units = read(listing)
    assert [(unit.name, unit.spec.splitting.paths, unit.spec.seed) for unit in units] == [
        ("undefended", 3, 0),
        ("undefended", 3, 1),
        ("weighted", 2, 0),
        ("weighted", 3, 0),
        ("weighted", 2, 1),
        ("weighted", 3, 1),
    ]
    assert all(unit.spec.attack.parameters == {"trees": 20} for unit in units)
    assert all(unit.spec.design.loads == 6 for unit in units)


def test_an_alias_is_the_attack_that_results_name(data: Path, tmp_path: Path) -> None:
    """`minirocket` in options and sweeps, `rocket` in results, earlier ones included."""
    path = tmp_path / "spec.toml"
    units = {}
    for name in ("minirocket", "rocket"):
        path.write_text(
            f'[common]\ndata = "{data}"\nattack = "{name}"\n'
            f"[attacks.{name}]\nconvolutions = 8\n[[runs]]\n"
        )
        (units[name],) = read(path)
    assert units["minirocket"] == units["rocket"]
    assert units["minirocket"].spec.attack.name == "rocket"
    assert units["minirocket"].spec.attack.parameters == {"convolutions": 8}
    assert Spec.of(attack="minirocket") == Spec.of(attack="rocket")
    with pytest.raises(SettingError, match="minirockets"):
        Spec.of(attack="minirockets")


def test_data_may_be_named_later(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(f'[[runs]]\nname = "here"\ndata = "{data}"\n[[runs]]\nname = "later"\n')
    with pytest.raises(TraceError, match=r"spec\.toml: a run names no traces"):
        read(path)
    assert [unit.data for unit in read(path, Path("/later.parquet"))] == [
        data,
        Path("/later.parquet"),
    ]


def test_a_run_overrules_what_is_common(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(
        f'common = {{ data = "{data}", loads = 6, parameters = {{ leaf_size = 2 }} }}\n'
        "attacks.k-fp = { trees = 20, leaf_size = 9 }\n"
        "[[runs]]\nloads = 3\ndelays = [0.01, [0, 0.02], 0.0]\n"
        "schedule = 'uniform'\nevery = '9p'\n"
    )
    (unit,) = read(path)
    assert unit.spec.design.loads == 3
    assert unit.spec.splitting.delays == (0.01, (0, 0.02), 0.0)
    assert unit.spec.attack.parameters == {"trees": 20, "leaf_size": 2}
    assert unit.data == data


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("schedule", "shedule", "line 16: unknown setting 'shedule': did you mean 'schedule'"),
        ("[[runs]]\nname = \"w", "[[run]]\nname = \"w", "line 14: unknown table 'run': did you"),
        ("trees", "tress", "line 9: unknown parameter of k-fp 'tress': did you mean 'trees'"),
        ("attacks.k-fp", "attacks.kfp", "line 8: unknown attack 'kfp': did you mean 'k-fp'"),
        ("loads = 6", "loads = '6'", "line 4: loads: '6' is not valid: expected a whole number"),
        ("loads = 6", "loads = ", "not TOML: Invalid value \\(at line 4"),
        ("loads = 6", f"loads = {'9' * 5000}", "not TOML: Exceeds the limit"),
        ("loads = 6", f"loads = {'[' * 5000}", "not TOML: "),
        ("paths = [2, 3]", "paths = 0", "line 18: paths: 0 is not from 1 to"),
        ("data = ", "date = ", "line 3: unknown setting 'date'"),
        ('"weighted"\nevery', '"weights:0,0"\nevery', "line 16: schedule: the weights sum to 0"),
        ("paths = [2, 3]", "seed = -1", "seed: -1 is negative"),
        ("paths = [2, 3]", "bootstrap = 0", "bootstrap: 0 is not from 1 to"),
        ('schedule = "weighted"\n', "", "line 16: every: this setting needs a schedule"),
        ("[attacks.k-fp]\n", "[attacks.rf]\nslots = 3\n[attacks.k-fp]\n", "line 9: rf: slots = 3"),
        ("[2, 3]", "[]", "line 18: paths: the list is empty"),
    ],
)  # fmt: skip
def test_typos_are_told_with_file_line_and_nearest_name(
    listing: Path, old: str, new: str, problem: str
) -> None:
    text = listing.read_text()
    assert old in text
    listing.write_text(text.replace(old, new, 1))
    with pytest.raises(TraceError, match=rf"spec\.toml: {problem}"):
        read(listing)


def test_a_sweep_keeps_what_it_finds_and_does_nothing_twice(listing: Path, tmp_path: Path) -> None:
    units, folder = read(listing)[:3], tmp_path / "results"
    first = sweep(units[:2], folder)
    assert (first.kept, first.done, first.failed) == (0, 2, [])
    before = stamps(folder)
    second = sweep(units, folder)
    assert (second.kept, second.done) == (2, 1)
    assert stamps(folder).items() >= before.items()
    assert [results.load(file).spec for _, file in second.files] == [unit.spec for unit in units]


def test_what_is_known_from_elsewhere_is_not_done_again(listing: Path, tmp_path: Path) -> None:
    units = read(listing)[:2]
    first = sweep(units[:1], tmp_path / "there")
    ((_, file),) = first.files
    report = sweep(units, tmp_path / "here", known={file.stem})
    assert (report.kept, report.done) == (1, 1)
    assert not (tmp_path / "here" / file.name).exists()


def test_results_beside_the_traces_of_a_folder_are_none_of_them(
    pages: Traces, tmp_path: Path
) -> None:
    io.write(pages, tmp_path / "cells", "cells")
    listing = tmp_path / "cells" / "spec.toml"
    listing.write_text(LISTING.format(data="."))
    units = read(listing)[:1]
    for kept, done in ((0, 1), (1, 0)):
        report = sweep(units, tmp_path / "cells")
        assert (report.kept, report.done, report.failed) == (kept, done, [])
    (tmp_path / "cells" / "0-0.cell").write_text("0.0\t1\n")
    assert sweep(units, tmp_path / "cells").done == 1


def test_units_of_equal_settings_are_done_once(listing: Path, tmp_path: Path) -> None:
    (unit, *_) = read(listing)
    twin = replace(unit, name="twin")
    report = sweep([unit, twin], tmp_path / "results")
    assert (report.done, len(list((tmp_path / "results").glob("*.json")))) == (1, 1)
    assert [file for _, file in report.files] == [report.files[0][1]] * 2
    again = sweep([twin, unit], tmp_path / "results")
    assert (again.kept, again.done) == (1, 0)


def test_no_runs_is_an_error_and_no_table_of_runs_is_one_run(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(f'[common]\ndata = "{data}"\n')
    assert [unit.name for unit in read(path)] == ["run 0"]
    path.write_text(f'runs = []\n[common]\ndata = "{data}"\n')
    with pytest.raises(TraceError, match="line 1: runs: the list is empty"):
        read(path)


def test_a_pool_finds_what_one_process_finds(listing: Path, tmp_path: Path) -> None:
    units = read(listing)[:3]
    alone = sweep(units, tmp_path / "alone")
    together = sweep(units, tmp_path / "together", jobs=2)
    for (_, one), (_, other) in zip(alone.files, together.files, strict=True):
        assert one.name == other.name
        assert results.load(one).metrics == results.load(other).metrics


def test_a_unit_that_fails_stops_no_others(data: Path, tmp_path: Path) -> None:
    units = [
        Unit(name, data, None, None, Spec.from_dict({"parameters": {"trees": 5}} | settings))
        for name, settings in (("bad", {"pages": 99}), ("good", {"loads": 3}))
    ]
    report = sweep(units, tmp_path / "results")
    assert report.done == 1
    ((unit, why),) = report.failed
    assert (unit.name, why) == ("bad", "pages: 99 are asked for, but the data have only 10")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_fault_that_nobody_foresaw_stops_no_others(data: Path, tmp_path: Path, jobs: int) -> None:
    report = sweep(units_of_which_one_breaks(data), tmp_path / "results", jobs=jobs)
    told_of_the_broken_one(report)


def units_of_which_one_breaks(data: Path) -> list[Unit]:
    """Returns three units; the second has a setting that its checks, bypassed here,
    would refuse.
    """
    specs = [Spec.of(parameters={"trees": 5}, loads=3, seed=seed) for seed in range(3)]
    object.__setattr__(specs[1].scoring, "bootstrap", "many")
    return [Unit(f"unit {spec.seed}", data, None, None, spec) for spec in specs]


def told_of_the_broken_one(report: Report) -> None:
    assert report.done == 2
    ((unit, why),) = report.failed
    assert unit.name == "unit 1"
    assert "Error(" in why
    assert "\n" not in why


def start(listing: Path, *options: str) -> subprocess.Popen[str]:
    # A shell's background jobs ignore interrupts, and so do these tests there.
    hear = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{hear}; from anabranch.cli import main; main()"
    call = [sys.executable, "-c", program, "sweep", str(listing), *options]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("jobs", "end"), [("1", signal.SIGKILL), ("2", signal.SIGKILL), ("2", signal.SIGINT)]
)
def test_a_stopped_sweep_goes_on_where_it_was(
    listing: Path, tmp_path: Path, jobs: str, end: signal.Signals
) -> None:
    # Later units take long enough to be killed during their run, and there are more than a pool
    # takes at once: the running ones are finished if the sweep is asked to stop.
    more = "paths = [2, 3, 4, 5]\nparameters.trees = 400"
    text = listing.read_text().replace("paths = [2, 3]", more)
    listing.write_text(text)
    folder = tmp_path / "spec.results"
    running = start(listing, "--jobs", jobs)
    for _ in wait_until(lambda: any(folder.glob("*.json")) if folder.is_dir() else False):
        assert running.poll() is None, running.communicate()
    running.send_signal(end)
    _, error = running.communicate(timeout=120)
    assert "Traceback" not in error
    kept = {name: at for name, at in stamps(folder).items() if not name.endswith(".part")}
    done = [name for name in kept if name.endswith(".json")]
    assert 1 <= len(done) < 10, "killed after the first unit, before the last"
    for name in done:
        results.load(folder / name)
    again = start(listing, "--jobs", "2")
    said, error = again.communicate(timeout=200)
    assert (again.returncode, error.count("\n")) == (0, 10 - len(done)), error
    counts = f"{len(done)} results existed already, {10 - len(done)} evaluations done, 0 failed"
    assert counts in said
    assert said.split()[:5] == ["run", "paths", "seed", "accuracy", "%"], "what tells units apart"
    assert stamps(folder).items() >= kept.items()
    assert len(list(folder.glob("*.json"))) == 10


def test_a_network_of_a_killed_sweep_goes_on_where_it_was(data: Path, tmp_path: Path) -> None:
    listing = tmp_path / "spec.toml"
    settings = "[common]\nloads = 6\nbootstrap = 50\nattack = 'p-fp'\n"
    parameters = "[attacks.p-fp]\nlength = 100\nepochs = 60\n"
    listing.write_text(f"{settings}data = '{data}'\n{parameters}")
    folder = tmp_path / "spec.results"
    running = start(listing)
    for _ in wait_until(lambda: any(folder.glob("*.training")) if folder.is_dir() else False):
        assert running.poll() is None, running.communicate()
    running.kill()
    running.communicate()
    (kept,) = folder.glob("*.training")
    before, done = joblib.load(kept)
    assert len(done["plain"]["told"]) < 60, "killed while it was trained"
    (unit,) = read(listing)
    report = sweep([unit], folder)
    assert not list(folder.glob("*.training"))
    whole = sweep([unit], tmp_path / "whole")
    (one,), (other,) = ([results.load(file) for _, file in each.files] for each in (report, whole))
    assert (one.metrics, one.facts) == (other.metrics, other.facts)
    assert one.elapsed["cpu_s"] > before.cpu_s, "what the killed process spent counts"


def wait_until(ready: object, seconds: float = 60) -> Iterator[None]:
    """Yields until `ready()` is true."""
    assert callable(ready)
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until
        yield
        time.sleep(0.005)


def test_a_killed_pool_leaves_no_process(listing: Path, tmp_path: Path) -> None:
    program = f"""
import time
from anabranch.sweep import executors
from evaluate.test_sweep import sleep_and_tell
if __name__ == "__main__":
    list(executors.pool([{str(tmp_path)!r} + "/0", {str(tmp_path)!r} + "/1"], sleep_and_tell, 2))
"""
    script = tmp_path / "pool.py"
    script.write_text(program)
    tests = Path(__file__).parent.parent
    call = [sys.executable, str(script)]
    parent = subprocess.Popen(call, env=os.environ | {"PYTHONPATH": str(tests)})
    files = [tmp_path / "0", tmp_path / "1"]
    for _ in wait_until(lambda: all(file.exists() and file.read_text() for file in files)):
        assert parent.poll() is None
    workers = [int(file.read_text()) for file in files]
    parent.kill()
    parent.wait()
    for _ in wait_until(lambda: not any(map(alive, workers)), 20):
        pass


def alive(process: int) -> bool:
    """Returns whether it runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def sleep_and_tell(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(120)


def test_bad_input_is_one_line_and_code_2(listing: Path, data: Path, tmp_path: Path) -> None:
    text = listing.read_text()
    (tmp_path / "bad.parquet").write_bytes(data.read_bytes()[:300])
    for old, new, options, problem in [
        ("loads", "laods", [], "spec.toml: line 4: unknown setting 'laods': did you mean 'loads'"),
        (str(data), "none.parquet", [], "none.parquet: no such file"),
        (str(data), "bad.parquet", [], "bad.parquet: not a readable Parquet"),
        ("", "", ["--jobs", "0"], "jobs: 0"),
        ("", "", ["--executor", "rya"], "executor: 'rya' is unknown: expected local or ray"),
    ]:
        listing.write_text(text.replace(old, new, 1) if old else text)
        done = start(listing, *options)
        _, error = done.communicate(timeout=120)
        assert done.returncode == 2
        assert problem in error
        assert error.count("\n") == 1
        assert not (tmp_path / "spec.results").exists()


def test_a_missing_ray_says_what_to_install(
    listing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"needs ray: pip install './lab\[ray\]'"):
        sweep(read(listing), tmp_path / "results", executor="ray")


needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: make lab-ray installs it"
)


@needs_ray
def test_ray_finds_what_one_process_finds(listing: Path, tmp_path: Path) -> None:
    units = read(listing)[:2]
    alone = sweep(units, tmp_path / "alone")
    there = sweep(units, tmp_path / "ray", executor="ray", jobs=2)
    assert there.done == 2
    for (_, one), (_, other) in zip(alone.files, there.files, strict=True):
        assert results.load(one).metrics == results.load(other).metrics


@needs_ray
def test_a_fault_that_nobody_foresaw_stops_no_others_on_ray(data: Path, tmp_path: Path) -> None:
    units = units_of_which_one_breaks(data)
    told_of_the_broken_one(sweep(units, tmp_path / "results", executor="ray", jobs=2))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a Ray of one node: 3 processors, 1 GiB for units, and this file importable."""
    import ray

    tests = str(Path(__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", tests, prepend=os.pathsep)
    ray.init(num_cpus=3, _memory=1 << 30, log_to_driver=False, include_dashboard=False)
    yield
    ray.shutdown()


@needs_ray
@pytest.mark.parametrize(
    ("need", "jobs", "at_once", "running"),
    [(1 << 20, None, 3, 3), (1 << 20, 99, 3, 3), (1 << 20, 2, 2, 2), (600 << 20, None, 3, 1)],
)
@pytest.mark.usefixtures("cluster")
def test_ray_places_no_more_than_the_node_takes(
    tmp_path: Path, need: int, jobs: int | None, at_once: int, running: int
) -> None:
    with executors.ray([need] * 8, jobs) as workers:
        assert workers.at_once == at_once
        counts = [count for _, count in workers.run([str(tmp_path)] * 8, count_running)]
    assert max(counts) == running


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_ray_does_alone_what_no_node_has_the_memory_for(tmp_path: Path) -> None:
    with executors.ray([1 << 40] * 2, None) as workers:
        done = list(workers.run([str(tmp_path)] * 2, count_running))
    assert done == [(str(tmp_path), 1)] * 2


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_ray_tells_of_a_killed_worker() -> None:
    with (
        pytest.raises(SettingError, match=r"Ray lost a process \(WorkerCrashedError\).* are kept"),
        executors.ray([1, 1], 1) as workers,
    ):
        list(workers.run(["a", "b"], end_abruptly))


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_ray_tells_of_a_node_without_the_lab() -> None:
    with (
        pytest.raises(SettingError, match=r"a node cannot run the lab: .*no_such_module"),
        executors.ray([1], 1) as workers,
    ):
        list(workers.run([Elsewhere()], end_abruptly))


class Elsewhere:
    """An object whose module a node lacks."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return __import__, ("no_such_module",)


@needs_ray
def test_a_ray_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with (
        pytest.raises(SettingError, match="executor: cannot connect to Ray"),
        executors.ray([1], 1),
    ):
        pass


def test_jobs_are_one_a_processor_where_none_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    with executors.local([1] * 9, None) as workers:
        assert workers.at_once == 5


def test_work_in_flight_is_bounded_by_memory(pages: Traces) -> None:
    assert memory.at_once([300, 300, 300, 300], 4, 1000) == 2
    assert memory.at_once([300, 300, 300, 300], 4, 10_000) == 4
    assert memory.at_once([10, 10, 900, 10], 4, 1000) == 1, "the largest may come together"
    assert memory.at_once([5000], 4, 1000) == 1
    small, large = Spec(), Spec.of(schedule="uniform", every="9p", resplits=10)
    assert memory.needed(large, pages) > memory.needed(small, pages)
    padded = memory.needed(Spec.of(defence="front"), pages) - memory.needed(Spec(), pages)
    front = Spec.of(defence="front").pipeline().apply(pages, 1)
    assert padded > 100 * (front.times.size - pages.times.size), "bytes of a packet in a sample"
    assert 0 < memory.available() < 1 << 50


def test_no_more_runs_at_a_time_than_allowed(tmp_path: Path) -> None:
    folders = [str(tmp_path)] * 6
    most = max(count for _, count in executors.pool(folders, count_running, 2))
    assert most == 2


def count_running(folder: str) -> int:
    """Returns the number of processes in this function now."""
    own = Path(folder) / str(time.monotonic_ns())
    own.touch()
    time.sleep(0.4)
    running = len(list(Path(folder).iterdir()))
    own.unlink()
    return running


def test_a_killed_worker_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="jobs: a process was killed"):
        list(executors.pool(["a", "b", "c"], end_abruptly, 2))


def end_abruptly(unit: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_of_a_sweep_are_plain_files(listing: Path, tmp_path: Path) -> None:
    report = sweep(read(listing)[:1], tmp_path / "results")
    content = json.loads(report.files[0][1].read_text())
    assert content["spec"]["parameters"] == {"trees": 20}
    assert content["took"]["wall_s"] > 0


def test_the_sweep_of_modes_asks_for_each_with_each_draw() -> None:
    path = Path(__file__).parents[2] / "results" / "follow.toml"
    units = read(path, Path("loads.parquet"))
    names = ("attack", "schedule", "mode", "draw", "observer")
    asked = [tuple(unit.spec.to_dict()[name] for name in names) for unit in units]
    # RF takes hours: by two schedules with two draws, where the server follows.
    rf = [spec for spec in asked if spec[0] == "rf"]
    assert len(set(rf)) == len(rf) == 2 * 2
    assert {spec[2] for spec in rf} == {"follow"}
    cheap = [spec for spec in asked if spec[0] != "rf"]
    assert len(set(cheap)) == len(cheap) == 3 * 2 * 2 * 3 * 2
    assert {spec[2:4] for spec in cheap} == {
        (mode, draw)
        for mode in ("together", "follow")
        for draw in ("load", "session:20", "silence:1s")
    }


def test_the_sweep_of_schedules_asks_for_the_size_beside_each_number() -> None:
    path = Path(__file__).parents[2] / "results" / "schedules.toml"
    asked: dict[str, set[str]] = {}
    for unit in read(path, Path("loads.parquet")):
        settings = unit.spec.to_dict()
        name = settings.pop("attack")
        del settings["parameters"]
        asked.setdefault(json.dumps(settings, sort_keys=True), set()).add(name)
        assert str(unit.spec.observer) in {"largest", "largest+counter", "random+counter"}
    assert len(asked) > 50
    assert all("size" in attacks and len(attacks) > 1 for attacks in asked.values())
