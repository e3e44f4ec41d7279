"""`anabranch experiment pages` with Chromium, wireguard-go and Caddy, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from conftest import Results
from harness.experiment import NOWHERE, Experiment, need
from harness.tools import anabranch

pytestmark = pytest.mark.experiments

PEERS = ("wireguard-go", "wg", "chromium", "caddy")
# Numbers of loads, monitored pages and other pages in the short form.
LOADS, MONITORED, OTHERS = 2, 5, 4
PAGES = dict.fromkeys(("first", "second.js", "third", "fourth", "fifth"), True) | dict.fromkeys(
    ("other", "one.more", "and-another", "last"), False
)
# Every load uses all paths to the server; with the weighted schedule a short load may not.
SCHEDULE = ["--split=--schedule=round-robin", "--split=--every=10p"]


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """Returns a web of nine small sites; each also requests from other hosts, which have no
    address.
    """
    folder = tmp_path / "web"
    for number, (name, monitored) in enumerate(PAGES.items(), 1):
        _site(folder, name, monitored, objects=4 * number, size=40_000)
    return folder


@pytest.mark.timeout(600)
def test_a_set_is_killed_goes_on_and_holds_every_load_once(
    web: Path, tmp_path: Path, results: Results
) -> None:
    """Loads made before a SIGKILL are kept; both traces contain each load once."""
    need(*PEERS)
    folder = tmp_path / "set"
    experiment = Experiment("pages", folder, ["--web", str(web), "--short", *SCHEDULE])
    begun = time.monotonic()
    killed = experiment.start()
    experiment.wait_records(2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    done = experiment.records()
    assert not (folder / "split.parquet").exists()

    experiment.must()
    results.three_minutes(experiment.name, time.monotonic() - begun)
    records = experiment.records()
    assert records[: len(done)] == done
    good = [record for record in records if not record["error"]]
    units = [record["unit"] for record in good]
    assert len(units) == len(set(units)) == 2 * (MONITORED * LOADS + OTHERS)
    for record in good:
        _is_sound(record)
    # On the downlink the server uses the path of the client's latest packet.
    split = [record["down"] for record in good if record["mode"] == "split"]
    assert min(sum(path) for path in zip(*split, strict=True)) > 2000
    for mode in ("split", "undefended"):
        _trace_is_the_same(folder, mode, records)
    table = pq.read_table(folder / "loads.parquet").to_pylist()
    assert [row["label"] for row in table] == [record["site"] for record in records]
    sheet = (folder / "DATASHEET.md").read_text()
    assert "No third parties" in sheet
    used = [sum(size > 0 for size in down) for down in split]
    assert f"{used.count(2)} by 2, {used.count(3)} by 3." in sheet
    assert "split and undefended" in (folder / "pages.html").read_text()
    for mode in ("split", "undefended"):
        took = [record["took"] for record in good if record["mode"] == mode]
        event = [record["seconds"] for record in good if record["mode"] == mode]
        results.add("experiment pages, seconds", mode=mode, load=max(event), whole=max(took))


@pytest.mark.timeout(300)
def test_pages_that_never_load_are_recorded_tried_again_and_told(tmp_path: Path) -> None:
    """Each failing page is tried three times, split and undefended; no trace contains it."""
    need(*PEERS)
    web = tmp_path / "web"
    for name in ("stuck", "stuck-too"):
        _site(web, name, True, objects=1, size=1000, script="while (true) {}")
    form = ["--monitored", "2", "--unmonitored", "0", "--loads", "1", "--patience", "3"]
    experiment = Experiment("pages", tmp_path / "set", ["--web", str(web), *form])
    ran = experiment.run()
    assert ran.returncode == 1
    assert "4 of 4 page loads failed 3 times each" in ran.stderr
    records = experiment.records()
    assert [record["attempt"] for record in records] == [1] * 4 + [2] * 4 + [3] * 4
    assert {record["error"] for record in records} == {"the page had no load event within 3 s"}
    assert not (experiment.folder / "split.parquet").exists()
    assert pq.read_table(experiment.folder / "loads.parquet").num_rows == 12


def test_what_is_missing_is_named_and_nothing_is_made(web: Path, tmp_path: Path) -> None:
    """A missing web, too few pages, and missing programs are reported; nothing is written."""
    need(*PEERS)
    experiment = Experiment("pages", tmp_path / "set")
    nowhere = experiment.run("--web", str(tmp_path / "nowhere"))
    assert nowhere.returncode == 2
    assert "sites.toml" in nowhere.stderr
    assert "make web" in nowhere.stderr
    there = Experiment("pages", tmp_path / "set", ["--web", str(web)])
    few = there.run("--monitored", "6", "--unmonitored", "1")
    assert few.returncode == 2
    assert "has 5 monitored sites, 6 are wanted" in few.stderr
    bare = there.run("--monitored", "1", "--unmonitored", "0", **NOWHERE)
    assert bare.returncode == 2
    for name in ("chromium", "wireguard-go", "tests/interop/setup"):
        assert name in bare.stderr
    assert not experiment.folder.exists()


def _site(
    web: Path, name: str, monitored: bool, *, objects: int, size: int, script: str = ""
) -> None:
    """Makes a page of ``objects`` scripts of ``size`` bytes, and two requests to other hosts, one
    of which the browser refuses itself.
    """
    site = web / name
    site.mkdir(parents=True)
    tags = [f"<script src=o{n}.js></script>" for n in range(objects)]
    third = "<img src=https://third.example/x.png><script src=http://fourth.example/x.js></script>"
    page = f"<!doctype html><title>{name}</title>{''.join(tags)}{third}<script>{script}</script>"
    (site / "index.html").write_text(page)
    for n in range(objects):
        (site / f"o{n}.js").write_text(f"// {os.urandom(size // 2).hex()}\n")
    with (web / "sites.toml").open("a") as file:
        file.write(f'[[site]]\nname = "{name}"\nmonitored = {str(monitored).lower()}\n')
        file.write(f'page = "index.html"\nfiles = {objects + 1}\nbytes = {objects * size}\n')


def _is_sound(record: dict[str, Any]) -> None:
    """Asserts that a load was complete, and used all paths if it was split."""
    objects = 4 * (1 + list(PAGES).index(record["site"]))
    # Requests: the objects, the page, two to other hosts, and the icon that browsers request.
    assert record["requests"] == objects + 4, record
    assert record["refused"] == 2, record
    split = record["mode"] == "split"
    assert len(record["down"]) == (3 if split else 1)
    # Compression reduces text of hexadecimal digits to little more than half.
    assert sum(record["down"]) > 0.5 * objects * 40_000, record
    if split:
        assert min(record["up_packets"]) >= 5, record


def _trace_is_the_same(folder: Path, mode: str, records: list[dict[str, Any]]) -> None:
    trace = folder / f"{mode}.parquet"
    assert pq.read_schema(trace).metadata[b"anabranch.schema"] == b"1"
    rows = pq.read_table(trace)
    seen = rows.group_by(["load", "label", "monitored", "run", "path"]).aggregate([("size", "sum")])
    found = {(row["load"], row["path"]): row for row in seen.to_pylist()}
    expected = [(n, r) for n, r in enumerate(records) if r["mode"] == mode and not r["error"]]
    assert {load for load, _ in found} == {number for number, _ in expected}
    for number, record in expected:
        for path, (up, down) in enumerate(zip(record["up"], record["down"], strict=True)):
            if up or down:
                row = found[number, path]
                assert row["size_sum"] == up - down
                assert row["label"] == record["site"]
                assert row["monitored"] == PAGES[record["site"]]
                assert row["run"] == record["repetition"]
    told = subprocess.run(
        [anabranch(), "report", str(trace), "--json"], capture_output=True, check=True
    )
    assert len(json.loads(told.stdout)["summary"]["sessions"]) == len(expected)
