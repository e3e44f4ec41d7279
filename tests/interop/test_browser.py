"""An unmodified Chromium loads a page over HTTP/3 while its connection is split."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from conftest import MakeNetwork, Results
from harness import quic
from harness.chromium import Chromium
from harness.fair import difference, unfair
from harness.interface import interface
from harness.net import SERVER, Host, Network, links
from harness.splitter import LISTEN, Splitter, interfaces
from harness.website import pictures_of, write_site

pytestmark = pytest.mark.browser

PATHS = 3
OBJECTS = 32
HEIGHT = 512  # of each picture: 768 KiB, so that the page takes dozens of slices
NAME = "anabranch.test"
PORT = 443  # what an interface takes for QUIC without being told
EVERY = "100ms"
# At the rate of one path the page takes 3 s. Some servers restart congestion control at each switch
# (docs/notes/quic-servers.md).
LIMIT = 90.0
PROTOCOLS = """[...performance.getEntriesByType('navigation'),
    ...performance.getEntriesByType('resource').filter(each => each.initiatorType === 'img')
].map(each => each.nextHopProtocol)"""

LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


@dataclass(frozen=True)
class Way:
    """A browser's route, from ``host``, to the server through a splitter."""

    host: Host
    address: str
    port: int
    splitter: Splitter


@contextlib.contextmanager
def by_local_port(network: Network) -> Iterator[Way]:
    """Yields a route in which the server's name resolves to the splitter's port."""
    to = f"{SERVER}:{PORT}"
    with Splitter(network.client, to, interfaces(PATHS), every=EVERY) as splitter:
        address, port = LISTEN.split(":")
        yield Way(network.client, address, int(port), splitter)


@contextlib.contextmanager
def by_interface(network: Network) -> Iterator[Way]:
    """Yields a route over the splitter's interface, to which the machine's routes lead."""
    with interface(network.client, interfaces(PATHS), every=EVERY) as splitter:
        yield Way(network.client, SERVER, PORT, splitter)


@contextlib.contextmanager
def by_interface_apart(network: Network) -> Iterator[Way]:
    """Yields a route over the splitter's interface in a namespace that only the browser uses."""
    name = f"anabranch-page-{os.getpid()}"
    words = ("--netns", name)
    with interface(network.client, interfaces(PATHS), *words, every=EVERY) as splitter:
        yield Way(Host("apart", f"/run/netns/{name}"), SERVER, PORT, splitter)


TRANSPORTS: dict[str, Callable[[Network], contextlib.AbstractContextManager[Way]]] = {
    "local port": by_local_port,
    "tun": by_interface,
    "tun, netns": by_interface_apart,
}


@pytest.mark.parametrize("kind", ["quic-go, files", "gtlsserver"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_page_with_32_objects_arrives_whole_over_three_paths(
    make_network: MakeNetwork, tmp_path: Path, results: Results, transport: str, kind: str
) -> None:
    """All objects arrive intact over HTTP/3, and all paths are used in both directions."""
    network = make_network(links(PATHS), default_routes=True)
    wanted = write_site(tmp_path / "site", OBJECTS, HEIGHT)
    serving = quic.serving(kind, network.server, tmp_path, port=PORT)
    with serving, TRANSPORTS[transport](network) as way:
        before = network.stats()
        with Chromium(way.host, options(way, tmp_path)) as browser:
            browser.show(f"https://{NAME}:{way.port}/", seconds=LIMIT)
            got = pictures_of(browser)
            protocols = browser.ask(PROTOCOLS)
            seconds = browser.ask(LOADED) / 1000
            assert not browser.complaints
        carried = difference(network.stats(), before)
        switches = way.splitter.stop()
    assert got == {name: (sha256, HEIGHT) for name, sha256 in wanted.items()}
    assert protocols == ["h3"] * (1 + OBJECTS)
    # As in test_quic.py, between half and twice the fair share is accepted.
    assert not unfair(carried, dict.fromkeys(carried, (0.5 / PATHS, 2 / PATHS)))
    assert not any("down" in way.splitter.changes(path) for path in carried)
    assert _switches(switches) >= 0.5 * seconds / 0.1
    results.add(
        "A page of 32 objects in Chromium", server=kind, transport=transport, seconds=seconds,
        mbits=8e-6 * sum(each.down_bytes for each in carried.values()) / seconds,
    )  # fmt: skip


def options(way: Way, folder: Path) -> list[str]:
    """Returns the browser's options: it uses QUIC to the splitter from the first packet, and
    trusts our certificate.
    """
    return [
        f"--host-resolver-rules=MAP {NAME} {way.address}",
        f"--origin-to-force-quic-on={NAME}:{way.port}",
        f"--ignore-certificate-errors-spki-list={_public_key_hash(folder / 'certificate.pem')}",
    ]


def _public_key_hash(certificate: Path) -> str:
    """Returns the SHA-256, in base64, of a certificate's SubjectPublicKeyInfo, as in pins (RFC
    7469).
    """
    key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(info).digest()).decode()


def _switches(summary: dict[str, Any]) -> int:
    return sum(path["switches"] for path in summary["paths"])
