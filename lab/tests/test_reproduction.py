"""The index of the papers' claims agrees with the committed data."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.report.tables import inline
from anabranch.reproduction import advice, designs, index, recall
from anabranch.reproduction import found as verdicts
from anabranch.reproduction.claims import Claim, claims, papers
from anabranch.reproduction.data import Data
from anabranch.reproduction.found import ALIKE, FAILS, HOLDS, MISSING, OPEN, Found, Interval
from anabranch.reproduction.spread import mean_interval, median_interval
from anabranch.validate import TraceError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
PLACES = {
    "comps": [*(f"Table {n}" for n in range(1, 7)), "Figure 4", "Figure 6", "Figure 7", "Figure 8"],
    "multipath": [
        "Table 1",
        *(f"Figure {n}" for n in range(2, 6)),
        *(f"Section {n}" for n in (5.3, 6.1, 6.2)),
    ],
    "unordered": ["Table 1", "Figure 3"],
    "stegotorus": ["Table 2", "Table 3", "Figure 6", "Figure 7", "Section 8"],
}
"""Tables, figures and sections with numbers of the papers."""


@pytest.fixture(scope="module")
def data() -> Data:
    return Data(RESULTS)


def test_the_page_is_what_the_data_make(data: Data) -> None:
    committed = (ROOT / "docs/reproduction.md").read_text("utf-8")
    assert index.page(data) == committed, "run: make reproduce-index"


def test_every_row_has_a_verdict_or_a_reason_and_its_page_agrees(data: Data) -> None:
    assert list(index.problems(data)) == []


def test_every_table_and_figure_has_a_row() -> None:
    assert [paper.key for paper in papers()] == list(PLACES)
    for paper, places in PLACES.items():
        rows = [claim.place for claim in claims() if claim.paper == paper]
        for place in places:
            # "Figure 8(a)" and "Table 5, Figure 7(a)" are rows of Figure 8 and of Figure 7.
            assert any(re.search(rf"\b{re.escape(place)}\b", row) for row in rows), place


def test_a_page_that_disagrees_with_its_data_is_reported(tmp_path: Path) -> None:
    copy = tmp_path / "results"
    shutil.copytree(RESULTS, copy)
    page = copy / "circuits.md"
    text = page.read_text("utf-8")
    row = "| mTor × 3 | 1 MiB arrives sooner than with one circuit |"
    line = next(line for line in text.splitlines() if row in line)
    number = line.split("|")[4].strip()
    page.write_text(text.replace(line, line.replace(number, "9.99 ± 0.01")), "utf-8")
    wrong = list(index.problems(Data(copy)))
    assert len(wrong) == 1
    assert "circuits.md does not have" in wrong[0]
    assert number in wrong[0]


def test_a_row_without_reason_and_one_without_command_are_reported(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Claim("comps", "Table 9", "nothing", "0")
    made = replace(bare, place="Table 8", measure="splitting.censor")
    monkeypatch.setattr(index, "claims", lambda: (bare, made))
    first, second = index.problems(data)
    assert "Table 9" in first
    assert "neither a verdict nor a reason" in first
    assert "Table 8" in second
    assert "not named" in second


def test_the_command_prints_the_page_and_refuses_a_folder_without_data(
    data: Data, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["reproduction", str(RESULTS)])
    assert done.exit_code == 0
    assert done.stdout == index.page(data)
    written = tmp_path / "page.md"
    assert (
        CliRunner().invoke(app, ["reproduction", str(RESULTS), "--into", str(written)]).exit_code
        == 0
    )
    assert written.read_text("utf-8") == index.page(data)
    empty = CliRunner().invoke(app, ["reproduction", str(tmp_path)])
    assert isinstance(empty.exception, TraceError)


def test_a_run_is_compared_with_the_committed_data(tmp_path: Path) -> None:
    """A folder of one experiment: its claims are compared, and a reversed verdict is a failure."""

    def compared() -> Any:
        against = ["reproduction", str(tmp_path), "--against", str(RESULTS)]
        return CliRunner().invoke(app, against)

    assert isinstance(compared().exception, TraceError)
    table = pq.read_table(RESULTS / "overhead-targets.parquet")
    pq.write_table(table, tmp_path / "overhead-targets.parquet")
    same = compared()
    assert same.exit_code == 0, same.stdout
    assert "0 contradict" in same.stdout
    assert "Figure 8(b)" in same.stdout
    goodput = [row["goodput"] / (10 if row["every_ms"] else 1) for row in table.to_pylist()]
    at = table.column_names.index("goodput")
    slower = table.set_column(at, "goodput", pa.array(goodput))
    pq.write_table(slower, tmp_path / "overhead-targets.parquet")
    other = compared()
    assert other.exit_code == 1
    assert "CONTRADICTS comps, Figure 8" in other.stdout


def test_the_page_of_designs_is_what_the_data_make(data: Data) -> None:
    assert index.designs_page(data) == data.page("designs.md"), "run: make reproduce-index"


def test_another_number_in_the_page_of_designs_is_reported(tmp_path: Path) -> None:
    copy = tmp_path / "results"
    shutil.copytree(RESULTS, copy)
    page = copy / "designs.md"
    text = page.read_text("utf-8")
    page.write_text(text.replace("Anabranch × 3: 0.70", "Anabranch × 3: 0.71"), "utf-8")
    wrong = list(index.problems(Data(copy)))
    assert len(wrong) == 1
    assert "Section 5.3" in wrong[0]
    assert "designs.md does not have" in wrong[0]


@pytest.mark.parametrize("name", index.PARTS)
def test_the_findings_of_a_page_are_what_the_data_make(data: Data, name: str) -> None:
    assert index.part(data, name) in data.page(name), "run: make reproduce-index"


def test_rows_of_experiments_that_disagree_with_their_data_are_reported(
    data: Data, tmp_path: Path
) -> None:
    copy = tmp_path / "results"
    shutil.copytree(RESULTS, copy)
    entries = [entry for entry in index.entries(data) if entry.found.quotes]
    for name in index.PARTS:
        quote = next(entry.found.quotes[0] for entry in entries if entry.claim.page == name)
        page = copy / name
        text = page.read_text("utf-8")
        assert quote in text
        page.write_text(text.replace(quote, re.sub(r"\d\.\d\d", "9.99", quote)), "utf-8")
    wrong = list(index.problems(Data(copy)))
    assert len(wrong) == len(index.PARTS)
    assert all(any(f"{name} does not have" in one for one in wrong) for name in index.PARTS)


def test_the_table_of_designs_agrees_with_the_pages_of_its_parts(data: Data) -> None:
    table = {row[0]: row for row in advice.rows(data)}
    circuits = data.page("circuits.md")
    row = next(
        line for line in circuits.splitlines() if line.startswith("| lines | mTor × 3 | 5 |")
    )
    for cell in table["mTor × 3"][2:4]:
        assert cell in row
    # Footnote 14 of the paper: 4 % with one circuit, 9.8 % with three.
    assert table["mTor × 3"][8] == "9.8 %"
    # Designs on UDP and MORE have measured times on loopback only; MORE is not simulated.
    assert table["UDP-OR × 1"][1] == table["MORE, 10 circuits"][1] == advice.LOOPBACK
    assert table["MORE, 10 circuits"][5] == advice.UNKNOWN
    on_loopback = {row[0]: row for row in advice.loopback(data)}
    page = data.page("circuits-udp.md").splitlines()
    for name, of in on_loopback.items():
        (row,) = [line for line in page if re.match(rf"\| loopback \| {name} \| \d+ \|", line)]
        for cell in of[2:4]:
            assert cell.replace(",", "") in row
    assert [name for name in on_loopback if "UDP" in name or "MORE" in name] == [
        *(designs.name_of(*key) for key in designs.UDP),
        "MORE × 1",
    ]
    # Only where circuits merge in the middle does a relay other than the exit see everything.
    assert table["merged in the middle × 2"][10] == "3.6 %"
    assert table["mTor × 2"][10] == "–"
    assert designs.chances(3) == pytest.approx((0.0976, 0.0016))
    assert all(len(row) == len(advice.HEADER) for row in table.values())


def test_a_design_on_udp_is_compared_with_the_fastest_one_on_tcp(tmp_path: Path) -> None:
    """Networks differ by a factor, but ratios within a network do not."""
    rows = [
        {"design": design, "legs": legs, "network": network, "seed": 1, "load": "web"}
        | {"first_byte": network * time, "last_byte": network * (1 - time)}
        for network in (1, 2, 3)
        for (design, legs), time in {
            ("tor", 1): 0.5,
            ("mtor", 2): 0.4,
            **dict.fromkeys(designs.UDP, 0.2),
        }.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "designs.parquet")
    sooner = designs.first_byte(Data(tmp_path))
    assert sooner.verdict == HOLDS
    assert sooner.text.startswith("ratio to the time of mTor × 2: UDP-OR × 1: 0.50 (0.50 to 0.50)")
    slower = designs.download(Data(tmp_path), "web")
    assert slower.verdict == HOLDS
    assert slower.text.startswith("ratio to the time of Tor × 1: UDP-OR × 1: 1.60")


def test_the_table_of_recalls_and_its_text_are_what_the_data_make(data: Data) -> None:
    page = data.page("fingerprinting.md")
    assert recall.written(data) in page, "run: make reproduce-index"
    found = {
        (one["spec"]["attack"], one["spec"]["loads"], one["spec"]["protocol"]): one["metrics"]
        for one in recall.results(data)
    }
    df, pfp, cnn = (
        f"{100 * found[name, 40, 'honest']['recall']['value']:.1f}"
        for name in ("df", "p-fp", "var-cnn")
    )
    text = " ".join(page.split())
    assert f"DF {df}, p-FP(C) {pfp}, Var-CNN {cnn} %" in text
    ends = [found[name, 40, "honest"]["recall"]["value"] for name in ("cumul", "k-fp")]
    both = f"recall of {100 * min(ends):.0f} to {100 * max(ends):.0f} % at such a threshold"
    assert f"k-FP and CUMUL have a {both}" in text
    few = found["k-fp", 10, "honest"]["recall"]["value"]
    assert f"k-FP has {100 * few:.0f} % after only 10 loads of each page" in text
    assert f"recall is {inline(found['df', 40, 'paper']['recall'])}" in text


def test_a_changed_recall_is_not_in_the_page(tmp_path: Path) -> None:
    for name in ("fingerprinting.jsonl", "recall.jsonl"):
        shutil.copy(RESULTS / name, tmp_path)
    file = tmp_path / "recall.jsonl"
    changed = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    changed[0]["metrics"]["recall"]["value"] -= 0.01
    file.write_text("\n".join(map(json.dumps, changed)), "utf-8")
    assert recall.written(Data(tmp_path)) not in Data(RESULTS).page("fingerprinting.md")


def test_the_tables_of_observers_and_attackers_are_what_their_rows_say(data: Data) -> None:
    text = " ".join(data.page("README.md").split())
    rows = data.results("adversaries.jsonl")
    assert len(rows) > 10
    for row in rows:
        assert inline(row["metrics"]["accuracy"]) in text, row["facts"]["run_name"]


def test_verdicts_follow_from_whole_intervals() -> None:
    assert verdicts.below(Interval(0.8, 0.7, 0.9), 1) == HOLDS
    assert verdicts.below(Interval(1.0, 0.95, 1.05), 1) == ALIKE
    assert verdicts.below(Interval(1.3, 1.2, 1.4), 1) == FAILS
    assert verdicts.below(Interval(1.0, 0.8, 1.2), 1) == OPEN
    assert verdicts.below(Interval(0.5, None, None), 1) == OPEN
    assert verdicts.above(Interval(1.3, 1.2, 1.4), 1) == HOLDS
    assert verdicts.above(Interval(1.02, 0.97, 1.07), 1) == ALIKE
    assert verdicts.above(Interval(0.7, 0.6, 0.8), 1) == FAILS
    assert verdicts.at_most(Interval(2, 1, 3), 3) == HOLDS
    assert verdicts.at_most(Interval(4, 3.5, 5), 3) == FAILS
    assert verdicts.at_least(Interval(4, 3, 5), 3) == HOLDS
    assert verdicts.at_least(Interval(2, 1, 4), 3) == OPEN
    assert verdicts.within(Interval(1.01, 0.97, 1.05), 0.06) == HOLDS
    assert verdicts.within(Interval(1.2, 1.1, 1.3), 0.06) == FAILS
    assert verdicts.all_of([HOLDS, HOLDS]) == (HOLDS, "")
    assert verdicts.all_of([HOLDS, OPEN, OPEN]) == (OPEN, "of 3 holds: 1, cannot be judged: 2")
    assert Found("", MISSING).why == ""


def test_intervals_are_those_of_the_experiments() -> None:
    mean = mean_interval([1.0, 2.0, 3.0])
    assert mean.value == 2.0
    assert mean.high == pytest.approx(2 + 4.303 / 3**0.5, abs=1e-3)
    assert mean_interval([5.0]).low is None
    # Tables of the sign test: 1 and 6 of 6, 2 and 9 of 10, 6 and 15 of 20; none of 5.
    for count, low, high in ((6, 1, 6), (10, 2, 9), (20, 6, 15)):
        found = median_interval([float(each) for each in range(count, 0, -1)])
        assert (found.low, found.high) == (low, high)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]).low is None
