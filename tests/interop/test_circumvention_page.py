"""The page of `anabranch experiment circumvention` in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.chromium import Chromium
from harness.experiment import CALM, Experiment, written
from harness.png import picture

pytestmark = pytest.mark.browser

# Seconds to the first byte, by way.
TIMES = {
    "open": (0.060, 0.066, 0.070), "vpn": (0.208, 0.212, 0.216), "handshake": (0.300, 0.350, 0.400),
}  # fmt: skip
DIRECT = 0.8
RIGHT_EDGE = 0.4 * 1.05


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the page made from a journal of synthetic fetches."""
    folder = tmp_path_factory.mktemp("circumvention")
    fetches = [_fetch(way, n, at) for way, times in TIMES.items() for n, at in enumerate(times)]
    fetches += [_fetch("direct", n, 0.0) for n in range(3)]
    written(folder, {"experiment": "circumvention", "seed": 1, "program": "its own"}, fetches)
    Experiment("circumvention", folder).must("--report")
    return folder / "circumvention.html"


def _fetch(access: str, repetition: int, first_byte: float) -> dict[str, Any]:
    through = first_byte > 0
    size = 1_000_000 if through else 0
    direct = int(size * {"open": 1.0, "handshake": DIRECT}.get(access, 0.0))
    return {
        "unit": f"quic-go/{access}/{repetition}", "server": "quic-go", "access": access,
        "repetition": repetition, "started": 1.7e9, "through": through, "first_byte": first_byte,
        "seconds": 1.0, "bytes": size, "direct": [0, direct], "vpn": [0, size - direct],
        "censored": int(not through), "error": "" if through else "timeout", "machine": CALM,
    }  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_dots_stand_where_the_times_are_in_their_own_colour(
    browser: Chromium, page: Path, width: int, scheme: str
) -> None:
    """Each of three rows has its dots, from first to last, only in its own colour."""
    browser.read(width, scheme)
    browser.show(page.as_uri())
    colours = browser.colours(".way[data-way=first] .swatch")
    assert len(set(colours)) == 3
    for number, (way, times) in enumerate(TIMES.items()):
        row = f".way[data-way=first] .figure-row:nth-of-type({number + 1}) svg"
        seen = picture(browser.png(browser.place(row)))
        first, last = seen.extent_near(colours[number])
        assert first == pytest.approx(min(times) / RIGHT_EDGE, abs=0.015), way
        assert last == pytest.approx(max(times) / RIGHT_EDGE, abs=0.015), way
        for other in set(colours) - {colours[number]}:
            assert seen.share_near(other) == 0.0, way
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.ask("document.documentElement.scrollWidth") <= width


def test_the_bar_shows_who_carried_the_bytes(browser: Chromium, page: Path) -> None:
    """The bar shows four fifths for the direct path, and the rest for the VPN."""
    browser.read(1280, "light")
    browser.show(page.as_uri())
    direct, vpn = browser.colours(".way[data-way=shares] .swatch")
    seen = picture(browser.png(browser.place(".way[data-way=shares] svg")))
    assert seen.share_near(direct) == pytest.approx(DIRECT, abs=0.03)
    assert seen.share_near(vpn) == pytest.approx(1 - DIRECT, abs=0.03)


def test_it_says_in_short_what_it_costs(browser: Chromium, page: Path) -> None:
    """The verdict is shown: blocked, with too many bytes over the VPN in this journal; pictures
    have names.
    """
    browser.read(1280, "light")
    browser.show(page.as_uri())
    row = browser.ask(
        "[...document.querySelectorAll('.targets tbody tr > *')].map(e => e.innerText)"
    )
    share = "80.00 (80.00–80.00) %"
    assert row == ["QUIC: quic-go", "yes", "no", share, "284 (240–330)", "138 (92–184)"]
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    images = [n["name"]["value"] for n in nodes if n.get("role", {}).get("value") == "image"]
    assert len(images) == 4
    assert sum("time to the first byte" in name for name in images) == 3
