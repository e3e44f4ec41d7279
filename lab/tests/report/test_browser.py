"""The page in a real browser, without a network, in light and in dark."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from anabranch.report import curves, page
from anabranch.report.collection import Collection
from anabranch.report.html import document
from report.conftest import WR, result, save_all

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")

LIGHT, DARK = (255, 255, 255), (0x16, 0x18, 0x1C)


def browse(tmp_path: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Opens the page; the console goes to stderr."""
    file = tmp_path / "report.html"
    file.write_text(text, "utf-8")
    assert BROWSER is not None
    fixed = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--enable-logging=stderr", "--window-size=1300,3000",
             f"--user-data-dir={tmp_path / 'profile'}"]  # fmt: skip
    command = [BROWSER, *fixed, *options, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def console(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"CONSOLE.*", done.stderr)


def picture(tmp_path: Path, text: str, *options: str) -> Image.Image:
    shot = tmp_path / "shot.png"
    done = browse(tmp_path, text, f"--screenshot={shot}", *options)
    assert not console(done)
    with Image.open(shot) as image:
        return image.convert("RGB")


def ink(image: Image.Image, box: tuple[int, int, int, int]) -> float:
    """Returns the part of a box that is not background."""
    part, ground = image.crop(box), image.getpixel((1, 1))
    counts = part.getcolors(part.width * part.height) or []
    return 1 - sum(count for count, colour in counts if colour == ground) / (
        part.width * part.height
    )


def test_the_page_shows_in_light_and_in_dark(built: page.Page, tmp_path: Path) -> None:
    text = document(built)
    for options, ground in (((), LIGHT), (("--blink-settings=preferredColorScheme=0",), DARK)):
        image = picture(tmp_path, text, *options)
        assert image.getpixel((1, 1)) == ground
        # Text fills some hundredths of a page; a blank page or a black one fails.
        for top in range(0, 3000, 1000):
            assert 0.005 < ink(image, (0, top, 1300, top + 1000)) < 0.5, top


def test_the_browser_finds_every_figure_and_no_fault(built: page.Page, tmp_path: Path) -> None:
    done = browse(tmp_path, document(built), "--dump-dom")
    assert not console(done)
    for figure in built.figures:
        drawn = re.search(rf'<figure id="{figure.key}">.*?</figure>', done.stdout, re.DOTALL)
        assert drawn, figure.key
        assert drawn[0].count("<svg") == 1
        assert drawn[0].count("<text") > 10  # text stays text: readers can copy and search it
        assert "<path" in drawn[0]
    assert len(re.findall("<table>", done.stdout)) >= 8


MEASURE = """<script>
const outside = [...document.querySelectorAll("svg text")].filter(text => {
  const box = text.getBoundingClientRect(), page = text.closest("svg").getBoundingClientRect();
  return box.left < page.left - 1 || box.right > page.right + 1 || box.bottom > page.bottom + 1;
});
document.body.dataset.outside = outside.map(text => text.textContent).join("; ");
</script>"""
"""Records figures' texts beyond their edges."""


def test_no_text_leaves_its_figure(tmp_path: Path) -> None:
    reduced: dict[str, Any] = {"attack": "rf", "loads": 40, "resplits": 2, "validation_loads": 10}
    long = {"defence": "wtf-pad", "parameters": {"epochs": 20, "slots": 450}} | reduced | WR
    found = [result(0.3, world="open", monitored=5, **each) for each in (long, reduced | WR)]
    collection = Collection.read([save_all(found, tmp_path / "some.results")], paper=True)
    figures = curves.figures(collection, "nowhere")
    assert {"figure-6", "figure-7-rf"} <= {figure.key for figure in figures}
    for figure in figures:
        text = f"<!DOCTYPE html><link rel=icon href=data:,><body>{figure.inline}{MEASURE}"
        done = browse(tmp_path, text, "--dump-dom")
        assert 'data-outside=""' in done.stdout, done.stdout[done.stdout.index("data-outside") :][
            :99
        ]


def test_a_fault_would_be_seen(built: page.Page, tmp_path: Path) -> None:
    text = document(built).replace("</body>", '<script>alert("x")</script></body>')
    (said,) = console(browse(tmp_path, text, "--dump-dom"))
    assert "Content Security Policy" in said


def test_a_blank_page_would_be_seen(tmp_path: Path) -> None:
    image = picture(tmp_path, "<!DOCTYPE html><title>x</title><link rel=icon href=data:,>")
    assert ink(image, (0, 0, 1300, 1000)) == 0
