"""The page of `anabranch experiment pages` in a browser, and its data sheet."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from harness import trace
from harness.chromium import Chromium
from harness.experiment import CALM, Experiment, written
from harness.png import picture

pytestmark = pytest.mark.browser

# Seconds to the load event of each page; the axis ends at the next round number.
UNDEFENDED = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
SPLIT = {name: 2 * seconds for name, seconds in UNDEFENDED.items()}
TOP = 1.0
SHARES = (0.5, 0.3, 0.2)
SHARING = (
    "carried any of their bytes: 0 over 1, 0 over 2, 4 over 3. The busiest path of a load carried "
    "50.0 %"
)
STARTED = 1.7e9
SIZE = 100_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the page made from synthetic loads, of which one attempt failed."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "loads").mkdir()
    loads = [_load(folder, "undefended", *each) for each in UNDEFENDED.items()]
    loads += [_load(folder, "split", *each) for each in SPLIT.items()]
    loads.append(loads[0] | {"error": "no load event within 30 s", "unit": "undefended/e/0"})
    header = {
        "experiment": "pages", "version": 3, "seed": 1, "web": "0a0b", "http": "both",
        "splitter": [], "default": "round-robin --every 50p", "patience": 30.0,
        "program": "its own",
    }  # fmt: skip
    written(folder, header, loads)
    Experiment("pages", folder).must("--report")
    return folder / "pages.html"


def _load(folder: Path, mode: str, site: str, seconds: float) -> dict[str, Any]:
    shares = SHARES if mode == "split" else (1.0,)
    rows = [(path, 2.0 + path / 10, -1000) for path in range(len(shares))]
    names = [f"p{path}" for path in range(len(shares))]
    file = folder / "loads" / f"{mode}~{site}~0.parquet"
    trace.write(file, rows, names, start="2023-11-14T22:13:19Z")
    return {
        "unit": f"{mode}/{site}/0", "site": site, "page": f"https://{site}.example/",
        "monitored": True, "mode": mode, "repetition": 0, "attempt": 1, "seed": 1, "http": "h3",
        "started": STARTED, "seconds": seconds, "took": 3.0, "requests": 7, "refused": 1,
        "up_packets": [1] * len(shares), "up": [100] * len(shares),
        "down_packets": [1] * len(shares), "down": [int(SIZE * share) for share in shares],
        "browsers": 1, "error": "", "machine": CALM,
    }  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_bars_are_as_high_as_pages_are_slow(
    browser: Chromium, page: Path, width: int, scheme: str
) -> None:
    """Of two rows, undefended and split, each has its bars only in its own colour."""
    browser.read(width, scheme)
    browser.show(page.as_uri())
    colours = browser.colours("section[aria-labelledby=times] .swatch")
    assert len(set(colours)) == 2
    for number, times in enumerate((UNDEFENDED, SPLIT)):
        row = f"section[aria-labelledby=times] .figure-row:nth-of-type({number + 1}) svg"
        seen = picture(browser.png(browser.place(row)))
        # A bar takes 0.8 of its slot.
        filled = 0.8 * mean(times.values()) / TOP
        assert seen.share_near(colours[number]) == pytest.approx(filled, abs=0.03)
        assert seen.share_near(colours[1 - number]) == 0.0
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.ask("document.documentElement.scrollWidth") <= width


def test_each_path_has_its_share_of_the_bar(browser: Chromium, page: Path) -> None:
    """The bar shows half, three tenths and a fifth of the downlink, in the paths' colours."""
    browser.read(1280, "light")
    browser.show(page.as_uri())
    colours = browser.colours("section[aria-labelledby=paths] .swatch")
    seen = picture(browser.png(browser.place("section[aria-labelledby=paths] svg")))
    for colour, share in zip(colours, SHARES, strict=True):
        assert seen.share_near(colour) == pytest.approx(share, abs=0.03)


def test_failures_numbers_and_origin_are_told(browser: Chromium, page: Path) -> None:
    """The page shows failures with reasons, and that split loads take twice the time; the data
    sheet has the same numbers.
    """
    browser.read(1280, "light")
    browser.show(page.as_uri())
    text = browser.ask("document.body.innerText")
    assert "1 × no load event within 30 s" in text
    assert "2.00 (2.00–2.00) times as long split as undefended" in text
    assert "Program: its own." in text
    assert SHARING in text
    rows = browser.ask(
        "[...document.querySelectorAll('table.numbers tbody tr')].map(e => e.textContent)"
    )
    assert rows[0] == "ah31 + 10.200.10100100"
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    images = [n["name"]["value"] for n in nodes if n.get("role", {}).get("value") == "image"]
    assert len(images) == 3
    assert all(images)
    sheet = (page.parent / "DATASHEET.md").read_text()
    assert "4 monitored pages and 0 others" in sheet
    assert "| monitored, split | 4 | 4 | 0.50 (0.20–0.80) | 100 (100–100) | 6 (6–6) |" in sheet
    assert "| monitored, undefended | 4 | 4 | 0.25 (0.10–0.40) | 100 (100–100) | 2 (2–2) |" in sheet
    assert "1 attempts failed: no load event" in sheet
    assert SHARING in sheet
    assert "Program: its own." in sheet
