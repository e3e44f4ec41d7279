"""Evaluations of a folder of traces, and their page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from anabranch import io
from anabranch.camouflage import captures, folds, judge, numbers, page
from anabranch.camouflage.captures import TABLE
from anabranch.cli import app
from anabranch.metrics import Outcomes
from anabranch.traces import Builder, Traces
from anabranch.validate import TraceError

SITES = {"a": 30, "b": 60, "c": 120}
KINDS = ("ssh", "tor", "tor-http-site-a", "tor-http-site-b")


def made(factor: float, turns: int = 6, *, equal: bool = False) -> Traces:
    """Returns loads of three sites and of other pages, with lengths times `factor`."""
    chance = np.random.default_rng(round(factor * 100))
    builder = Builder()
    for turn in range(turns):
        loads = dict(SITES) | {f"other {turn}": int(chance.integers(200, 400))}
        for name, length in loads.items():
            count = int((60 if equal else length) * factor) + int(chance.integers(0, 4))
            sizes = np.where(chance.random(count) < 0.2, 300, -1500)
            times = np.sort(chance.random(count))
            builder.add(name, times, sizes, run=turn, monitored=name in SITES)
    return builder.build()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = []
    for number, kind in enumerate(KINDS):
        traces = made(1 + number)
        io.write(traces, tmp_path / f"{kind}.parquet")
        rows += [
            {"kind": kind, "turn": int(run), "monitored": bool(monitored), "site": site,
             "failed": "", "seconds": 1.5}
            for run, monitored, site in zip(
                traces.run, traces.monitored, traces.labels.tolist(), strict=True
            )
        ]  # fmt: skip
    rows[0]["failed"] = "timeout"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / TABLE)
    return tmp_path


def test_training_is_on_the_same_the_plain_tunnel_and_the_other_database() -> None:
    assert list(judge.pairs(KINDS)) == [
        ("ssh", "ssh"),
        ("tor", "tor"),
        ("tor-http-site-a", "tor-http-site-a"),
        ("tor", "tor-http-site-a"),
        ("tor-http-site-b", "tor-http-site-a"),
        ("tor-http-site-b", "tor-http-site-b"),
        ("tor", "tor-http-site-b"),
        ("tor-http-site-a", "tor-http-site-b"),
    ]


def test_every_load_is_predicted_once_by_an_attack_of_other_turns() -> None:
    closed = predictions(made(1)[made(1).monitored])
    assert len(closed) == 18
    assert np.unique(closed.load).size == 18
    assert closed.right.mean() > 0.9
    opened = predictions(made(1))
    assert opened.monitored.sum() == 18
    assert (~opened.monitored).sum() == 6
    assert (opened.rest[~opened.monitored] > 0.5).mean() > 0.8


def test_sites_that_are_alike_are_not_named() -> None:
    traces = made(1, turns=12, equal=True)
    assert predictions(traces[traces.monitored]).right.mean() < 0.7


def test_an_attack_is_not_trained_on_turns_that_test_it() -> None:
    """Each turn is in one fold; an attack of loads that differ by turn alone learns nothing."""
    parts = folds.folds_of([3, 1, 1, 7, 9, 5, 2])
    assert sorted(np.concatenate(parts).tolist()) == [1, 2, 3, 5, 7, 9]
    assert len(parts) == folds.FOLDS
    assert len(folds.folds_of([4, 5])) == 2
    builder = Builder()
    chance = np.random.default_rng(3)
    for turn in range(8):
        for name in SITES:
            length = int(chance.integers(30, 300))
            for _ in range(3):
                builder.add(name, np.arange(length) / 100, np.full(length, -1500), run=turn)
    assert predictions(builder.build()).right.mean() < 0.7


def test_a_kind_may_lack_turns_of_others() -> None:
    traces = made(1)
    parts = folds.folds_of(traces.run.tolist())
    attacks = folds.trained("k-fp", {"trees": 20}, traces, parts)
    few = traces[traces.run < 2]
    assert len(folds.predicted(attacks, few, parts)) == len(few)


def predictions(traces: Traces) -> Outcomes:
    parts = folds.folds_of(traces.run.tolist())
    attacks = folds.trained("k-fp", {"trees": 20}, traces, parts)
    return folds.predicted(attacks, traces, parts)


def test_results_are_kept_and_made_again_for_other_data(folder: Path) -> None:
    ran: list[judge.Task] = []
    first = judge.judge(folder, ["k-fp"], ran.append)
    assert len(first) == len(ran) == 8 + 8 + 4
    lines = (folder / judge.RESULTS).read_text().splitlines()
    assert [json.loads(line) for line in lines] == first
    assert judge.judge(folder, ["k-fp"], ran.append) == first
    assert (folder / judge.RESULTS).read_text().splitlines() == lines
    io.write(made(9), folder / "ssh.parquet")
    judge.judge(folder, ["k-fp"], ran.append)
    again = (folder / judge.RESULTS).read_text().splitlines()
    # Those of ssh alone are made again: the paper's classifier, closed and open.
    assert len(again) == len(lines)
    assert len(set(again) - set(lines)) == 3
    assert all(json.loads(line)["tested"] == "ssh" for line in set(again) - set(lines))


def test_results_of_other_attacks_are_kept(folder: Path) -> None:
    (folder / "tor.parquet").unlink()
    (folder / "tor-http-site-b.parquet").unlink()
    first = judge.judge(folder, ["k-fp"], lambda _: None)
    both = judge.judge(folder, ["rocket"], lambda _: None)
    assert [row for row in both if row["attack"] in ("", "k-fp")] == first
    assert {row["attack"] for row in both} == {"", "k-fp", "rocket"}


def test_a_broken_list_of_results_and_a_folder_without_traces_are_named(tmp_path: Path) -> None:
    (tmp_path / judge.RESULTS).write_text("{}\n")
    with pytest.raises(TraceError, match="not a list of results"):
        judge.read(tmp_path)
    with pytest.raises(TraceError, match="--captures"):
        captures.kinds(tmp_path)


def test_the_page_has_every_number(folder: Path) -> None:
    document = folder / "page.md"
    document.write_text(f"# Mine\n\n{page.BEGIN}\nold\n{page.END}\n\nMore.\n")
    command = ["camouflage", str(folder), "--attack", "k-fp", "--markdown", str(document)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    text = document.read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("\nMore.\n")
    assert "old" not in text
    for row in judge.read(folder):
        own = row["numbers"]
        if row["measure"] == "sums":
            assert numbers.area(own["mean"]) in text
        elif row["measure"] == "closed":
            assert numbers.share(own["accuracy"]) in text
        else:
            assert numbers.share(own["recall"]) in text
            assert numbers.share(own["false_positive_rate"]) in text
    assert "| ssh | 18 | 6 | 1 | 1.5 |" in text
    assert "MiniRocket" not in text


def test_an_unknown_attack_is_refused(folder: Path) -> None:
    done = CliRunner().invoke(app, ["camouflage", str(folder), "--attack", "df"])
    assert done.exit_code != 0
    assert "k-fp, rocket, rf" in str(done.exception)
