"""An operator's own covers: `anabranch pt crawl`, and traffic that uses them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Results
from harness.capture import Tcpdump
from harness.disk import small_disk
from harness.net import Host
from harness.nginx import nginx
from harness.seeded import MIB, seeded_bytes
from harness.tools import Background, anabranch, tool, wait_for
from harness.tornet import free_ports
from harness.webfiles import FileServer, fetch
from test_pt import PICTURES
from test_pt_site import HTTP, bridge_line, listens

pytestmark = [pytest.mark.pt, pytest.mark.timeout(300)]

LENGTHS = (1, 514, 100_000, 2 * MIB)
TOKENS = ",".join(f'"{"aB3_" * 90}"' for _ in range(60))
#: Files of a site, good and broken.
FILES = {
    "index.html": b"<!doctype html><title>A</title><img src=a.jpg><script src=app.js></script>",
    "a.jpg": (PICTURES / "colour.jpg").read_bytes(),
    "app.js": f"const all = [{TOKENS}, 1];".encode(),
    "list.json": f"[{TOKENS}, 1]".encode(),
    "secret.ts": seeded_bytes(60_000),
    "broken.js": f"const all = [{TOKENS}, 1;".encode(),
    "broken.json": f"[{TOKENS}, 1".encode(),
    "broken.jpg": (PICTURES / "colour.jpg").read_bytes()[:3_000],
    "plain.ts": bytes(60_000),
    "empty.json": b"",
}
KEPT = {"/a.jpg", "/app.js", "/list.json", "/secret.ts"}


@pytest.fixture(scope="module")
def www(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the site's folder."""
    folder = tmp_path_factory.mktemp("site")
    folder.chmod(0o755)
    (folder / "www").mkdir()
    for name, body in FILES.items():
        (folder / "www" / name).write_bytes(body)
    return folder / "www"


@pytest.fixture(scope="module")
def site(www: Path) -> Iterator[int]:
    """Runs an unmodified nginx with the site; yields its port."""
    (port,) = free_ports(1)
    folder = www.parent
    http = HTTP.replace("PORT", str(port)).replace("PATIENCE", "20")
    with Background(nginx(folder, http)):
        wait_for("nginx", lambda: listens(port))
        yield port


def crawled(source: Path, out: Path, *more: str) -> dict[str, Any]:
    """Runs `pt crawl`; returns its JSON output about the covers."""
    command = [anabranch(), "pt", "crawl", str(source), "--out", str(out), "--json", *more]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    event: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return event


def kept(covers: Path) -> dict[str, dict[str, Any]]:
    """Returns the objects of covers that hide bytes, by path."""
    document = json.loads((covers / "covers.json").read_text())
    return {one["path"]: one for one in document["objects"] if "slots" in one}


@contextmanager
def recorded(file: Path, port: int) -> Iterator[None]:
    """Captures the traffic of a loopback port while the block runs."""
    with Tcpdump(Host("here"), "lo", file, f"tcp port {port}") as dump:
        yield
        dump.stop()


@contextmanager
def both_ends(
    folder: Path, server: Sequence[str], client: Sequence[str] = (), port: int = 0
) -> Iterator[tuple[FileServer, int]]:
    """Yields a file server behind `pt server` (at ``port``), and the port of a `pt client`."""
    bridge, near = free_ports(2)
    with ExitStack() as stack:
        files = stack.enter_context(FileServer())
        far = [anabranch(), "pt", "server", "--json", "--listen", f"127.0.0.1:{port or bridge}"]
        far += ["--to", f"127.0.0.1:{files.port}", "--key", str(folder / "key"), *server]
        line = bridge_line(stack.enter_context(Background(far)))
        own = [anabranch(), "pt", "client", "--listen", f"127.0.0.1:{near}", "--bridge", line]
        stack.enter_context(Background([*own, *client]))
        wait_for("the client", lambda: listens(near))
        yield files, near


def arrive(
    lengths: Sequence[int], ends: tuple[FileServer, int], into: Path, note: tuple[Results, str]
) -> None:
    """Asserts that files of these lengths arrive intact, and records the time of each."""
    (files, port), (results, profile) = ends, note
    for length in lengths:
        through = ["--connect-to", f"::127.0.0.1:{port}"]
        got = fetch(files.url(length), "", into, 120.0, *through)
        assert not got.fault(length), f"{profile}, {length} bytes: {got.fault(length)}"
        results.add("covers", profile=profile, bytes=length, seconds=f"{got.seconds:.2f}")


def test_a_folder_is_made_covers_and_broken_files_are_left_out(www: Path, tmp_path: Path) -> None:
    """Chromium accepts each object in the covers; a script that only a browser could check is left
    out.
    """
    made = crawled(www, tmp_path / "own", "--browser", tool("chromium"))
    assert set(kept(tmp_path / "own")) == KEPT
    assert made["kinds"] == {"image": 1, "opaque": 1, "text": 2}
    assert made["browser"] == [3, 4]
    reasons = made["left_out"]
    assert reasons["the browser rejects it"] == 1
    assert reasons["invalid JSON"] == 1
    assert reasons["not encrypted"] == 1
    assert reasons["not a baseline JPEG of one scan"] == 1
    seen = {path for path, one in kept(tmp_path / "own").items() if one["slots"]["browser"]}
    assert seen == KEPT - {"/secret.ts"}
    without = crawled(www, tmp_path / "strict")
    assert set(kept(tmp_path / "strict")) == KEPT - {"/app.js"}
    assert without["left_out"]["a script, which only a browser (--browser) can check"] == 2


def test_a_capture_of_visits_has_nginxs_heads_in_their_order(
    site: int, www: Path, tmp_path: Path
) -> None:
    """From a capture of curl's visits, the covers have its pages, objects and original headers,
    and shapes for `embed`.
    """
    curl = [tool("curl"), "-sS", "-o", "/dev/null", "-H", f"Cookie: a={'x' * 700}"]
    with recorded(tmp_path / "visits.pcap", site):
        for path in ("index.html", "a.jpg", "list.json"):
            subprocess.run([*curl, f"http://127.0.0.1:{site}/{path}"], check=True)
    made = crawled(tmp_path / "visits.pcap", tmp_path / "own")
    assert made["pages"] == 1
    found = kept(tmp_path / "own")
    assert set(found) == {"/a.jpg", "/list.json"}
    names = [name for name, _ in found["/a.jpg"]["headers"]]
    assert names == ["Server", "Date", "Content-Type", "Content-Length", "Last-Modified",
                     "Connection", "ETag", "Accept-Ranges"]  # fmt: skip
    assert found["/a.jpg"]["bytes"] == len(FILES["a.jpg"])
    shapes = crawled(tmp_path / "visits.pcap", tmp_path / "own.shapes", "--shape")
    assert len(shapes["names"]) == 3
    bad = tmp_path / "cut.pcap"
    bad.write_bytes((tmp_path / "visits.pcap").read_bytes()[:-7])
    command = [anabranch(), "pt", "crawl", str(bad), "--out", str(tmp_path / "none")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 2, said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert not (tmp_path / "none").exists()


def test_what_passes_are_the_sites_objects_and_visitors_see_the_site(
    site: int, www: Path, tmp_path: Path, results: Results
) -> None:
    """Files arrive intact; a capture of the transfer contains the site's objects, which Chromium
    accepts.
    """
    crawled(www, tmp_path / "own", "--browser", tool("chromium"))
    (port,) = free_ports(1)
    server = ["--profile", "http-site", "--covers", str(tmp_path / "own")]
    server += ["--site", f"127.0.0.1:{site}"]
    seen = tmp_path / "seen.pcap"
    with both_ends(tmp_path, server, port=port) as ends:
        with recorded(seen, port):
            arrive(LENGTHS, ends, tmp_path / "got", (results, "http-site"))
        place = f"http://127.0.0.1:{port}/list.json"
        said = subprocess.run([tool("curl"), "-sS", place], capture_output=True, check=True)
        assert said.stdout == FILES["list.json"]
    again = crawled(seen, tmp_path / "again", "--browser", tool("chromium"))
    assert again["browser"][0] == again["browser"][1] >= 3
    assert set(kept(tmp_path / "again")) >= KEPT


@pytest.mark.parametrize("own", [False, True], ids=["recorded", "own"])
def test_files_come_in_the_shapes_of_recorded_connections(
    site: int, tmp_path: Path, results: Results, own: bool
) -> None:
    """Files of 1 B to 2 MiB arrive intact, with built-in shapes and with those of a capture of
    curl.
    """
    both: list[str] = []
    if own:
        body = tmp_path / "body"
        body.write_bytes(seeded_bytes(300_000))
        curl = [tool("curl"), "-sS", "-o", "/dev/null", f"http://127.0.0.1:{site}/a.jpg"]
        with recorded(tmp_path / "posts.pcap", site):
            for _ in range(2):
                subprocess.run([*curl, "-H", "Expect:", "--data-binary", f"@{body}"], check=True)
            subprocess.run([*curl, "-H", f"Cookie: a={'x' * 700}"], check=True)
        crawled(tmp_path / "posts.pcap", tmp_path / "own.shapes", "--shape")
        both = ["--shapes", str(tmp_path / "own.shapes")]
    lengths = LENGTHS[:3] if own else LENGTHS
    with both_ends(tmp_path, ["--profile", "embed", *both], both) as ends:
        arrive(lengths, ends, tmp_path / "got", (results, "embed, own" if own else "embed"))


def test_a_full_disk_leaves_no_half_of_covers(www: Path, tmp_path: Path) -> None:
    """One line reports the full disk, and no output remains."""
    with small_disk(tmp_path / "disk", 64) as disk:
        command = [anabranch(), "pt", "crawl", str(www), "--out", str(disk / "own")]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        assert said.returncode == 1, said.stderr
        assert len(said.stderr.splitlines()) == 1
        assert "No space left" in said.stderr
        assert list(disk.iterdir()) == []
