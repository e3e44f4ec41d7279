"""Page loads through our transport, with SSH and tor inside, for the lab's evaluation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.net import namespaces_allowed
from harness.seeded import seeded_bytes
from harness.siteloads import Page, pages_of
from harness.tools import CACHE, INTEROP, MissingPeer

pytestmark = [pytest.mark.pt, pytest.mark.timeout(900)]

ROOT = INTEROP.parent.parent
KINDS = ("direct", "ssh-http-opaque", "tor-http-site-b")
SITES, OTHERS, TURNS = 2, 1, 2
FILES = 6
"""Files of a site in addition to its page."""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a web of small sites: the visited ones, and ten for each database."""
    folder = tmp_path_factory.mktemp("web")
    folder.chmod(0o755)
    names = [f"site{number:02}" for number in range(SITES + OTHERS * TURNS + 20)]
    listing = ""
    for number, name in enumerate(names):
        (folder / name).mkdir()
        content = seeded_bytes(8_000 + 500 * number)
        for file in range(FILES):
            (folder / name / f"{file}.bin").write_bytes(content)
        links = "".join(f'<img src="{file}.bin">' for file in range(FILES))
        text = f"<!doctype html><title>{name}</title><h1>{name}</h1>{links}"
        (folder / name / "index.html").write_text(text)
        listing += f'[[site]]\nname = "{name}"\npage = "index.html"\n'
        listing += f"bytes = {FILES * len(content)}\nfiles = {FILES + 1}\n"
    (folder / "sites.toml").write_text(listing)
    return folder


def test_no_site_is_visited_and_in_a_database(web: Path) -> None:
    """The databases and the visited pages divide the web."""
    pages = pages_of(web, SITES, OTHERS * TURNS)
    assert pages.visited == [Page("site00", "index.html"), Page("site01", "index.html")]
    assert len(pages.others) == OTHERS * TURNS
    every = [*pages.visited, *pages.others, *pages.databases["a"], *pages.databases["b"]]
    assert len({page.site for page in every}) == len(every) == SITES + OTHERS * TURNS + 20


def test_loads_by_each_tunnel_are_complete_and_made_once(web: Path, tmp_path: Path) -> None:
    """Every page arrives through SSH and tor in our transport; a lost capture is made again."""
    if not namespaces_allowed():
        raise MissingPeer("network namespaces, which need root here")
    folder = tmp_path / "loads"
    collect(web, folder)
    loads = listed(folder)
    assert len(loads) == TURNS * (SITES + OTHERS) * len(KINDS)
    assert [load for load in loads if "failed" in load] == []
    for kind in KINDS:
        own = [load for load in loads if load["kind"] == kind]
        assert sum(load["monitored"] for load in own) == TURNS * SITES
        assert len({load["site"] for load in own}) == SITES + OTHERS * TURNS
    # The second turn of one kind is lost.
    lost = f"{KINDS[1]}/001.pcap"
    kept = [load for load in loads if load["file"] != lost]
    (folder / "loads.jsonl").write_text("".join(json.dumps(load) + "\n" for load in kept))
    collect(web, folder)
    again = listed(folder)
    assert again[: len(kept)] == kept
    assert {load["file"] for load in again[len(kept) :]} == {lost}
    judged(folder, tmp_path / "results")


def collect(web: Path, folder: Path) -> None:
    """Runs the collection to its end."""
    command = [sys.executable, str(ROOT / "bench/camouflage_fingerprinting.py"), "--web", str(web)]
    command += ["--turns", str(TURNS), "--sites", str(SITES), "--others", str(OTHERS)]
    done = subprocess.run([*command, str(folder), *KINDS], capture_output=True, text=True,
                          timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not captured" not in done.stderr, done.stderr


def listed(folder: Path) -> list[dict[str, Any]]:
    """Returns all loads that were made."""
    return [json.loads(line) for line in (folder / "loads.jsonl").read_text().splitlines()]


def judged(folder: Path, results: Path) -> None:
    """Has the lab convert and evaluate the loads."""
    lab = CACHE / "venv-lab/bin/python"
    if not lab.exists():
        raise MissingPeer("the lab is not installed; tests/interop/setup --area pt installs it")
    command = [str(lab), "-c", "from anabranch.cli import main; main()", "camouflage"]
    command += [str(results), "--captures", str(folder), "--attack", "k-fp"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab/src")}
    subprocess.run(command, check=True, env=environment)
    rows = [json.loads(line) for line in (results / "results.jsonl").read_text().splitlines()]
    tested = {(row["measure"], row["tested"]) for row in rows}
    assert tested == {(what, kind) for what in ("sums", "closed", "open") for kind in KINDS}
    for row in rows:
        if row["measure"] == "closed":
            assert row["numbers"]["predictions"] == TURNS * SITES
