from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anabranch.covertness import features, forest, judge, manifest, page, servers
from anabranch.covertness.pair import Pair
from anabranch.metrics.bootstrap import Estimate
from anabranch.validate import TraceError
from covertness.captures import Wire, flow, noise


def visit(chance: np.random.Generator, *, random: bool, connections: int) -> Wire:
    """Returns a session: requests and responses in clear, or random bytes of the same lengths."""
    packets: list[tuple[float, bytes]] = []
    for number in range(connections):
        wire = Wire(packets, port=40_000 + number, numbers=[1, 1])
        time = 10.0 + 0.01 * number
        wire.open(time, rtt=0.085)
        for _ in range(int(chance.integers(1, 4))):
            time += float(chance.uniform(0.1, 0.3))
            body = chance.bytes(int(chance.integers(200, 1_400)))
            head = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
            head += b"Content-Length: %d\r\n\r\n" % len(body)
            asked = b"GET /a HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"
            wire.say(time, 0, chance.bytes(len(asked)) if random else asked)
            got = head + body
            wire.say(time + 0.09, 1, chance.bytes(len(got)) if random else got)
    return wire


def folder(at: Path, classes: dict[str, bool], sessions: int = 12) -> Path:
    lines = []
    for number, (name, random) in enumerate(classes.items()):
        (at / name).mkdir()
        for session in range(sessions):
            chance = np.random.default_rng([9, number, session])
            file = f"{name}/{session}.pcap"
            visit(chance, random=random, connections=4).write(at / file)
            lines.append({"file": file, "class": name, "site": f"{SITE}{session % 4}",
                          "session": session, "server": "198.51.100.1:80"})  # fmt: skip
    (at / manifest.NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return at


REAL = {"real-a": False, "real-b": False}
SITE = "s|"


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "TREES", 20)


def test_the_browser_is_not_told_from_itself_and_random_bytes_are_caught(tmp_path: Path) -> None:
    groups = judge.collect(manifest.read(folder(tmp_path, REAL | {"nosteg": True})))
    found = judge.judge(groups, 100, 1)
    areas = {(each.name, each.features, each.apart, each.after): each.area for each in found.scores}
    own, ours = areas["real-b", "all", "site", 1], areas["nosteg", "all", "site", 1]
    assert own is not None
    assert own.low <= 0.5
    assert ours is not None
    assert ours.value > 0.98
    server = areas["nosteg", "all", "site", 10]
    assert server is not None
    assert server.value == 1.0
    assert areas["nosteg", "all", "site", 100] is None
    assert all(each.rate is None for each in found.scores)  # 96 negatives
    said = page.findings(found)
    assert said[0].startswith("**nosteg: recognised.** Area for one connection ")
    assert "; 100 connections too few; totals of a session " in said[0]
    (hit,) = (line for line in said if line.startswith("nosteg: 'fully encrypted' matches "))
    assert hit.endswith(" of 48, as it must.")
    assert "No fixed detector matches a connection of the browser." in said
    text = page.document(found, "a command")
    assert text.index("Recognised classes") < text.index("Controls") < text.index("Fixed detectors")
    assert "| nosteg | 100 connections | 48/96 | too few |" in text
    assert "| too few negatives (needs 10,000) |" in text
    assert page.NO_ROWS in " ".join(text.split())


def test_requests_are_of_the_browser_as_one_and_of_every_other_class_in_clear(
    tmp_path: Path,
) -> None:
    at = folder(tmp_path, REAL | {"http-a": False, "nosteg": True}, sessions=4)
    found = judge.judge(judge.collect(manifest.read(at)), 20, 1).requests
    sizes = [(each.name, each.connections, each.gets) for each in found]
    assert sizes == [("real-a, real-b", 32, (41.0,) * 5), ("http-a", 16, (41.0,) * 5)]


def test_the_sites_of_two_classes_are_drawn_together_and_no_session_is_in_two_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forest is tested on connections of sites and visits outside its training set."""
    asked: list[tuple[int, np.ndarray]] = []
    whole = forest.scores

    def scores(of: np.ndarray, positive: np.ndarray, groups: np.ndarray, seed: int) -> np.ndarray:
        asked.append((of.shape[1], groups))
        return whole(of, positive, groups, seed)

    monkeypatch.setattr(forest, "scores", scores)
    groups = judge.collect(manifest.read(folder(tmp_path, REAL | {"nosteg": True})))
    two = Pair(groups["nosteg"], [groups[name] for name in REAL], 20, 1)
    list(two.scores("nosteg"))
    for _, own in asked:
        for visit in range(12):  # one visit, by every class: one group
            rows = two.number[two.of] if own.size == two.of.size else two.number
            assert np.unique(own[rows == visit]).size == 1
    assert [np.unique(own).size for _, own in asked] == [4, 12, 4, 12, 4]
    assert np.unique(two.sample.site).size == 4


def test_a_set_up_that_leaks_and_a_broken_detector_are_said_first(tmp_path: Path) -> None:
    groups = judge.collect(
        manifest.read(folder(tmp_path, {"real-a": False, "real-b": True, "obfs4": False}))
    )
    said = page.findings(judge.judge(groups, 50, 1))
    assert said[0].startswith("**The measurement has a fault**")
    broken = [line for line in said if line.startswith("**The detector 'fully encrypted' is")]
    assert len(broken) == 1
    assert "0 of 48 connections of obfs4" in broken[0]
    assert said.index(broken[0]) < min(said.index(line) for line in said if "recognised." in line)
    assert any(line.startswith("**False alarms**: real-b: 'fully") for line in said)
    assert not any("No forest distinguishes" in line for line in said)


@pytest.mark.parametrize(
    ("area", "said"),
    [
        (Estimate(0.7, 0.51, 0.8), "**The measurement has a fault**"),
        (Estimate(0.3, 0.2, 0.49), "**The control fails**"),
        (
            Estimate(0.6, 0.5, 0.7),
            "No forest distinguishes the browser from itself: .5 lies within each of",
        ),
    ],
)
def test_the_control_says_where_a_half_lies(tmp_path: Path, area: Estimate, said: str) -> None:
    at = folder(tmp_path, REAL, sessions=4)
    found = judge.judge(judge.collect(manifest.read(at)), 20, 1)
    for place, each in enumerate(found.scores):
        found.scores[place] = replace(each, area=area)
    assert page.findings(found)[0].startswith(said)


def test_tls_that_is_not_found_within_tls_is_a_broken_detector(tmp_path: Path) -> None:
    at = folder(tmp_path, REAL | {"webtunnel": True})
    said = page.findings(judge.judge(judge.collect(manifest.read(at)), 20, 1))
    (broken,) = (line for line in said if line.startswith("**The detector 'TLS in TLS' is"))
    assert "it matches 0 of 48 connections of webtunnel" in broken
    assert said.index(broken) < min(said.index(line) for line in said if "recognised." in line)


def test_names_do_not_break_a_row(tmp_path: Path) -> None:
    at = folder(tmp_path, REAL | {"http-a|b*c": True})
    text = page.document(judge.judge(judge.collect(manifest.read(at)), 20, 1), "a command")
    rows = [line for line in text.splitlines() if line.startswith("| http-a")]
    assert len(rows) > 10
    assert all(row.startswith(r"| http-a\|b\*c |") for row in rows)
    assert r"**http-a\|b\*c: recognised.**" in text
    assert "first packets of HTTP: **missed**" in text


def test_captures_for_detectors_count_for_them_alone(tmp_path: Path) -> None:
    at = folder(tmp_path, REAL, sessions=4)
    text = (at / manifest.NAME).read_text().splitlines()
    last = json.loads(text[-1]) | {"for": "detectors"}
    del last["site"], last["session"]
    (at / manifest.NAME).write_text("\n".join([*text[:-1], json.dumps(last)]))
    groups = judge.collect(manifest.read(at))
    assert len(groups["real-b"].sessions) == 3
    assert len(groups["real-b"].firsts) == 16


ONE = '{"file": "a", "class": "b", "site": "c", "session": 1}'
OTHER = ONE.replace('"a", "class": "b", "site": "c"', '"d", "class": "e", "site": "f"')
AGAIN = ONE.replace('"a"', '"d"')


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1: the line is not JSON"),
        ("[]", "the line is not a JSON object"),
        ('{"file": "a", "class": "b", "site": "c"}', "'session' is missing"),
        ('{"file": "a", "class": "b", "site": "c", "session": "1"}', "not a whole number"),
        ('{"file": "a", "class": "b", "site": "c", "session": 1, "x": 1}', "'x' is not a key"),
        ('{"file": "a", "class": "b", "site": "c", "session": 1, "server": "a"}', "'server'"),
        (
            '{"file": "a", "class": "b", "site": "c", "session": 1, "for": "me"}',
            "is 'me': expected",
        ),
        (f"{ONE}\n\n{ONE}", "line 3: the file is listed twice"),
        (f"{ONE}\n{AGAIN}", "line 2: an earlier line has the same class and session"),
        (f"{ONE}\n{OTHER}", "line 2: an earlier line has this session for another site"),
        ("", "lists no captures"),
    ],
)
def test_a_manifest_that_is_wrong_is_one_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / manifest.NAME).write_text(line)
    with pytest.raises(TraceError, match=said) as error:
        manifest.read(tmp_path)
    assert "manifest.jsonl" in str(error.value)


def test_the_command_writes_both_files_or_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    at = folder(tmp_path / "in", REAL, sessions=2)
    command = [sys.executable, "-c", "from anabranch.cli import main; main()", "covertness"]
    rest = ["--markdown", str(tmp_path / "a.md"), "--out", str(tmp_path / "a.json")]
    rest += ["--bootstrap", "20"]
    done = subprocess.run([*command, str(at), *rest], capture_output=True, text=True, check=True)
    assert "itself" in done.stdout
    assert {*json.loads((tmp_path / "a.json").read_text())} == {
        "captures", "hits", "told", "distances", "requests",
    }  # fmt: skip
    text = (tmp_path / "a.md").read_text()
    assert text.startswith(page.BEGIN)
    assert "All numbers are in `a.json`." in text
    assert page.NO_ROWS not in text
    file = at / "real-b/0.pcap"
    file.write_bytes(file.read_bytes()[:30])
    done = subprocess.run([*command, str(at), *rest], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "real-b/0.pcap: the packet at byte" in done.stderr


def test_detectors_alone_need_no_browser(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    at = folder(tmp_path / "in", {"obfs4": True}, sessions=2)
    command = [sys.executable, "-c", "from anabranch.cli import main; main()", "covertness"]
    rest = [str(at), "--detectors", "--out", str(tmp_path / "a.json")]
    done = subprocess.run([*command, *rest], capture_output=True, text=True, check=True)
    assert "| obfs4 |" in done.stdout
    hits = {
        each["detector"]: each for each in json.loads((tmp_path / "a.json").read_text())["hits"]
    }
    assert hits["not printable"]["hits"] >= 7
    assert hits["not printable"]["connections"] == 8
    done = subprocess.run([*command, *rest, "--markdown", "a.md"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_features_are_as_many_as_their_names_and_say_what_they_say() -> None:
    first = flow(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", [27, -1000, -500, 27, -10],
                 [0.1, 0.3, 0.4, 1.0, 1.2], down=b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n")  # fmt: skip
    second = flow(noise(100), began=0.5, ended=2.0)
    rows = features.matrix([[first, second]])
    assert rows.shape == (2, len(features.NAMES))
    named = dict(zip(features.NAMES, rows[0], strict=True))
    assert named["duration"] == pytest.approx(1.2)
    assert (named["bytes up"], named["bytes down"]) == (54, 1510)
    assert named["payload a packet, up"] == 27
    assert [named[f"size {place}"] for place in (1, 2, 5)] == [27, -1000, -10]
    assert named["gap 2"] == pytest.approx(0.2)
    assert (named["turns"], named["requests"], named["headers of a request"]) == (2, 1, 1)
    assert (named["others at its start"], named["others at a time"]) == (0, 1)
    assert named["answer's delay without the RTT, shortest"] == pytest.approx(0.1)
    other = dict(zip(features.NAMES, rows[1], strict=True))
    assert (other["others at its start"], other["since the one before"]) == (1, 0.5)
    assert other["requests"] == 0
    totals = dict(zip(servers.NAMES, servers.totals([[first, second]])[0], strict=True))
    assert (totals["connections"], totals["most at a time"], totals["span"]) == (2, 2, 2.0)
    assert (totals["bytes up"], totals["requests"]) == (154, 1)


def test_a_connection_without_payload_has_features() -> None:
    row = features.matrix([[flow(b"", [])]])
    assert row.shape == (1, len(features.NAMES))
    assert servers.totals([[flow(b"", [])]]).shape == (1, len(servers.NAMES))
