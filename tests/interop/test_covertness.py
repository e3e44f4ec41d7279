"""The lab's fixed detectors on all camouflage modules, and on transports that they must match."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from conftest import Results
from harness import covertness
from harness.capture import Tcpdump
from harness.chromium import Chromium
from harness.covertness import OURS, REAL, SNAP, STRANGERS, Entry, Site, World
from harness.net import namespaces_allowed
from harness.tools import CACHE, INTEROP, MissingPeer

pytestmark = [pytest.mark.pt, pytest.mark.timeout(600)]

FEWEST = 60
"""Number of first packets of each transport."""
ALL = ("fully encrypted", "entropy", "not printable")
PAGE = "<!doctype html><title>A</title><link rel=stylesheet href=a.css><img src=a.png>"
TOKENS = ",".join(f'"{"aB3_" * 90}"' for _ in range(60))
FILES = {
    "index.html": PAGE.encode(), "a.css": b"p{}\n" * 9_000, "a.png": b"no",
    "list.json": f"[{TOKENS}]".encode(),
}  # fmt: skip
"""Files of the site; http-site hides bytes in its list."""
OBJECTS = [[3_000, 40_000, 60_000], [3_000, 40_000, 60_000]]
"""Bytes of two pages' objects."""
# Rules of first packets that match nearly all connections of a transport. First packets of nosteg
# are often too short for chi-square.
HIT = {
    "obfs4": set(ALL), "webtunnel": set(), "nosteg": {"fully encrypted", "not printable"},
    "nosteg-short": {"fully encrypted", "not printable"}, "nosteg-rr": set(ALL),
    "embed": set(ALL),
}  # fmt: skip
MOST, LEAST = 0.85, 0.3
"""Bounds of the share of random first packets that the rule for fully encrypted traffic matches.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of captures of a browser's visit and of each transport.

    Of a transport, there are two page loads and first packets.
    """
    if not namespaces_allowed():
        raise MissingPeer("network namespaces, which need root here")
    at, kept = tmp_path_factory.mktemp("captures"), tmp_path_factory.mktemp("kept")
    kept.chmod(0o755)
    web = tmp_path_factory.mktemp("web")
    web.chmod(0o755)
    for name, content in FILES.items():
        (web / name).write_bytes(content)
    covertness.crawl(web, kept / "covers")
    with (
        World(kept, web, kept / "covers", 1) as world,
        (at / "manifest.jsonl").open("w") as manifest,
    ):
        for name in (REAL[0], *STRANGERS, *OURS):
            manifest.write(_session(world, name, at).line())
            if name not in REAL:
                file = f"{name}-firsts.pcap"
                links = -(-FEWEST // covertness.connections(name))
                covertness.firsts(world, name, at / file, links)
                entry = Entry(file, name, world.ports[name], purpose="detectors")
                manifest.write(entry.line())
    return at


def _session(world: World, name: str, folder: Path) -> Entry:
    host, port, file = world.clients[0], world.ports[name], f"{name}.pcap"
    site = Site("a", [f"http://{covertness.SERVER}/"] * 2, OBJECTS)
    with Tcpdump(host, "l0", folder / file, f"tcp port {port}", SNAP) as dump:
        if name in REAL:
            with Chromium(host) as browser:
                covertness.browse(browser, site, lambda _: None)
        else:
            with world.dial(name, host) as way:
                covertness.load(host, way, site, [0.2, 0.2])
                covertness.settled(host, port, 2.0)
        dump.stop()
    return Entry(file, name, port, site.name)


@pytest.fixture(scope="module")
def hits(folder: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """Returns the numbers of matched and of all connections, by class and detector."""
    lab, out = CACHE / "venv-lab/bin/python", folder / "hits.json"
    if not lab.exists():
        raise MissingPeer("the lab is not installed; tests/interop/setup --area pt installs it")
    command = [str(lab), "-c", "from anabranch.cli import main; main()", "covertness"]
    environment = {**os.environ, "PYTHONPATH": str(INTEROP.parent.parent / "lab/src")}
    subprocess.run([*command, str(folder), "--detectors", "--out", str(out)], check=True,
                   env=environment)  # fmt: skip
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for each in json.loads(out.read_text())["hits"]:
        found.setdefault(each["name"], {})[each["detector"]] = each["hits"], each["connections"]
    return found


def test_no_detector_hits_a_browser_or_a_module_of_http(
    hits: dict[str, dict[str, tuple[int, int]]], results: Results
) -> None:
    """Their first packets are requests, and their sizes show no TLS handshake."""
    for name, own in hits.items():
        results.add("fixed detectors: hits of connections", name=name,
                    **{word: f"{hit}/{count}" for word, (hit, count) in own.items()})  # fmt: skip
        if name == REAL[0] or name.startswith("http"):
            assert not any(hit for hit, _ in own.values()), (name, own)
            assert name == REAL[0] or own["fully encrypted"][1] >= FEWEST


@pytest.mark.parametrize("name", HIT)
def test_what_is_random_from_its_first_packet_is_hit(
    hits: dict[str, dict[str, tuple[int, int]]], name: str
) -> None:
    """Control: obfs4 and chopper alone must match, or else the detectors are broken."""
    for word in ALL:
        hit, count = hits[name][word]
        assert count >= FEWEST
        if word in HIT[name]:
            assert hit >= MOST * count, (word, hit, count)
        else:
            assert hit <= LEAST * count, (word, hit, count)
