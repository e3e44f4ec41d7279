from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.evaluate import Spec
from anabranch.report import beyond, comparison, counter, published, summary
from anabranch.report.collection import WHOLE, Collection
from anabranch.report.setting import Setting, design, full
from anabranch.report.tables import NOT_RUN, percent
from anabranch.results import Result
from anabranch.validate import TraceError
from report.conftest import WR, result, save_all


def said_of(collection: Collection) -> list[str]:
    return [text for finding in summary.findings(collection) for text in finding.sentences]


def test_results_are_found_by_their_settings(folder: Path) -> None:
    found = Collection.read([folder])
    assert len(found) == 12
    closed = found.select(comparison.WR, "k-fp", world="closed", protocol="honest")
    assert [(entry.design, entry.observer) for entry in closed] == [
        ("full · R 1 · seed 0", "largest"),
        ("full · R 1 · seed 0", "random"),
        ("40 loads · R 2 · seed 0", "random"),
    ]
    assert [entry.full for entry in closed] == [True, True, False]
    assert [entry.spec.attack.name for entry in found.like(comparison.WR, "rf", "honest")] == ["rf"]
    assert not found.like(comparison.WR, "df", "honest")


def test_intervals_are_said_to_hold_for_the_trainings_that_there_are(tmp_path: Path) -> None:
    one, two = result(0.9), result(0.9, seed=1)
    for number, (results, said) in enumerate(
        [([two], "another training (all results have seed 1)"), ([one, two], "compare the seeds")]
    ):
        found = Collection.read([save_all(results, tmp_path / f"{number}")])
        assert any(said in text for text in said_of(found))


def test_an_attack_of_several_paths_has_no_column_beside_those_of_one(tmp_path: Path) -> None:
    watched = result(0.5, attack="k-fp-paths", observer="merged:2", **WR)
    found = Collection.read([save_all([result(0.9), watched], tmp_path / "a")])
    assert "k-FP by path" not in beyond.closed_world(found).header
    assert "k-FP by path" in {row[1].text for row in beyond.observers(found).rows}
    alone = result(0.5, attack="k-fp-paths", **WR)
    found = Collection.read([save_all([result(0.9), alone], tmp_path / "b")])
    assert "k-FP by path" in beyond.closed_world(found).header


def test_what_is_not_split_suits_every_observer(tmp_path: Path) -> None:
    two = [result(0.9), result(0.9, observer="largest", paths=5)]
    found = Collection.read([save_all(two, tmp_path / "a")])
    assert [entry.observer for entry in found] == [WHOLE]
    assert found.select(Setting(), observer="random") == found.select(Setting(), observer="merged")


def test_equal_results_of_two_folders_are_one_and_different_ones_two(tmp_path: Path) -> None:
    first = save_all([result(0.2, elapsed=1.0, **WR)], tmp_path / "a")
    same = save_all([result(0.2, elapsed=9.0, **WR)], tmp_path / "b")
    other = save_all([result(0.3, **WR)], tmp_path / "c")
    assert len(Collection.read([first, same])) == 1
    found = Collection.read([first, same, other])
    assert len(found) == 2
    # One question, one design, two answers: both are kept, and their file names distinguish them.
    assert {entry.design for entry in found} == {
        "full · R 1 · seed 0 · a/0000",
        "full · R 1 · seed 0 · c/0000",
    }


def test_settings_have_the_names_and_the_order_of_the_paper() -> None:
    found = [
        Setting.of(Spec.of(defence="wtf-pad", **WR)),
        Setting.of(Spec.of(schedule="batched", paths=5, mode="together")),
        Setting.of(Spec.of(schedule="weighted", every="100ms", mode="independent")),
        Setting.of(Spec.of(**WR | {"every": "200p", "paths": 2, "delays": (0.01, (0, 0.02))})),
        Setting.of(Spec.of(**WR)),
        Setting.of(Spec.of(**WR | {"schedule": "round-robin"})),
        Setting.of(Spec()),
        Setting.of(Spec(), "weighted --every 100ms"),
    ]
    assert [str(setting) for setting in sorted(found, key=lambda each: each.place)] == [
        "undefended",
        "RR 50p × 3",
        "WR 50p × 3",
        "WR 200p × 2 (delays 0.01, 0/0.02 s)",
        "WR 100 ms × 3 (separate ends)",
        "TrafficSliver 50-70p × 5",
        "as recorded (weighted --every 100ms)",
        "WTF-PAD + WR 50p × 3",
    ]


def test_a_setting_compares_with_the_papers_whatever_its_ends() -> None:
    assert Setting.of(Spec.of(**WR | {"mode": "independent"})).like(comparison.WR)
    assert Setting.of(Spec.of(defence="wtf-pad:normal")).like(comparison.PADDED)
    slow, padded = Spec.of(delays=(0.1, 0.0, 0.0), **WR), Spec.of(path_defence="wtf-pad", **WR)
    for other in (slow, padded, Spec()):
        assert not Setting.of(other).like(comparison.WR)
    late = Setting.of(Spec.of(**WR | {"mode": "follow:60ms", "draw": "session:20"}))
    assert not late.like(comparison.WR)
    assert str(late) == "WR 50p × 3 (the server follows 60ms late; probabilities kept for 20 loads)"
    assert str(Setting.of(Spec.of(**WR | {"mode": "follow", "draw": "silence:1s"}))) == (
        "WR 50p × 3 (the server follows; new probabilities after 1s)"
    )


def test_table_6_takes_splits_that_were_recorded_and_no_others() -> None:
    ours = "weighted:4 --every 100ms"
    assert Setting.of(Spec(), ours).like(comparison.COLLECTED)
    assert Setting.of(Spec(), "weighted --every 100ms").like(comparison.COLLECTED)
    for other in ("weighted --every 1s", "uniform --every 100ms", None):
        assert not Setting.of(Spec(), other).like(comparison.COLLECTED)
    assert not Setting.of(Spec.of(**WR | {"every": "100ms"})).like(comparison.COLLECTED)


def test_table_6_stands_beside_the_papers_numbers(tmp_path: Path) -> None:
    opened: dict[str, Any] = {"world": "open", "monitored": 5, "attack": "df"}
    simulated = result(0.9, **opened, **WR)
    split = result(0.4, **opened)
    split = replace(split, facts=split.facts | {"recorded_split": "weighted:4 --every 100ms"})
    found = Collection.read([save_all([split, simulated], tmp_path / "some")], paper=True)
    *_, sixth = comparison.tables(found)
    rows = {(row[1].text, row[2].text): row for row in sixth.rows}
    assert [cell.values[0].text for cell in rows["DF", "CoMPS, Table 6"][4:]] == [
        "12.4 %",
        "34.9 %",
        "18.3 %",
    ]
    (entry,) = (each for each in found if each.setting.recorded)
    assert rows["DF", "ours"][5].values[0].text == percent(entry.estimate("recall")["value"])
    assert all(cell.text == NOT_RUN for cell in rows["Var-CNN", "ours"][4:])
    assert len(sixth.rows) == 6


def test_results_that_were_restored_are_marked(tmp_path: Path) -> None:
    lost = result(0.3, **WR, observer="largest")
    lost = replace(lost, facts=lost.facts | {"restored": True})
    found = Collection.read([save_all([lost, result(0.97)], tmp_path / "some")])
    assert {each.design.endswith("· restored"): each.setting.splits for each in found} == {
        True: True,
        False: False,
    }
    table = beyond.everything(found)
    marked = [row for row in table.rows if any("restored" in cell.text for cell in row)]
    assert len(marked) == 1


def test_a_design_says_all_that_makes_numbers_differ() -> None:
    spec = Spec.of(attack="rf", loads=40, resplits=2, parameters={"epochs": 20, "width": 8}, **WR)
    assert design(spec) == "40 loads · R 2 · 20 epochs · width 8 · seed 0"
    assert design(Spec.of(attack="rf", seed=3)) == "full · 30 epochs · seed 3"
    assert design(Spec.of(merged=True, pages=20, test_loads=5, **WR), "data abc") == (
        "data abc · 20 pages · full · R 1 · + whole traces · test loads 5 · seed 0"
    )
    assert not full(Spec.of(test_loads=5))
    assert full(Spec.of(validation_loads=10))
    assert full(Spec.of(resplits=1, **WR))


def test_published_numbers_are_those_of_the_paper() -> None:
    rows = {(point.attack, str(point.setting)): point for point in published.points()}
    assert len(rows) == len(published.points()) == 18
    point = rows["df", "RR 50p × 3"]
    assert (point.r_precision, point.recall, point.f1) == (0.743, 0.774, 0.758)
    for point in published.points():
        both = point.r_precision + point.recall
        assert (
            point.f1 is None or abs(2 * point.r_precision * point.recall / both - point.f1) < 2e-3
        )


def test_missing_places_are_told_and_never_filled(folder: Path) -> None:
    found = Collection.read([folder], paper=True)
    third, _, _, _ = comparison.tables(found)
    rows = {(row[0].text, row[1].text, row[2].text): row for row in third.rows}
    ours = rows["WR 50p × 3", "DF", "ours"]
    assert all(cell.missing and cell.text == NOT_RUN and not cell.values for cell in ours[4:])
    theirs = rows["WR 50p × 3", "DF", "CoMPS, Table 3"]
    assert [cell.values[0].text for cell in theirs[4:]] == ["41.6 %", "32.9 %", "36.7 %"]
    table = beyond.closed_world(found)
    assert {str(setting) for setting in comparison.PAPERS} <= {row[0].text for row in table.rows}
    column = table.header.index("Tik-Tok")
    assert all(row[column].missing for row in table.rows)


def test_competing_designs_stand_together(folder: Path) -> None:
    table = beyond.closed_world(Collection.read([folder]))
    (row,) = (row for row in table.rows if row[0].text == "WR 50p × 3")
    values = row[table.header.index("k-FP")].values
    assert [value.design for value in values] == ["full · R 1 · seed 0", "40 loads · R 2 · seed 0"]


def test_the_page_says_how_finely_false_positives_are_resolved(folder: Path) -> None:
    found = Collection.read([folder])
    honest = (
        "With the honest protocol: The false-positive rate is estimated from 5 unmonitored pages"
    )
    assert any(text.startswith(honest) for text in said_of(found))


def test_where_loads_differ_the_fewest_speak_and_the_most_are_told(tmp_path: Path) -> None:
    usual = result(0.5, world="open", monitored=5, **WR)
    loads = usual.metrics["unmonitored_predictions"]
    more = replace(usual, metrics=usual.metrics | {"unmonitored_predictions": 6 * loads})
    (one,) = (text for text in _resolution([usual], tmp_path / "a"))
    assert f"({loads} loads)" in one
    other = replace(more, spec=replace(more.spec, seed=1))
    (both,) = (text for text in _resolution([other, usual], tmp_path / "b"))
    assert f"({loads} loads in the result with the fewest loads, {6 * loads} in the" in both


def _resolution(results: list[Result], folder: Path) -> list[str]:
    return list(summary.resolution(Collection.read([save_all(results, folder)])))


def test_k_fp_ahead_of_rf_is_told(tmp_path: Path) -> None:
    ahead = save_all([result(0.5, **WR), result(0.2, attack="rf", **WR)], tmp_path / "a")
    behind = save_all([result(0.2, **WR), result(0.5, attack="rf", **WR)], tmp_path / "b")
    texts = [
        any(
            "k-FP recognises more than RF on 1 of 1" in text
            for text in said_of(Collection.read([each]))
        )
        for each in (ahead, behind)
    ]
    assert texts == [True, False]


def test_findings_claim_no_more_than_there_is(tmp_path: Path) -> None:
    one = save_all([result(0.01, **WR)], tmp_path / "a")
    said = said_of(Collection.read([one], paper=True))
    assert any("RF was not run on any defended setting" in text for text in said)
    assert any("1 of 10 defended settings measured, 9 not run" in text for text in said)
    assert any("RF was not run without a defence" in text for text in said)
    assert not any("that we expect of a working attack" in text for text in said)
    given = said_of(Collection.read([one]))
    assert any("1 of 1 defended settings measured. Settings" in text for text in given)
    assert not any("not run" in text for text in given)


def test_a_setting_is_below_a_limit_only_with_its_whole_interval(tmp_path: Path) -> None:
    results_of_one = [result(0.02, **WR), result(0.4, seed=1, **WR)]
    found = Collection.read([save_all(results_of_one, tmp_path / "a")])
    (said,) = (text for text in said_of(found) if text.startswith("k-FP, a random path:"))
    assert "below 10 %: none; below 20 %: none" in said
    assert "seed 1" in said  # the strongest of both


def test_the_floor_is_judged_in_a_full_design_alone(tmp_path: Path) -> None:
    cases = [
        (result(1.0, attack="rf"), "It reaches the 95 % that we expect of a working attack"),
        (result(0.5, attack="rf"), "does NOT reach"),
        (result(1.0, attack="rf", loads=40), "was not run"),
    ]
    for number, (found, expected) in enumerate(cases):
        folder = save_all([found], tmp_path / str(number))
        said = [text for text in said_of(Collection.read([folder])) if "RF " in text]
        assert expected in said[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 99}, "format"),
        ({"spec": {"schedul": "x"}}, "did you mean 'schedule'"),
        ({"metrics": {}}, "accuracy"),
        ({"metrics": None}, "it lacks metrics"),
        ({"took": {"cpu_s": 1.0}}, "wall_s"),
    ],
)
def test_a_file_of_another_kind_is_named(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    folder = save_all([result()], tmp_path / "a")
    (file,) = folder.glob("*.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(TraceError, match=problem) as caught:
        Collection.read([folder])
    assert str(file) in str(caught.value)


def test_designs_below_the_floor_are_named(tmp_path: Path) -> None:
    reduced: dict[str, Any] = {"attack": "rf", "loads": 40}
    found = [
        result(0.97, attack="rf"),
        result(0.5, **reduced),
        result(0.4, **reduced, parameters={"epochs": 9}),
        result(0.2, **reduced, **WR),
    ]
    texts = said_of(Collection.read([save_all(found, tmp_path)]))
    (said,) = (text for text in texts if "some attacks recognise less than" in text)
    assert "30 epochs" in said
    assert "9 epochs" not in said


def test_a_number_and_its_twin_with_the_counter_stand_side_by_side(tmp_path: Path) -> None:
    split: dict[str, Any] = {"schedule": "weighted:4", "every": "100ms", "resplits": 3}
    found = [
        result(0.14, attack="forest", observer="largest", **split),
        result(0.80, attack="forest", observer="largest+counter", **split),
        result(0.07, attack="forest", observer="random", **split),
        result(0.99, attack="forest", observer="largest+counter", **split | {"resplits": 2}),
        result(0.30, attack="df", observer="largest", **split),
    ]
    bare, counted, at_random, *_ = (percent(each.metrics["accuracy"]["value"]) for each in found)
    collection = Collection.read([save_all(found, tmp_path)], paper=True)
    rows = [
        [cell.text or [value.text for value in cell.values] for cell in row]
        for row in counter.table(collection).rows
    ]
    setting = "WR:4 100 ms × 3"
    assert rows == [
        [setting, "forest", "the fullest path", [bare], [counted]],
        [setting, "forest", "a random path", [at_random], NOT_RUN],
    ]
    rests, only = counter.findings(collection)
    assert "RFC 9001" in rests
    assert bare in only.partition("without")[0]
    assert counted in only.partition("without")[2]
    assert beyond.watched(collection) == ["random", "largest", "merged:2", "merged"]


def test_a_sweep_of_another_observer_has_its_tables_by_that_one(tmp_path: Path) -> None:
    fullest = [result(0.4, observer="largest", **WR), result(0.3, observer="any", **WR)]
    fullest += [result(0.2, observer="largest", seed=1, **WR)]
    found = Collection.read([save_all(fullest, tmp_path / "a")])
    assert found.rule == "largest"
    table = beyond.closed_world(found)
    assert table.note.startswith("Observer: the fullest path; honest protocol")
    assert table.rows
    assert any(text.startswith("k-FP, the fullest path: 1 of 1") for text in said_of(found))
    mixed = Collection.read([save_all([*fullest, result(0.1, **WR)], tmp_path / "b")])
    assert mixed.rule == "random"


def test_runs_and_files_keep_their_names(tmp_path: Path) -> None:
    named = result(0.4, **WR)
    facts = named.facts | {"run_name": "evening", "file": "loads.parquet"}
    found = Collection.read([save_all([replace(named, facts=facts)], tmp_path / "a")])
    (row,) = beyond.everything(found).rows
    assert "→ evening: " in row[-1].text
    assert found.data_name(named.data) == "loads.parquet"
    bare = Collection.read([save_all([named], tmp_path / "b")])
    assert bare.data_name(named.data).startswith("data with the digest")
