from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from anabranch import cli, results
from anabranch import report as package
from anabranch.nets import MissingExtraError
from anabranch.report import files, markdown, page
from anabranch.report.beyond import options
from anabranch.report.collection import Collection
from anabranch.report.html import document
from anabranch.validate import TraceError
from report.conftest import WR, result, save_all

RUN = "from anabranch.cli import main; main()"


def lab(*arguments: object, code: str = RUN) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, "report", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def plain_text(path: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", path.read_text()))


def test_the_page_holds_the_numbers_of_the_results(folder: Path, tmp_path: Path) -> None:
    done = lab(folder, "--out", tmp_path / "out", "--markdown", tmp_path / "doc.md")
    assert (done.returncode, done.stderr) == (0, "")
    text = plain_text(tmp_path / "out" / "report.html")
    tables = (tmp_path / "doc.md").read_text()
    for file in folder.glob("*.json"):
        for name, estimate in results.estimates(results.load(file).metrics):
            if name in ("accuracy", "r_precision", "recall", "f1"):
                rates = [estimate[part] for part in ("value", "low", "high")]
                value, low, high = (f"{100 * rate:.1f}" for rate in rates if rate is not None)
                assert re.search(rf"{value} %\s+{low}–{high}", text), (file, name)
                assert f"{value} % ({low}–{high})" in tables, (file, name)
    for word in ("simulated", "machine time", "24.0 s of processor time", "some.results --out out"):
        assert word in text
        assert word.replace("_", r"\_") in tables


def test_equal_results_make_equal_files(folder: Path, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        # A process of its own: state left by one run must not show in the next.
        out, target = tmp_path / name / "out", tmp_path / name / "doc.md"
        assert lab(folder, "--out", out, "--markdown", target, "--paper").returncode == 0
        written = sorted(file for file in (tmp_path / name).rglob("*") if file.is_file())
        found.append({str(file.relative_to(tmp_path / name)): file for file in written})
    one, two = found
    assert one.keys() == two.keys()
    assert one.keys() >= {"doc.md", "out/report.html", "out/figure-7.svg"}
    for name, file in one.items():
        assert file.read_bytes() == two[name].read_bytes(), name


def test_kept_numbers_make_the_same_page(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    done = lab(folder, "--out", tmp_path / "out", "--numbers", kept)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--out out --numbers kept.jsonl" in plain_text(tmp_path / "out" / "report.html")
    first, again = (page.build(Collection.read([each]), "") for each in (folder, kept))
    assert document(again) == document(first)
    # Results that are equal in both are one.
    assert len(Collection.read([folder, kept])) == len(Collection.read([folder]))
    assert Collection.read([kept]).lines() == kept.read_text()


def test_the_page_asks_for_nothing_and_names_nothing_twice(built: page.Page) -> None:
    text = document(built)
    assert "<script" not in text
    loaded = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\') >]+)', text)
    assert loaded
    assert all(each.startswith(("#", "data:")) for each in loaded)
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(names)


def test_what_others_wrote_is_text(built: page.Page) -> None:
    done = replace(built, origin=(("note", "<script>alert(1)</script> & |x| *y*"),))
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; |x|" in document(done)
    assert r"&lt;script>alert(1)&lt;/script> &amp; \|x\| \*y\*" in markdown.document(done, {})


def test_prose_is_in_lines_of_a_hundred_columns(built: page.Page) -> None:
    # Column 100 would end at the minus.
    text = "* " + "word " * 19 + "ab - 12 " + "word " * 17 + "2. end"
    assert markdown.wrapped(text).split() == text.split()
    done = replace(built, origin=(("note", "word " * 40),))
    lines = [*markdown.document(done, {}).splitlines(), *markdown.wrapped(text).splitlines()]
    assert max(len(line) for line in lines if not line.startswith("|")) <= markdown.COLUMNS
    assert not [line for line in lines if re.match(r" *(-|\d+\.) ", line)]


def test_only_the_marked_part_of_a_document_is_replaced(built: page.Page, tmp_path: Path) -> None:
    target, out = tmp_path / "doc.md", tmp_path / "out"
    target.write_text(f"by hand\n{markdown.BEGIN}\nold\n{markdown.END}\nby hand too\n")
    files.write(built, out, target)
    text = target.read_text()
    assert text.startswith("by hand\n")
    assert text.endswith("\nby hand too\n")
    assert "\nold\n" not in text
    assert "(out/figure-6.svg)" in text
    files.write(built, out, target)
    assert target.read_text() == text


def test_figures_of_an_earlier_report_go(built: page.Page, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "figure-old.svg").write_text("old")
    (out / "mine.txt").write_text("mine")
    files.write(built, out)
    assert not (out / "figure-old.svg").exists()
    assert (out / "mine.txt").read_text() == "mine"
    assert (out / "report.html").stat().st_mode & 0o777 == 0o644


def test_a_report_of_little_stands(tmp_path: Path) -> None:
    for number, one in enumerate([result(0.9), result(0.2, protocol="paper", **WR)]):
        folder = save_all([one], tmp_path / f"{number}.results")
        files.write(page.build(Collection.read([folder]), "", "note"), tmp_path / f"{number}")
        assert (tmp_path / f"{number}" / "report.html").stat().st_size > 5_000


def test_bad_input_is_one_line_and_code_2_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, other, torn = (tmp_path / name for name in ("empty", "other", "torn"))
    empty.mkdir()
    other.mkdir()
    (other / "x.json").write_text('{"format": 99}')
    save_all([result()], torn)
    (torn / "0000.parquet").write_bytes(b"PAR1")
    (tmp_path / "file").write_text("")
    for name, text in [("no.jsonl", ""), ("json.jsonl", "{"), ("old.jsonl", '{"format": 99}')]:
        (tmp_path / name).write_text(text)
    line = json.loads(Collection.read([save_all([result()], tmp_path / "one")]).lines())
    (tmp_path / "nameless.jsonl").write_text(json.dumps(line | {"file": None}))
    (tmp_path / "numberless.jsonl").write_text(json.dumps(line | {"metrics": {}}))
    before = sorted(tmp_path.rglob("*"))
    cases: list[tuple[list[object], str]] = [
        ([tmp_path / "none"], "none: no such folder"),
        ([tmp_path / "file"], "file: is no folder"),
        ([empty], "empty: holds no results"),
        ([empty, other], "empty: holds no results"),
        ([other], "x.json: not a result of format"),
        ([torn], "0000.parquet: not a readable file of predictions"),
        ([tmp_path / "one", "--numbers", tmp_path / "one" / "0000.json"], "must end in .jsonl"),
        ([tmp_path / "one", "--markdown", tmp_path / "a.txt"], "a.txt: --markdown: its name must"),
        ([tmp_path / "none.jsonl"], "none.jsonl: No such file"),
        ([tmp_path / "no.jsonl"], "no.jsonl: holds no results"),
        ([tmp_path / "json.jsonl"], "json.jsonl: line 1: not a result"),
        ([tmp_path / "old.jsonl"], "old.jsonl: line 1: not a result of format"),
        (
            [tmp_path / "nameless.jsonl"],
            "nameless.jsonl: line 1: not a complete result: it lacks file",
        ),
        ([tmp_path / "numberless.jsonl"], "numberless.jsonl: not a readable result: KeyError"),
    ]
    for folders, problem in cases:
        out = ["--out", tmp_path / "out"]
        monkeypatch.setattr(sys, "argv", ["anabranch-lab", "report", *map(str, [*folders, *out])])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert problem in said
        assert said.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_written_is_named_and_nothing_is(built: page.Page, tmp_path: Path) -> None:
    by_hand = tmp_path / "doc.md"
    by_hand.write_text("by hand")
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "report.html").mkdir(parents=True)
    out = tmp_path / "out"
    before = sorted(tmp_path.rglob("*"))
    for folder, target, problem in [
        (tmp_path / "no" / "out", None, "out: its folder does not exist"),
        (tmp_path / "file", None, "file: is a file"),
        (tmp_path / "taken", None, r"report\.html: is a folder"),
        (Path("/proc/report"), None, "/proc/report: "),  # not even root makes anything there
        (out, by_hand, r"doc\.md: has no place for a report"),
        (out, tmp_path / "no" / "doc.md", r"doc\.md: its folder"),
        (out, out / "figure-7.svg", r"figure-7\.svg: two parts of the report"),
    ]:
        with pytest.raises(TraceError, match=problem):
            files.write(built, folder, target)
        assert sorted(tmp_path.rglob("*")) == before
    assert by_hand.read_text() == "by hand"


def test_files_that_no_report_has_written_are_kept(built: page.Page, tmp_path: Path) -> None:
    texts = {
        "t.csv": "setting,design,attack\n",
        "t.tex": "% Made by anabranch-lab report.\n",
        "t.jsonl": '{"file":"a/b.json","spec":{}}\n',
    }
    others = {tmp_path / name: text for name, text in texts.items()}
    out = tmp_path / "out"
    for file in (*others, out / files.NAME):
        files.write(built, out, None, others)  # an earlier report is replaced
        files.write(built, out, None, others)
        file.write_text("mine")
        with pytest.raises(TraceError, match=rf"{file.name}: this file exists and was not"):
            files.write(built, out, None, others)
        assert file.read_text() == "mine"
        file.write_text("")  # empty: nothing is lost
    files.write(built, out, None, others)


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    package.require_matplotlib()
    monkeypatch.setattr(
        package, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name)
    )
    with pytest.raises(MissingExtraError, match=r"pip install './lab\[report\]'"):
        package.require_matplotlib()


def test_the_command_tells_the_missing_extra(folder: Path, tmp_path: Path) -> None:
    hidden = (
        "import sys, importlib.util as u; sys.modules['matplotlib'] = None; f = u.find_spec;"
        "u.find_spec = lambda n, *a: None if n == 'matplotlib' else f(n, *a);"
    )
    done = lab(folder, "--out", tmp_path / "out", code=hidden + RUN)
    assert done.returncode == 2
    needed = "reports need matplotlib: pip install './lab[report]' in the project's folder"
    assert done.stderr == f"anabranch-lab: {needed}\n"
    assert not (tmp_path / "out").exists()


def test_a_result_can_be_made_again_by_the_options_that_the_page_gives(folder: Path) -> None:
    texts = {options(entry) for entry in Collection.read([folder])}
    assert "--bootstrap 50" in texts
    assert (
        "--schedule weighted --every 50p --mode together --attack rf --parameter epochs=20 "
        "--loads 40 --resplits 2 --bootstrap 50"
    ) in texts
    assert not any("--paths" in text for text in texts)  # 3 is usual
