"""A page with pictures for a browser, and a check of the pictures that the browser received."""

from __future__ import annotations

import hashlib
import struct
import time
from pathlib import Path

from harness.chromium import Chromium
from harness.net import Host
from harness.seeded import seeded_bytes
from harness.webfiles import SiteServer

WIDTH = 512  # of each picture, in pixels
BYTES_A_PIXEL = 3
# Reads every picture as received from the browser's cache, without network requests.
HASHES = """Promise.all([...document.images].map(async picture => {
    const got = await fetch(picture.src, {cache: 'only-if-cached', mode: 'same-origin'});
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', await got.arrayBuffer()));
    const hex = [...digest].map(byte => byte.toString(16).padStart(2, '0')).join('');
    return [new URL(picture.src).pathname.slice(1), hex, picture.naturalHeight];
}))"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{count} pictures</title>
<link rel="icon" href="data:,"></head>
<body>{pictures}</body></html>
"""


def write_site(folder: Path, count: int, height: int) -> dict[str, str]:
    """Writes ``index.html`` and ``count`` pictures of noise, each 512 pixels wide and ``height``
    high.

    Returns the SHA-256 of each picture by its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {}
    for number in range(count):
        content = _bitmap(height, seed=number)
        name = f"{number}.bmp"
        (folder / name).write_bytes(content)
        hashes[name] = hashlib.sha256(content).hexdigest()
    pictures = "".join(f'<img src="{name}" alt="noise" width="64">\n' for name in hashes)
    (folder / "index.html").write_text(PAGE.format(count=count, pictures=pictures))
    return hashes


def pictures_of(browser: Chromium) -> dict[str, tuple[str, int]]:
    """Returns SHA-256 and height of each picture of the page that a browser shows, by name."""
    return {name: (sha256, height) for name, sha256, height in browser.ask(HASHES)}


def load_by_proxy(
    folder: Path, proxy: str, objects: int, height: int, host: str = "web.example"
) -> float:
    """Loads a page of ``objects`` pictures of ``height`` in a Chromium that uses only this SOCKS5
    proxy; returns the seconds it took.

    ``host`` is the name of this machine at the proxy's far end.

    Raises:
        AssertionError: if a picture differs from the one sent, or the browser reports an error.
    """
    hashes = write_site(folder, objects, height)
    with SiteServer(folder) as server:
        origin = f"http://{host}:{server.port}"
        # Without the second option, Chromium connects to 127.0.0.1 without the proxy.
        options = [f"--proxy-server=socks5://{proxy}", "--proxy-bypass-list=<-loopback>"]
        # Browsers offer hashes only to pages of a secure origin.
        options.append(f"--unsafely-treat-insecure-origin-as-secure={origin}")
        with Chromium(Host("here", None), options) as browser:
            begin = time.monotonic()
            browser.show(f"{origin}/index.html", seconds=120.0)
            took = time.monotonic() - begin
            got = pictures_of(browser)
            assert browser.complaints == []
    assert got == {name: (sha256, height) for name, sha256 in hashes.items()}
    return took


def _bitmap(height: int, seed: int) -> bytes:
    """Returns a Windows bitmap, 24 bits a pixel, whose pixels are seeded bytes."""
    size = WIDTH * BYTES_A_PIXEL * height
    start = 14 + 40
    file_header = struct.pack("<2sIHHI", b"BM", start + size, 0, 0, start)
    picture_header = struct.pack(
        "<IiiHHIIiiII", 40, WIDTH, height, 1, 24, 0, size, 2835, 2835, 0, 0
    )
    return file_header + picture_header + seeded_bytes(size, seed)
