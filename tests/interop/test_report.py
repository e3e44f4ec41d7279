"""The page of ``anabranch report`` in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import trace
from harness.chromium import Chromium
from harness.net import Host
from harness.png import picture
from harness.tools import anabranch
from harness.trace import Row

pytestmark = pytest.mark.browser

HERE = Host("here")
PATHS = ("wlan", "lte", "home")
EVIL = """</title></style><script>document.title = "evil"</script><img src="http://evil/x.png">"""
SLICE = 100  # packets in a row on one path


@pytest.fixture(autouse=True)
def forget(browser: Chromium) -> None:
    """Resets the browser, so that each test sees only its own requests and complaints."""
    browser.read(1280, "light")


def rows() -> list[Row]:
    """Returns 3,100 packets on alternating paths; path 2 is unused in the first half, sizes differ
    by path.
    """
    turns = [0, 1] * 8 + [0, 1, 2] * 5
    paths = [path for path in turns for _ in range(SLICE)]
    return [
        (path, n / 1000, 100 + path if n % 4 == 0 else -1000 - path) for n, path in enumerate(paths)
    ]


def report(folder: Path, data: list[Row], names: tuple[str, ...] = PATHS) -> Path:
    """Writes a trace of ``data``, and returns the page that the program makes of it."""
    schedule = f"round-robin --every {SLICE}p"
    trace.write(folder / "run.parquet", data, names, schedule=schedule)
    HERE.must([anabranch(), "report", str(folder / "run.parquet")])
    return folder / "run.html"


def counts(browser: Chromium) -> dict[tuple[int, str], tuple[int, int]]:
    """Returns packets and bytes by path and direction, read from the page's table."""
    found: list[Any] = browser.ask(
        """[...document.querySelectorAll('section[id^=s] table.counts tbody')].flatMap(body =>
            [...body.querySelectorAll('tr')].map(row => [
                +body.dataset.path, row.dataset.way,
                +row.querySelector('.packets').textContent.replaceAll(',', ''),
                +row.querySelector('.sizes').textContent.replaceAll(',', '')]))"""
    )
    return {(path, way): (packets, size) for path, way, packets, size in found}


def counted(data: list[Row]) -> dict[tuple[int, str], tuple[int, int]]:
    """Returns packets and bytes by path and direction of ``data``; path -1 is the sum."""
    paths = sorted({path for path, _, _ in data})
    result = {}
    for wanted in (*paths, -1):
        for way, sign in (("Downlink", -1), ("Uplink", 1)):
            sizes = [s * sign for p, _, s in data if wanted in (p, -1) and s * sign > 0]
            result[wanted, way] = (len(sizes), sum(sizes))
    return result


def test_the_table_holds_what_the_trace_holds(browser: Chromium, tmp_path: Path) -> None:
    """All numbers agree, for each path and direction, and the browser requests nothing else."""
    data = rows()
    page = report(tmp_path, data)
    browser.show(page.as_uri())
    assert counts(browser) == counted(data)
    assert browser.ask("document.querySelectorAll('script, link, img, iframe').length") == 0
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_each_row_shows_its_own_colour_where_its_path_was_used(
    browser: Chromium, tmp_path: Path, width: int, scheme: str
) -> None:
    """A row has pixels only in its path's colour, and none where the path was unused."""
    browser.read(width, scheme)
    browser.show(report(tmp_path, rows()).as_uri())
    colours = browser.colours(".shares .way:first-child .legend .swatch")
    assert len(set(colours)) == len(PATHS)
    for figure in ("rate", "close", "bars"):
        downlink = f"figure:has(.{figure}) .way[data-way=Downlink]"
        first = 2 if figure == "rate" else 1  # above the paths' rates is that of the whole
        for number, own in enumerate(colours):
            row = f"{downlink} .figure-row:nth-of-type({first + number}) svg"
            seen = picture(browser.png(browser.place(row)))
            assert seen.share_near(own) > 0.02, (figure, number)
            for other in set(colours) - {own}:
                assert seen.share_near(other) == 0.0, (figure, number, other)
    # Path 2 is unused in the first half: only its row is empty there.
    halves = {n: _first_half(browser, f"figure:has(.rate) .figure-row:nth-of-type({n + 2}) svg")
              for n in range(3)}  # fmt: skip
    used = [picture(browser.png(half)).share_near(colours[n]) for n, half in halves.items()]
    assert used[0] > 0.1 < used[1]
    assert used[2] == 0.0


def _first_half(browser: Chromium, row: str) -> dict[str, float]:
    area = browser.place(row)
    return {**area, "width": area["width"] / 2 - 8}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_is_readable(browser: Chromium, tmp_path: Path, scheme: str) -> None:
    """At a phone's width nothing overflows, text keeps its size, and both colour schemes apply."""
    browser.read(360, scheme)
    browser.show(report(tmp_path, rows()).as_uri())
    assert browser.ask("document.documentElement.scrollWidth") <= 360
    smallest = browser.ask(
        """Math.min(...[...document.querySelectorAll('main *')]
            .filter(each => !each.closest('.sketch') && each.textContent.trim())
            .map(each => parseFloat(getComputedStyle(each).fontSize)))"""
    )
    assert smallest >= 12
    seen = picture(browser.png({"x": 0, "y": 0, "width": 360, "height": 740}, scale=0.25))
    ground = (253, 253, 252) if scheme == "light" else (20, 23, 27)
    assert 0.4 < seen.share_near(ground) < 0.98, "neither blank nor full"


def test_every_figure_has_a_name_for_those_who_do_not_see_it(
    browser: Chromium, tmp_path: Path
) -> None:
    """In the browser's accessibility tree, pictures, tables, regions and headings have names."""
    browser.show(report(tmp_path, rows()).as_uri())
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    names = {role: [n["name"]["value"] for n in nodes if n.get("role", {}).get("value") == role]
             for role in ("image", "table", "region", "heading")}  # fmt: skip
    assert len(names["image"]) >= 1 + 2 + 2 * (4 + 3 + 3)
    assert all(all(each) for each in names.values()), names
    assert names["heading"][0] == "What the observers saw"
    assert any("wlan" in name and "lte" in name for name in names["image"])


def test_hostile_names_stay_text(browser: Chromium, tmp_path: Path) -> None:
    """A path whose name looks like a script is shown as text; the browser does not run or fetch
    it.
    """
    page = report(tmp_path, rows(), ("wlan", EVIL, "home\u202e\x07"))
    browser.show(page.as_uri())
    assert browser.ask("document.title") == "What the observers saw: run.parquet"
    assert browser.ask("document.querySelectorAll('script, img').length") == 0
    assert "<script>" in browser.ask("document.body.innerText")
    assert counts(browser) == counted(rows())
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []


def test_the_page_forbids_what_it_does_not_need(browser: Chromium, tmp_path: Path) -> None:
    """Even if escaping failed, the page's content policy blocks scripts and requests."""
    page = report(tmp_path, rows())
    holed = tmp_path / "holed.html"
    picture_elsewhere = "http://192.0.2.1/x.png"
    hole = f'<script>document.title = "evil"</script><img src="{picture_elsewhere}">'
    holed.write_text(page.read_text().replace("<main>", f"<main>{hole}"))
    browser.show(holed.as_uri())
    assert browser.ask("document.title") == "What the observers saw: run.parquet"
    assert any("Content Security Policy" in each for each in browser.complaints)
    # Requests are recorded even if the browser blocks them.
    assert browser.requests == [holed.as_uri(), picture_elsewhere]
    assert browser.blocked == {picture_elsewhere: "csp"}


def test_without_scripts_it_is_the_same(browser: Chromium, tmp_path: Path) -> None:
    """With scripts disabled, the page looks the same, pixel for pixel."""
    page = report(tmp_path, rows())
    browser.show(page.as_uri())
    # The picture has full size: scaled pictures differ between runs at the browser's tile borders.
    usual = browser.png()
    with Chromium(HERE) as strict:
        strict.read(1280, "light")
        strict.without_scripts()
        strict.show(page.as_uri())
        assert strict.png() == usual
