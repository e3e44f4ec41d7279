"""Whole evaluations on 10 synthetic pages of 20 loads, and the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import io, results
from anabranch.attacks import ATTACKS
from anabranch.cli import main
from anabranch.evaluate import Spec, evaluate
from anabranch.nets import MissingExtraError
from anabranch.observers import SettingError
from anabranch.results import Result
from anabranch.splitting import Split, SplitError
from anabranch.traces import Builder, Traces
from anabranch.validate import TraceError

FOREST = {"attack": "k-fp", "parameters": {"trees": 60}}
NETWORK = {
    "attack": "rf",
    "parameters": {
        "slots": 96,
        "window": 6.0,
        "width": 8,
        "epochs": 25,
        "batch_size": 20,
        "learning_rate": 0.005,
    },
}
SPLIT = {
    "schedule": "weighted",
    "every": "20p",
    "paths": 3,
    "mode": "together",
    "resplits": 2,
}

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


def run(traces: Traces, **settings: Any) -> Result:
    return evaluate(Spec.from_dict(settings), traces)


@pytest.mark.parametrize("attack", [FOREST, pytest.param(NETWORK, marks=needs_jax)])
def test_splitting_hides_and_merging_undoes_it(pages: Traces, attack: dict[str, Any]) -> None:
    whole = run(pages, **attack).metrics["accuracy"]
    split = run(pages, **attack, **SPLIT).metrics["accuracy"]
    merged = run(pages, **attack, **(SPLIT | {"resplits": 1, "observer": "merged"}))
    assert whole["value"] > 0.9
    assert split["value"] < whole["value"] - 0.2
    assert split["high"] < whole["low"]
    assert merged.metrics["accuracy"] == whole, "the same packets and seeds: the very same numbers"


def test_one_prediction_for_each_load_of_the_test_run(pages: Traces) -> None:
    found = run(pages, **FOREST, **SPLIT)
    tested = np.flatnonzero(pages.run == 5)
    np.testing.assert_array_equal(found.outcomes.load, pages.load[tested])
    assert found.facts["folds"][0]["test_samples_of_training_loads"] == 0
    assert found.facts["folds"][0]["train"]["loads"] == 120


def test_the_largest_share_tells_more_than_a_random_one(pages: Traces) -> None:
    by_chance = run(pages, **FOREST, **SPLIT)
    largest = run(pages, **FOREST, **SPLIT, observer="largest")
    assert largest.outcomes.share.mean() > by_chance.outcomes.share.mean() + 0.1
    assert largest.metrics["accuracy"]["value"] > by_chance.metrics["accuracy"]["value"]


def test_unseen_loads_count_as_misses(pages: Traces) -> None:
    """Half of the loads are on the other path: no more than half can be right."""
    settings = {"schedule": "weights:1,0", "every": "20p", "paths": 2}
    found = run(pages, **FOREST, **settings)
    seen = (found.outcomes.packets > 0).mean()
    assert 0.2 < seen < 0.8
    assert found.metrics["accuracy"]["value"] <= seen
    assert found.metrics["unseen"] == (found.outcomes.packets == 0).sum()
    paper = run(pages, **FOREST, **settings, protocol="paper")
    assert paper.metrics["unseen"] == 0
    assert paper.metrics["accuracy"]["value"] > found.metrics["accuracy"]["value"] + 0.2


def test_the_papers_protocol_tests_loads_that_it_has_trained_on(pages: Traces) -> None:
    found = run(pages, **FOREST, **(SPLIT | {"resplits": 1}), protocol="paper", folds=2)
    for fold in found.facts["folds"]:
        assert fold["test_samples_of_training_loads"] > 0.5
        assert "validation" not in fold
    assert (found.outcomes.packets > 10).all()
    assert set(found.outcomes.fold) == {0, 1}


def test_a_page_that_is_tested_but_not_learnt_is_named(pages: Traces) -> None:
    """Each side had loads of the page, but the division, or the observer's view, drops them."""
    own = np.flatnonzero(pages.label == 3)
    twice = first_packets(pages, own[0])[~np.isin(np.arange(len(pages)), own[2:])]
    with pytest.raises(TraceError, match="'page 03' is only in the test set"):
        run(twice, **FOREST, protocol="paper")
    with pytest.raises(TraceError, match="'page 03' has only one load"):
        run(pages[~np.isin(np.arange(len(pages)), own[1:])], **FOREST)
    learnt = np.flatnonzero((pages.label == 3) & (pages.run < 4))
    short = first_packets(pages, learnt[0])[~np.isin(np.arange(len(pages)), learnt[1:])]
    with pytest.raises(TraceError, match="'page 03' is only in the test set"):
        run(short, **FOREST, schedule="uniform", every="20p", paths=3, seed=1)


def first_packets(traces: Traces, place: int) -> Traces:
    """Returns the traces with one load reduced to one packet."""
    builder = Builder()
    for number in range(len(traces)):
        start, end = traces.offsets[number : number + 2]
        own = slice(start, start + 1 if number == place else end)
        name, run_of = traces.names[traces.label[number]], int(traces.run[number])
        builder.add(name, traces.times[own], traces.sizes[own], run=run_of)
    return builder.build()


def test_open_world_tests_every_unmonitored_page_once(pages: Traces) -> None:
    found = run(pages, **FOREST, world="open", monitored=4)
    numbers = found.metrics
    assert (numbers["monitored_pages"], numbers["unmonitored_pages"]) == (4, 6)
    assert numbers["unmonitored_predictions"] == 6 * 4
    # Both trainings test the monitored pages: their numbers are means of the two.
    assert numbers["monitored_predictions"] == 2 * 4 * 4
    assert numbers["recall"]["value"] > 0.5
    assert numbers["false_positive_rate"]["value"] < 0.5, "at a threshold of 0 it would be 1"
    assert len(numbers["curve"]["recall"]) == len(numbers["curve"]["r_precision"])
    paper = run(pages, **FOREST, world="open", monitored=4, protocol="paper")
    assert paper.metrics["recall"]["value"] > 0.5


def test_somebody_elses_npz_has_an_open_world(pages: Traces, tmp_path: Path) -> None:
    """Its unmonitored loads have one label; each becomes a page of its own."""
    first = pages[pages.run != 2]
    inside = first.label < 4
    chosen = first[inside | (np.arange(len(first)) % 5 == 0)]
    width = int(chosen.lengths.max())
    rows = np.zeros((len(chosen), width))
    for place, row in enumerate(rows):
        own = chosen.packets(place)
        row[: chosen.lengths[place]] = (chosen.times[own] + 1e-6) * np.sign(chosen.sizes[own])
    np.savez(tmp_path / "open.npz", X=rows, y=np.where(chosen.label < 4, chosen.label, 4))
    traces = io.read(tmp_path / "open.npz", meaning=io.Meaning(unmonitored=4))
    found = run(traces, **FOREST, world="open")
    unmonitored = int((chosen.label >= 4).sum())
    assert found.metrics["monitored_pages"] == 4
    assert found.metrics["unmonitored_pages"] == unmonitored
    assert found.metrics["unmonitored_predictions"] == unmonitored
    assert found.metrics["recall"]["value"] > 0.5


@pytest.mark.parametrize("where", ["defence", "path_defence"])
def test_padding_is_seen_by_the_attacker_and_told_with_its_cost(pages: Traces, where: str) -> None:
    plain = run(pages, **FOREST, **SPLIT, observer="merged")
    padded = run(
        pages, **FOREST, **SPLIT, **{where: "front:client=800,server=800"}, observer="merged"
    )
    assert plain.facts["folds"][0]["overhead"] is None
    cost = padded.facts["folds"][0]["overhead"]
    assert cost["loads"] == 40
    assert cost["bandwidth"] > 0.02
    assert padded.outcomes.packets.mean() > plain.outcomes.packets.mean() + 20


def test_equal_specs_give_equal_results_and_another_seed_does_not(pages: Traces) -> None:
    one, same, other = (run(pages, **FOREST, **SPLIT, seed=seed) for seed in (3, 3, 4))
    assert one.metrics == same.metrics
    np.testing.assert_array_equal(one.outcomes.score, same.outcomes.score)
    assert not np.array_equal(one.outcomes.score, other.outcomes.score)


def test_a_recorded_split_is_taken_as_it_is(pages: Traces) -> None:
    split = Spec.from_dict(SPLIT | {"resplits": 1}).split()
    assert split is not None
    recorded = run(split.split(pages), **FOREST)
    np.testing.assert_array_equal(
        recorded.outcomes.score, run(pages, **FOREST, **(SPLIT | {"resplits": 1})).outcomes.score
    )
    plan = recorded.facts["recorded_split"]
    assert plan == str(split)
    assert f"split as {plan}" in recorded.spec.describe(plan)
    # One path, whatever its schedule's name, is no split.
    whole = Split("round-robin", "never", 1).split(pages)
    assert run(whole, **FOREST).facts["recorded_split"] is None


def test_results_are_read_back(pages: Traces, tmp_path: Path) -> None:
    found = run(pages, **FOREST, **SPLIT, world="open", delays=[0.01, [0.0, 0.02], 0.0])
    path = tmp_path / "result.json"
    results.save(found, path)
    again = results.load(path)
    assert (again.spec, again.metrics, again.facts) == (found.spec, found.metrics, found.facts)
    assert again.names == pages.names
    np.testing.assert_array_equal(again.outcomes.score, found.outcomes.score)
    path.with_suffix(".parquet").write_bytes(b"PAR1")
    with pytest.raises(TraceError, match=r"result\.parquet: not a readable file of predictions"):
        results.load(path)
    path.write_text("{}")
    with pytest.raises(TraceError, match="not a result of format"):
        results.load(path)
    path.write_text(json.dumps({"format": results.FORMAT, "spec": {}, "data": "x", "took": {}}))
    with pytest.raises(TraceError, match=r"result\.json: not a complete result: it lacks facts"):
        results.load(path)


def test_what_a_network_found_is_read_without_jax_but_not_found(
    pages: Traces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(run(pages, **FOREST), spec=Spec.of(attack="df"))
    results.save(found, tmp_path / "result.json")
    monkeypatch.setattr("anabranch.nets.find_spec", lambda module: None)
    assert results.load(tmp_path / "result.json").spec.attack.name == "df"
    with pytest.raises(MissingExtraError, match=r"pip install './lab\[nets\]'"):
        run(pages, attack="df")


def test_a_result_is_written_whole_or_not_at_all(pages: Traces, tmp_path: Path) -> None:
    found = run(pages, **FOREST)
    found.metrics["broken"] = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        results.save(found, tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []


def test_keys_tell_settings_data_and_reading_apart() -> None:
    spec = Spec()
    keys = {
        results.key(spec, "a"),
        results.key(spec, "b"),
        results.key(Spec.of(seed=1), "a"),
        results.key(Spec.of(parameters={"trees": 3}), "a"),
        results.key(spec, "a", {"form": "lists"}),
    }
    assert len(keys) == 5
    assert results.key(Spec(), "a") in keys


def test_a_revised_attack_has_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    forest, other = Spec.of(attack="k-fp"), Spec.of(attack="k-fp-paths")
    before = results.key(forest, "a"), results.key(other, "a")
    monkeypatch.setattr(ATTACKS["k-fp"], "revision", 1)
    assert results.key(forest, "a") != before[0]
    assert results.key(other, "a") == before[1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"shedule": "rr"}, "unknown setting 'shedule': did you mean 'schedule'"),
        ({"attack": "kfp"}, "unknown attack 'kfp': did you mean 'k-fp'"),
        ({"parameters": {"tress": 5}}, "unknown parameter of k-fp 'tress': did you mean 'trees'"),
        (
            {"parameters": {"trees": "x"}},
            "k-fp: trees = 'x' has the wrong type: expected a value like its default, 200",
        ),
        ({"paths": "3"}, "paths: '3' is not valid: expected a whole number"),
        ({"pages": 2.5}, "pages: 2.5 is not valid: expected a whole number"),
        ({"merged": 1}, "merged: 1 is not valid: expected true or false"),
        ({"delays": [[1, 2, 3]]}, "delays: .* is not valid: expected a list of seconds"),
        ({"protocol": "fair"}, "expected honest or paper"),
        ({"folds": 0}, "not from 1 to 10"),
        ({"seed": -1}, "seed: -1 is negative"),
        ({"bootstrap": 0}, "bootstrap"),
        ({"defence": "front:budget=3"}, "front has no setting 'budget'"),
        ({"path_defence": "nonsense"}, "the defence 'nonsense' is unknown"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Spec.from_dict(settings)


def test_attacks_that_look_at_times_refuse_traces_without(pages: Traces, tmp_path: Path) -> None:
    io.write(pages, tmp_path / "d.npz", "directions")
    timeless = io.read(tmp_path / "d.npz")
    with pytest.raises(TraceError, match="'time': these traces have no times, which k-fp needs"):
        run(timeless, **FOREST)
    assert run(timeless, attack="cumul").metrics["accuracy"]["value"] > 0.5


def test_settings_that_do_not_go_together_are_refused(pages: Traces) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"protocol": "paper", "observer": "largest"}, "observer: the paper's protocol"),
        ({"protocol": "paper", "merged": True, **SPLIT}, "merged: the paper's protocol"),
        ({"resplits": 2}, "resplits: nothing is split"),
        ({"observer": "merged:4", **SPLIT}, "only 3 paths"),
        ({"observer": "merged:2"}, "nothing is split, so there is only one path"),
    ]
    for settings, problem in cases:
        with pytest.raises(SettingError, match=problem):
            run(pages, **FOREST, **settings)
    padded = Split("weighted", "20p", 3).split(pages)
    with pytest.raises(SettingError, match="defence: these loads are already split"):
        run(padded, **FOREST, defence="front")
    # The twin: a recording on one path alone is unsplit.
    assert run(Split("weighted", "20p", 1).split(pages), **FOREST, defence="front").outcomes
    with pytest.raises(SplitError, match="paths: 0 is not from 1 to"):
        Spec.from_dict({"paths": 0})


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command line as users do."""
    call = [sys.executable, "-c", "from anabranch.cli import main; main()", *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, check=False, timeout=240)


def test_the_command_shows_and_keeps_a_result(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    options = ["--schedule", "weighted", "--every", "20p", "--parameter", "trees=20", "--out", out]
    done = lab("evaluate", data, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "accuracy" in done.stdout
    assert "a random guess among 10 pages is right for 10.0% of loads" in done.stdout
    kept = results.load(out)
    assert kept.spec.attack.parameters == {"trees": 20}
    assert kept.data == results.digest(data)
    written = out.read_bytes()
    refused = lab("evaluate", data, *options)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "result.json: --out: it exists" in refused.stderr
    assert out.read_bytes() == written
    shown = json.loads(lab("evaluate", data, *options, "--replace", "--json").stdout)
    assert shown == kept.metrics
    padded = lab("evaluate", data, "--defence", "front", "--parameter", "trees=20")
    cost = r"padding adds \d+\.\d% to the bytes and 0\.0% to the time of 40 test loads"
    assert re.search(cost, padded.stdout)
    opened = lab("evaluate", data, "--world", "open", "--parameter", "trees=20")
    assert (
        "The false-positive rate is estimated from 5 unmonitored pages (20 loads)" in opened.stdout
    )


def test_help_names_every_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # no name is broken at the end of a line
    said = set(re.findall(r"[a-z-]+", lab("evaluate", "--help").stdout))
    assert said >= set(ATTACKS)


def test_bad_input_is_one_line_and_code_2_and_leaves_nothing(
    data: Path,
    pages: Traces,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def describe(*arguments: object) -> str:
        """Returns the command's error message, with exit code 2; in this process, to be quick."""
        monkeypatch.setattr(sys, "argv", ["anabranch-lab", "evaluate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2, arguments
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        return said.err

    (tmp_path / "bad.parquet").write_bytes(data.read_bytes()[:500])
    np.savez(tmp_path / "bad.npz", X=[1.0, 2.0], y=[1, 2])
    io.write(pages[(pages.label != 3) | (pages.run == 5)], tmp_path / "lost.parquet")
    io.write(replace(pages, monitored=pages.run < 3), tmp_path / "mixed.parquet")
    np.savez(tmp_path / "empty.npz", X=np.zeros((40, 9)), y=np.arange(40) % 2)
    out = tmp_path / "out.json"
    before = sorted(tmp_path.iterdir())
    split = ["--schedule", "weighted", "--every", "20p"]
    cases: list[tuple[list[object], str]] = [
        ([tmp_path / "none.parquet"], "none.parquet: no such file"),
        ([tmp_path / "bad.parquet"], "bad.parquet: not a readable Parquet"),
        ([tmp_path / "bad.npz"], "bad.npz: column 'X'"),
        ([tmp_path / "lost.parquet"], "lost.parquet: column 'label': 'page 03' is only in the"),
        (
            [tmp_path / "mixed.parquet"],
            "mixed.parquet: column 'monitored': is true for 8 of the 20",
        ),
        ([tmp_path / "empty.npz"], "empty.npz: no load of the train set has any packet"),
        ([data, "--attack", "k-fp-paths", "--parameter", "paths=65"], "paths = 65 is not from 0"),
        ([data, "--attack", "df", "--parameter", "width=1000000"], "width = 1000000 is not from 1"),
        ([data, "--defence", "maybenot:front,pps=99999999999"], "maybenot: pps=99999999999 is not"),
        ([data, *split, "--paths", 0], "paths: 0 is not from 1 to"),
        ([data, "--schedule", "weights:0,0,0", "--every", "20p"], "sum to 0"),
        ([data, "--schedule", "weighted"], "no default for when it changes the path"),
        ([data, "--attack", "kfp"], "did you mean 'k-fp'"),
        ([data, "--parameter", "trees"], "write NAME=VALUE"),
        ([data, "--observer", "all"], "expected random (one path), largest"),
        (
            [data, "--observer", "largest"],
            "--observer: without a split every observer sees everything",
        ),
        ([data, "--schedule", "", "--every", "20p"], "schedule: "),
        ([data, "--parameter", f"trees={'9' * 5000}"], "expected a value like its default"),
        ([data, "--parameter", f"trees={'[' * 100000}"], "expected a value like its default"),
        ([data, "--test-run", 8], "test_run: the data have no run 8"),
        ([data, "--resplits", 2], "resplits: nothing is split"),
        ([data, "--from", "csv"], "--from: 'csv' is unknown: choose one of parquet"),
        ([data, "--defence", "x"], "the defence 'x' is unknown"),
        ([data, "--pages", 99], "pages: 99 are asked for, but the data have only 10"),
        ([data, "--every", "20p"], "--every: nothing is split without a schedule"),
        ([data, *["--delay", "0.1"] * 3], "--delay: nothing is split without a schedule"),
        ([data, "--folds", 3], "--folds: only the paper's protocol has folds"),
        ([data, "--protocol", "paper", "--test-run", 5], "--test-run: the paper's protocol"),
        ([data, "--monitored", 5], "--monitored: in a closed world"),
        ([data, "--unmonitored-y", 3], "unmonitored: files of the format parquet"),
        ([data, "--bootstrap", 10**15], "bootstrap: 1000000000000000 is not from 1 to"),
        ([data, "--seed", 2**64], "seed: 18446744073709551616"),
        ([data, "--parameter", "trees=5", "--parameter", "trees=6"], "trees is given twice"),
    ]
    for arguments, problem in cases:
        assert problem in describe(*arguments, "--out", out)
        assert sorted(tmp_path.iterdir()) == before
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "rows.parquet").mkdir()
    for name, problem in [
        ("no/out.json", "does not exist"),
        ("out.txt", "must end in .json"),
        ("folder.json", "cannot be written"),
        (f"{'x' * 300}.json", "File name too long"),
        ("rows.json", "rows.parquet: cannot be written"),
        ("lost.json", "lost.parquet: --out: the result's predictions would be written"),
    ]:
        assert problem in describe(data, "--out", tmp_path / name)
    said = describe(data, "--out", data.with_suffix(".json"))
    assert "pages.parquet: OUT is also IN" in said
    assert len(io.read(data)) == len(pages)


def test_a_missing_extra_says_what_to_install(data: Path) -> None:
    program = """
import sys
import anabranch.nets
anabranch.nets.find_spec = lambda name: None
from anabranch.cli import main
sys.argv = ["anabranch-lab", "evaluate", sys.argv[1], "--attack", "rf"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(data)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install './lab[nets]'" in done.stderr
    assert done.stderr.count("\n") == 1
