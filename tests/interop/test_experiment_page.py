"""The page of `anabranch experiment overhead` in a browser: figures show the measured values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.chromium import Chromium
from harness.experiment import CALM, Experiment, written
from harness.png import picture

pytestmark = pytest.mark.browser

EVERY = (10, 100, 1000, 0)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the page made from synthetic runs, which are slower the more often they switch."""
    folder = tmp_path_factory.mktemp("overhead")
    header = {
        "experiment": "overhead", "version": 1, "seed": 1, "seconds": 10.0, "bytes": None,
        "splitter": [],
    }  # fmt: skip
    runs = [_run(net, paths, every, n) for net in ("equal", "unequal") for paths in (2, 3)
            for every in EVERY for n in range(3)]  # fmt: skip
    written(folder, header, runs)
    Experiment("overhead", folder).must("--report")
    return folder / "overhead.html"


def _run(net: str, paths: int, every: int, repetition: int) -> dict[str, Any]:
    mbits = {10: 20, 100: 55, 1000: 85, 0: 90}[every] + repetition
    used = 1 if every == 0 else paths
    return {
        "unit": f"quinn/{net}/{paths}/{every}/{repetition}", "system": "quinn", "net": net,
        "paths": paths, "every": every, "repetition": repetition, "weights": [1 / paths] * paths,
        "started": 1.7e9, "seconds": 10.0, "bytes": mbits * 1_250_000, "longest_gap": 0.1,
        "up": [10] * paths, "down": [100] * used + [0] * (paths - used), "error": "",
        "machine": CALM,
    }  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_figures_show_their_lines_in_their_colours(
    browser: Chromium, page: Path, width: int, scheme: str
) -> None:
    """For two networks and two numbers of paths, each row shows only its own colour."""
    browser.read(width, scheme)
    browser.show(page.as_uri())
    colours = browser.colours(".way[data-way=equal] .swatch")
    assert len(set(colours)) == 2
    for net in ("equal", "unequal"):
        for number, own in enumerate(colours):
            row = f".way[data-way={net}] .figure-row:nth-of-type({number + 1}) svg"
            seen = picture(browser.png(browser.place(row)))
            assert seen.share_near(own) > 0.003, (net, number)
            assert seen.share_near(colours[1 - number]) == 0.0, (net, number)
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.ask("document.documentElement.scrollWidth") <= width


def test_lines_rise_where_switching_is_slower(browser: Chromium, page: Path) -> None:
    """The medians, 21, 56 and 86 of 91 Mbit/s, are at their positions on a scale that ends at 120
    %.
    """
    browser.window(1280, 900)
    browser.show(page.as_uri())
    drawn = browser.ask(
        "document.querySelector('.way[data-way=equal] .figure-row path.line').getAttribute('d')"
    )
    points = [tuple(map(float, point.split())) for point in drawn.lstrip("M").split("L")]
    assert [x for x, _ in points] == [0.5, 1.5, 2.5]
    heights = [100 - 100 * share / 1.2 for share in (21 / 91, 56 / 91, 86 / 91)]
    assert [y for _, y in points] == pytest.approx(heights, abs=0.01)


def test_targets_stand_in_a_table_and_everything_has_a_name(browser: Chromium, page: Path) -> None:
    """The table has the kept share, the target and the paper's number; pictures have names."""
    browser.show(page.as_uri())
    row = browser.ask(
        "[...document.querySelectorAll('.targets tbody tr > *')].map(e => e.innerText)"
    )
    kept = "61.5 % (60.4–62.6, 3 downloads)"
    assert row == ["QUIC: quinn", kept, "≥ 80 %", "10-20 % lost", "no"]
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    images = [n["name"]["value"] for n in nodes if n.get("role", {}).get("value") == "image"]
    assert len(images) == 4
    assert all("goodput by switching interval" in name for name in images)
