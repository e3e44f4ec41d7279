"""Captured page loads become traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from anabranch import io
from anabranch.camouflage import captures
from anabranch.validate import TraceError
from covertness.captures import PORT, Wire

FILE, KIND = "tor/000.pcap", "tor"


def line(site: str, began: float, ended: float, **more: Any) -> str:
    load = {"file": FILE, "kind": KIND, "server": f"198.51.100.1:{PORT}", "turn": 0}
    load |= {"monitored": True, "site": site, "began": began, "loaded": ended - 0.5, "ended": ended}
    return json.dumps(load | more) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two loads of one connection, 5 s apart, and packets that belong to neither."""
    (tmp_path / KIND).mkdir()
    wire = Wire().open(95.0, 0.1)
    wire.say(100.2, 0, b"a" * 100).say(100.4, 1, b"b" * 1000)
    wire.say(103.0, 1, b"c" * 10)
    wire.say(105.5, 0, b"d" * 200).say(105.75, 1, b"e" * 400).say(106.0, 1, b"f" * 300)
    wire.write(tmp_path / FILE, snap=96)
    (tmp_path / captures.LISTING).write_text(
        line("one", 100.0, 102.0) + line("two", 105.0, 107.0, monitored=False)
    )
    return tmp_path


def test_a_load_has_the_packets_between_its_moments(folder: Path) -> None:
    (kind,) = captures.traces(folder, captures.read(folder)).items()
    name, traces = kind
    assert name == KIND
    assert traces.labels.tolist() == ["one", "two"]
    assert traces.monitored.tolist() == [True, False]
    # Sizes are those of whole IP packets, although 96 bytes of each were captured.
    assert traces.sizes.tolist() == [140, -1040, 240, -440, -340]
    assert traces.times == pytest.approx([0.0, 0.2, 0.0, 0.25, 0.5])


def test_a_failed_load_is_counted_and_has_no_trace(folder: Path, tmp_path: Path) -> None:
    listing = folder / captures.LISTING
    listing.write_text(listing.read_text() + line("three", 110.0, 111.0, failed="timeout"))
    target = tmp_path / "traces"
    assert captures.write(folder, target) == [KIND]
    assert io.read(target / f"{KIND}.parquet").labels.tolist() == ["one", "two"]
    table = pq.read_table(target / captures.TABLE).to_pylist()
    assert [row["failed"] for row in table] == ["", "", "timeout"]
    assert table[0]["seconds"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("{", "line 3: the line is not JSON"),
        ('{"file": "a"}', "line 3: 'kind' is missing"),
        (line("three", 1.0, 2.0, more=1).strip(), "line 3: 'more' is not a key of this list"),
        (line("three", 1.0, 2.0, turn="first").strip(), "line 3: 'turn' is 'first'"),
        (line("three", 1.0, 2.0, turn=True).strip(), "line 3: 'turn' is True"),
        (line("three", 1.0, 2.0, monitored=1).strip(), "line 3: 'monitored' is 1"),
    ],
)
def test_a_wrong_line_is_named(folder: Path, wrong: str, why: str) -> None:
    listing = folder / captures.LISTING
    listing.write_text(listing.read_text() + wrong + "\n")
    with pytest.raises(TraceError, match=why):
        captures.read(folder)


def test_a_load_without_packets_is_refused(folder: Path) -> None:
    listing = folder / captures.LISTING
    listing.write_text(listing.read_text() + line("three", 200.0, 201.0))
    with pytest.raises(TraceError, match="no packet of the load of three"):
        captures.traces(folder, captures.read(folder))
