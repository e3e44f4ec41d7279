"""Recognition against cost: invented collections with known fronts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.report import costs, fronts, page, summary
from anabranch.report.collection import Collection
from anabranch.report.costs import PADDING, SPLIT, Panel, Point
from anabranch.report.drawing import Figure
from anabranch.report.markdown import document
from anabranch.report.tables import Table
from anabranch.results import Result
from report.conftest import result, save_all


def made(
    value: float, added: float = 0.0, time: float = 0.0, *, within: float = 0.03, **settings: Any
) -> Result:
    """Returns a result with a value, its interval `within` on both sides, and costs."""
    found = result(value, **({"attack": "rocket"} | settings))
    (fold,) = found.facts["folds"]
    if fold["overhead"] is not None:
        fold = fold | {"overhead": fold["overhead"] | {"bandwidth": added, "time": time}}
    accuracy = {"value": value, "low": value - within, "high": value + within}
    facts, metrics = found.facts | {"folds": [fold]}, found.metrics | {"accuracy": accuracy}
    return replace(found, facts=facts, metrics=metrics)


def split(value: float, every: str, *prices: float, **settings: Any) -> Result:
    """Returns a result of a split, by the observer of the fullest path."""
    ours: dict[str, Any] = {"schedule": "uniform", "every": every, "paths": 3}
    return made(value, *prices, **(ours | {"observer": "largest"} | settings))


def collected(found: list[Result], folder: Path, *, paper: bool = False) -> Collection:
    return Collection.read([save_all(found, folder)], paper=paper)


def only(found: list[Result], folder: Path) -> Panel:
    (panel,) = costs.panels(collected(found, folder))
    return panel


def names(points: list[Point]) -> list[str]:
    return [str(point.setting) for point in points]


def of(panel: Panel, defence: str) -> Point:
    (point,) = (each for each in panel.of(PADDING) if each.setting.defence == defence)
    return point


def test_the_front_has_what_nothing_of_its_kind_beats(tmp_path: Path) -> None:
    found = [
        split(0.40, "50ms"),
        split(0.41, "100ms"),  # as expensive as the first, and recognised more
        split(0.30, "50ms", 0.0, 0.01, defence="jitter:0-20ms"),
        split(0.35, "50ms", 0.0, 0.02, defence="jitter:0-50ms"),  # more expensive, and no better
        split(0.20, "50ms", 0.0, 0.02, defence="jitter:0-40ms"),
        split(0.25, "50ms", 0.0, 0.02, defence="jitter:0-30ms"),  # the delay alone is less
        split(0.10, "50ms", 0.1, 0.0, path_defence="decoys:10%"),
        split(0.10, "20ms", 0.2, 0.0, path_defence="decoys:20%"),  # more expensive, and as good
        made(0.70, 0.3, 0.0, defence="front"),
        made(0.80, 0.2, 0.0, defence="wtf-pad"),
        made(0.75, 0.4, 0.0, defence="maybenot:interspace"),
        made(0.60, 0.1, 2.0, defence="maybenot:tamaraw"),
        made(0.95),
    ]
    panel = only(found, tmp_path / "a")
    assert names(panel.front()) == [
        "jitter:0-40ms + UR 50 ms × 3",
        "jitter:0-30ms + UR 50 ms × 3",
        "jitter:0-20ms + UR 50 ms × 3",
        "UR 50 ms × 3",
        "undefended",
        "UR 50 ms × 3 + decoys:10% on each path",
        "maybenot:tamaraw",
        "WTF-PAD",
        "FRONT",
    ]
    assert fronts.steps(panel.of(SPLIT)) == ([0.0, 0.1], [0.2, 0.1])
    assert fronts.steps(panel.of(PADDING)) == ([0.1], [0.6])
    front, _ = costs.tables([panel])
    assert [row[1].text for row in front.rows] == names(panel.front())
    first = [cell.text or cell.values[0].text for cell in front.rows[0]]
    assert first[2:8] == ["split by us", "20.0 %", "MiniRocket + LDA", "0.0 %", "2.0 %", "20 ms"]
    shaped = front.rows[6]
    assert shaped[7].values[0].text == "not measured"
    assert front.rows[7][7].values[0].text == "0 ms"
    assert of(panel, "maybenot:interspace").cost.delay == (0.0, 0.0), "no load ends later"


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (0.30, 0.37, costs.BELOW),
        (0.30, 0.35, costs.ALIKE),  # the point lies below, the intervals overlap
        (0.35, 0.30, costs.ALIKE),
        (0.37, 0.30, costs.ABOVE),
    ],
)
def test_ours_is_below_where_its_whole_interval_is(
    ours: float, theirs: float, verdict: str, tmp_path: Path
) -> None:
    found = [split(ours, "50ms"), made(theirs, 0.1, 0.0, defence="front"), made(0.9)]
    panel = only(found, tmp_path / "a")
    assert panel.verdict(of(panel, "front")) == verdict
    _, table = costs.tables([panel])
    (row,) = table.rows
    assert row[-1].text == verdict
    (said,) = list(costs.findings(collected(found, tmp_path / "b")))[2:]
    beaten = "recognised less than 1 of" if verdict == costs.BELOW else "less than none of"
    assert f"{beaten} 1 defence" in said
    beside = f"FRONT {100 * theirs:.1f} % ({100 * theirs - 3:.1f}–{100 * theirs + 3:.1f})"
    assert (f"{verdict.capitalize()}: {beside}, compared with UR 50 ms × 3" in said) == (
        verdict != costs.BELOW
    )
    assert ("(FRONT)" in said) == (verdict == costs.BELOW)


def test_ours_costs_at_most_what_the_defence_does(tmp_path: Path) -> None:
    """In bytes, in time and in delay; each of the three by itself excludes a setting."""
    bytes_, time, delay = (
        split(0.10, "50ms", 0.30, 0.00, path_defence="decoys:20%"),
        split(0.20, "50ms", 0.00, 0.05, defence="jitter:0-50ms"),
        split(0.30, "50ms", 0.00, 0.02, defence="jitter:0-30ms"),
    )
    found = [
        split(0.40, "50ms"),
        bytes_,
        time,
        delay,
        made(0.80, 0.29, 0.0, defence="front"),
        made(0.81, 0.30, 0.0, defence="wtf-pad"),
        made(0.82, 0.29, 0.049, defence="maybenot:tamaraw"),
        made(0.83, 0.29, 0.05, defence="maybenot:regulator"),
        made(0.84, 0.0, 0.2, defence="jitter:0-20ms"),
        made(0.85, 0.0, 0.2, defence="jitter:0-30ms,ends=client"),
        made(0.86, 0.0, 0.2, defence="jitter:10-20ms"),
        made(0.9),
    ]
    panel = only(found, tmp_path / "a")

    def best(defence: str) -> float:
        ours = panel.best(of(panel, defence))
        return -1.0 if ours is None else ours.value

    assert best("front") == 0.40
    assert best("wtf-pad") == 0.10
    assert best("maybenot:tamaraw") == 0.30, "how long it holds a packet is not known"
    assert best("maybenot:regulator") == 0.20
    assert best("jitter:0-20ms") == 0.40
    assert best("jitter:0-30ms,ends=client") == 0.40, "the server's packets are not delayed"
    assert best("jitter:10-20ms") == 0.30


def test_costs_compare_as_they_are_shown(tmp_path: Path) -> None:
    """0.04 % of time is 0.0 %, 0.06 % is 0.1 %."""
    for number, (time, verdict) in enumerate([(0.0004, costs.BELOW), (0.0006, costs.NONE)]):
        ours = split(0.2, "50ms", 0.0, time, path_defence="decoys:10%")
        found = [ours, made(0.8, 0.0, 0.0, defence="front")]
        panel = only(found, tmp_path / f"{number}")
        assert panel.verdict(of(panel, "front")) == verdict
        _, table = costs.tables([panel])
        assert all(len(row) == len(table.header) for row in table.rows)
        assert table.rows[0][-1].text == verdict


def test_what_most_settings_were_attacked_by_judges(tmp_path: Path) -> None:
    size: dict[str, Any] = {"attack": "size"}
    found = [
        split(0.40, "50ms"),
        split(0.50, "50ms", **size),  # the stronger one on this setting
        split(0.45, "20ms"),
        split(0.10, "20ms", **size),
        split(0.30, "100ms"),  # not attacked by the size: unknown
        split(0.90, "20ms", attack="rf"),
        split(0.60, "50ms", seed=1),
        made(0.80, 0.1, defence="front"),
        made(0.20, 0.1, defence="front", **size),
        made(0.90, 0.2, defence="wtf-pad"),
        made(0.95, 0.2, defence="wtf-pad", **size),
        made(0.85, 0.1, defence="maybenot:interspace"),
    ]
    panel = only(found, tmp_path / "a")
    assert panel.judges == (("rocket", 0), ("size", 0))
    values = {str(point.setting): point.value for point in panel.points}
    assert values == {"UR 50 ms × 3": 0.5, "UR 20 ms × 3": 0.45, "FRONT": 0.8, "WTF-PAD": 0.95}
    others = {str(point.setting): point.other for point in panel.points if point.other}
    found_by = {name: (each.spec.attack.name, each.spec.seed) for name, each in others.items()}
    assert found_by == {"UR 20 ms × 3": ("rf", 0), "UR 50 ms × 3": ("rocket", 1)}
    assert sorted(map(str, panel.left)) == ["UR 100 ms × 3", "maybenot:interspace"]
    *_, said = costs.findings(collected(found, tmp_path / "b"))
    assert "Not tested with all of these attacks: " in said
    assert "UR 100 ms × 3" in said
    front, _ = costs.tables([panel])
    (row,) = (each for each in front.rows if each[1].text == "UR 20 ms × 3")
    assert row[-1].values[0].text == "90.0 %"
    assert row[-1].values[0].design.startswith("RF")


def test_an_attack_judges_where_half_of_both_kinds_have_it(tmp_path: Path) -> None:
    lengths, defences = ("20ms", "50ms", "100ms"), ("front", "wtf-pad", "maybenot:interspace")
    found = [split(0.4, every, attack=name) for every in lengths for name in ("rocket", "k-fp")]
    found += [made(0.8, 0.1, defence=defence) for defence in defences]
    found += [split(0.9, "20ms", attack="rf"), made(0.9, 0.1, defence="front", attack="rf")]
    found += [made(0.9, 0.1, defence="front", attack="size")]
    panel = only(found, tmp_path / "a")
    assert panel.judges == (("rocket", 0),), "k-FP judged ours alone, RF and size too few"
    more = made(0.9, 0.1, defence="wtf-pad", attack="k-fp")
    found += [more, replace(more, spec=more.spec.changed(defence="front"))]
    assert only(found, tmp_path / "b").judges == (("k-fp", 0), ("rocket", 0))
    # The twin: no attack on both.
    apart = [split(0.4, "20ms"), made(0.8, 0.1, defence="front", attack="size")]
    assert not costs.panels(collected(apart, tmp_path / "c"))


def test_results_that_do_not_compare_are_no_points(tmp_path: Path) -> None:
    plain = [split(0.4, "50ms"), made(0.8, 0.1, defence="front"), made(0.9)]
    recorded = made(0.05)
    others = [
        split(0.05, "20ms", observer="random"),
        split(0.06, "20ms", observer="largest+counter"),
        split(0.07, "20ms", loads=40),
        split(0.08, "20ms", pages=5),
        split(0.09, "20ms", delays=[0.0, 0.1, 0.2]),  # the cost of these is unknown
        split(0.09, "20ms", 0.0, 0.0, defence="jitter:0-20ms", delays=[0.0, 0.1, 0.2]),
        split(0.10, "20ms", protocol="paper"),
        made(0.06, 0.0, defence="wtf-pad", protocol="paper"),
        replace(recorded, facts=recorded.facts | {"recorded_split": "2 paths"}),
    ]
    panel = only([*plain, *others], tmp_path / "a")
    assert names(panel.front()) == ["UR 50 ms × 3", "undefended", "FRONT"]
    assert not panel.left
    # Each data set separately.
    elsewhere = [replace(each, data="e" * 64) for each in plain[:2]]
    two = costs.panels(collected([*plain, *elsewhere], tmp_path / "b"))
    assert [len(panel.points) for panel in two] == [3, 2]
    figures = fronts.figures(collected([*plain, *elsewhere], tmp_path / "b"), "")
    assert figures[0].svg.count("bytes added, %") == 2


@pytest.mark.parametrize("paper", [True, False])
def test_without_both_kinds_there_is_no_section(paper: bool, tmp_path: Path) -> None:
    ours = [split(0.4, "50ms"), split(0.3, "50ms", 0.0, 0.1, defence="jitter:0-20ms"), made(0.9)]
    theirs = made(0.8, 0.1, defence="front")
    for number, found in enumerate((ours, [theirs, made(0.9)], [*ours, theirs])):
        collection = collected(found, tmp_path / f"{number}", paper=paper)
        built = page.build(collection, "")
        there = number == 2
        assert ("costs-section" in {section.key for section in built.sections}) == there
        assert ("figure-costs" in {figure.key for figure in built.figures}) == there
        topics = {finding.topic for finding in summary.findings(collection)}
        assert ("Privacy against cost" in topics) == there


def test_the_page_says_first_what_time_is_not(tmp_path: Path) -> None:
    found = [split(0.4, "50ms"), made(0.8, 0.1, defence="front"), made(0.9)]
    built = page.build(collected(found, tmp_path / "a"), "")
    (section,) = (each for each in built.sections if each.key == "costs-section")
    assert section.parts[0] == costs.TIME
    assert [type(part) for part in section.parts[1:]] == [Figure, Table, Table]
    (finding,) = (each for each in built.findings if each.topic == "Privacy against cost")
    assert finding.sentences[0] == costs.TIME
    text = document(built, {"figure-costs": "out/figure-costs.svg"})
    assert "| FRONT | 80.0 % (77.0–83.0)" in text
    assert "![Privacy against bytes added](out/figure-costs.svg)" in text
