"""An unmodified nginx behind our camouflage: probers cannot distinguish it from nginx alone."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.chromium import Chromium
from harness.meddler import LIVES, Meddler
from harness.net import Host
from harness.nginx import nginx
from harness.seeded import MIB, seeded_bytes
from harness.tools import Background, anabranch, tool, wait_for
from harness.tornet import free_ports
from harness.webfiles import FileServer, fetch
from harness.website import pictures_of, write_site

pytestmark = [pytest.mark.pt, pytest.mark.timeout(120)]

PROFILES = ("http-opaque", "http-text", "http-site")
#: Seconds after which nginx closes a connection without a complete request.
PATIENCE_S = 2
#: Maximum additional delay of nginx's timeouts through our server, in seconds.
LATE_S = 0.7
OBJECTS, HEIGHT = 40, 16

HTTP = """\
  include /etc/nginx/mime.types;
  access_log FOLDER/visits;
  gzip on;
  gzip_types text/css;
  client_header_timeout PATIENCEs;
  client_body_timeout PATIENCEs;
  keepalive_timeout PATIENCEs;
  server { listen 127.0.0.1:PORT; root FOLDER/www; }
"""

CLOSE = b"Host: a\r\nConnection: close\r\n\r\n"
GET = b"GET / HTTP/1.1\r\n"

#: Pieces that a client sends: bytes, seconds of silence, or None for the end of its stream.
Said = Sequence[bytes | float | None]

PROBES: dict[str, Said] = {
    "a page": [GET + CLOSE],
    "a page, and then nothing": [GET + b"Host: a\r\n\r\n"],
    "HEAD": [b"HEAD / HTTP/1.1\r\n" + CLOSE],
    "OPTIONS": [b"OPTIONS * HTTP/1.1\r\n" + CLOSE],
    "TRACE": [b"TRACE / HTTP/1.1\r\n" + CLOSE],
    "CONNECT": [b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"],
    "HTTP/0.9": [b"GET /\r\n"],
    "HTTP/1.0": [b"GET / HTTP/1.0\r\n\r\n"],
    "HTTP/1.2": [b"GET / HTTP/1.2\r\n" + CLOSE],
    "HTTP/2.0": [b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"],
    "HTTP/2's first words": [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    "an upgrade to HTTP/2": [
        GET + b"Host: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n"
        b"Connection: close, Upgrade, HTTP2-Settings\r\n\r\n"
    ],
    "TLS": [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256))],
    "random bytes": [seeded_bytes(600)],
    "no host": [GET + b"Connection: close\r\n\r\n"],
    "two hosts": [GET + b"Host: b\r\n" + CLOSE],
    "lines without a return": [b"GET / HTTP/1.1\nHost: a\nConnection: close\n\n"],
    "empty lines first": [b"\r\n\r\n" + GET + CLOSE],
    "a zero byte": [b"GET /\0 HTTP/1.1\r\n" + CLOSE],
    "a long path": [b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n" + CLOSE],
    "a long header": [GET + b"X: " + b"a" * 40_000 + b"\r\n" + CLOSE],
    "500 headers": [GET + b"".join(b"X%d: y\r\n" % number for number in range(500)) + CLOSE],
    "a range": [b"GET /big HTTP/1.1\r\nRange: bytes=100-299\r\n" + CLOSE],
    "a range that is none": [b"GET /style.css HTTP/1.1\r\nRange: bytes=90000-\r\n" + CLOSE],
    "gzip": [b"GET /style.css HTTP/1.1\r\nAccept-Encoding: gzip\r\n" + CLOSE],
    "another ETag": [b'GET /style.css HTTP/1.1\r\nIf-None-Match: "x"\r\n' + CLOSE],
    "300 kB": [b"GET /big HTTP/1.1\r\n" + CLOSE],
    "three requests at once": [
        GET + b"Host: a\r\n\r\nGET /style.css HTTP/1.1\r\nHost: a\r\n\r\n"
        b"GET /nothing HTTP/1.1\r\n" + CLOSE
    ],
    "byte by byte": [part for byte in GET + CLOSE for part in (bytes([byte]), 0.005)],
    "nothing": [],
    "half a request": [GET + b"Host: a\r\n"],
    "half a request, and an end": [GET + b"Host: a\r\n", None],
    "an end": [None],
    "a page, and an end": [GET + b"Host: a\r\n\r\n", None],
    "POST": [b"POST / HTTP/1.1\r\nContent-Length: 5\r\n" + CLOSE + b"hello"],
    "half a POST": [b"POST / HTTP/1.1\r\nContent-Length: 50\r\n" + CLOSE + b"hello"],
    "POST in chunks": [
        b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + CLOSE + b"5\r\nhello\r\n0\r\n\r\n"
    ],
    "3 MB by POST": [b"POST / HTTP/1.1\r\nContent-Length: 3000000\r\n" + CLOSE + bytes(3_000_000)],
    "a POST that asks first": [
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n" + CLOSE, 0.2, b"hello"
    ],
    "a folder": [b"GET /sub HTTP/1.1\r\n" + CLOSE],
    "dots": [b"GET /../../etc/passwd HTTP/1.1\r\n" + CLOSE],
    "another site": [b"GET http://b/ HTTP/1.1\r\n" + CLOSE],
    "a cookie": [GET + b"Cookie: session=" + b"A" * 32 + b"\r\n" + CLOSE],
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A server's whole response without dates, how the connection ended, and after how long."""

    came: bytes
    ended: str
    seconds: float


def ask(port: int, said: Said) -> Answer:
    """Sends ``said`` to a port, and returns the response."""
    began, came, ended = time.monotonic(), b"", "closed"
    with socket.create_connection(("127.0.0.1", port), 10.0) as link:
        # A server that closes the connection while the client sends may have responded before.
        with suppress(ConnectionError):
            for part in said:
                if part is None:
                    link.shutdown(socket.SHUT_WR)
                elif isinstance(part, float):
                    time.sleep(part)
                else:
                    link.sendall(part)
        try:
            while piece := link.recv(65536):
                came += piece
        except TimeoutError:
            ended = "not at all"
        except ConnectionError:
            ended = "reset"
    return Answer(re.sub(rb"Date: [^\r]*", b"Date:", came), ended, time.monotonic() - began)


@dataclass(frozen=True)
class Site:
    """A site: nginx, and in front of it one of our servers for each profile."""

    port: int
    folder: Path
    before: dict[str, int]
    lines: dict[str, str]
    pictures: dict[str, str]

    def visits(self) -> str:
        """Returns nginx's access log."""
        return (self.folder / "visits").read_text()


@pytest.fixture(scope="module")
def files() -> Iterator[FileServer]:
    """Yields the file server to which links forward."""
    with FileServer() as server:
        yield server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, files: FileServer) -> Iterator[Site]:
    """Yields a site with a page, a style sheet, a folder, 300 kB of noise, objects that hide
    bytes, and an album.
    """
    folder = tmp_path_factory.mktemp("site")
    folder.chmod(0o755)
    (folder / "www/sub").mkdir(parents=True)
    (folder / "www/index.html").write_text("<!doctype html><title>A</title><p>Nothing.")
    (folder / "www/style.css").write_text("body { color: red; margin: 0 }\n" * 200)
    (folder / "www/big").write_bytes(seeded_bytes(300_000))
    (folder / "www/film.ts").write_bytes(seeded_bytes(60_000))
    pictures = write_site(folder / "www/album", OBJECTS, HEIGHT)
    crawl = [anabranch(), "pt", "crawl", str(folder / "www"), "--out", str(folder / "covers")]
    subprocess.run(crawl, check=True, capture_output=True)
    port, *ports = free_ports(1 + len(PROFILES))
    http = HTTP.replace("PORT", str(port)).replace("PATIENCE", str(PATIENCE_S))
    to = files.url(0).split("/")[2]
    with ExitStack() as stack:
        stack.enter_context(Background(nginx(folder, http)))
        wait_for("nginx", lambda: listens(port))
        lines = {}
        for profile, own in zip(PROFILES, ports, strict=True):
            command = [anabranch(), "pt", "server", "--json", "--profile", profile, "--to", to]
            command += ["--listen", f"127.0.0.1:{own}", "--key", str(folder / f"{profile}.key")]
            if profile == "http-site":
                command += ["--covers", str(folder / "covers")]
            server = Background([*command, "--site", f"127.0.0.1:{port}"])
            lines[profile] = bridge_line(stack.enter_context(server))
        yield Site(port, folder, dict(zip(PROFILES, ports, strict=True)), lines, pictures)


def bridge_line(server: Background) -> str:
    """Returns a server's bridge line."""
    server.wait_until("its line", lambda: '"bridge"' in server.output())
    return server.output().split('"bridge":"')[1].split('"')[0]


def listens(port: int) -> bool:
    """Returns whether a program listens on ``port``."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("said", PROBES)
def test_a_prober_gets_nginxs_bytes_and_time_outs(site: Site, said: str, profile: str) -> None:
    """Whatever a prober sends, it gets nginx's bytes and nginx's end of the connection, at the
    same time.
    """
    alone, through = (ask(port, PROBES[said]) for port in (site.port, site.before[profile]))
    assert (through.came, through.ended) == (alone.came, alone.ended)
    assert said not in ("a page", "HTTP/0.9") or b"<p>Nothing." in alone.came
    assert abs(through.seconds - alone.seconds) < LATE_S, (alone.seconds, through.seconds)


@pytest.mark.parametrize("profile", PROFILES)
def test_nginx_never_hears_of_a_client(
    site: Site, files: FileServer, profile: str, tmp_path: Path
) -> None:
    """5 MiB arrive intact through a bridge without a visit in the site's log; a visit by curl is
    logged.
    """
    before = site.visits()
    (port,) = free_ports(1)
    command = [anabranch(), "pt", "client", "--listen", f"127.0.0.1:{port}"]
    with Background([*command, "--bridge", site.lines[profile]]):
        wait_for("the client", lambda: listens(port))
        url = files.url(5 * MIB)
        through = ["--connect-to", f"::127.0.0.1:{port}"]
        got = fetch(url, "", tmp_path / "got", 60.0, *through)
        assert not got.fault(5 * MIB), got.fault(5 * MIB)
        # This is longer than nginx's timeout of idle connections.
        time.sleep(1.5 * PATIENCE_S)
        got = fetch(url, "", tmp_path / "got", 60.0, *through)
        assert not got.fault(5 * MIB), got.fault(5 * MIB)
    assert site.visits() == before
    place = f"http://127.0.0.1:{site.before[profile]}/style.css"
    subprocess.run([tool("curl"), "-sS", "-o", str(tmp_path / "style"), place], check=True)
    assert (tmp_path / "style").read_bytes() == (site.folder / "www/style.css").read_bytes()
    wait_for("nginx's line", lambda: site.visits().count("/style.css") > before.count("/style.css"))


def by_own_client(site: Site, files: FileServer, profile: str, into: Path) -> Meddler:
    """Runs a download by our client; returns the forwarder, which has the first bytes of each
    connection.
    """
    (near,) = free_ports(1)
    own = site.before[profile]
    with Meddler(own, lambda _: LIVES) as between:
        line = site.lines[profile].replace(f":{own} ", f":{between.port} ")
        command = [anabranch(), "pt", "client", "--listen", f"127.0.0.1:{near}", "--bridge", line]
        with Background(command):
            wait_for("the client", lambda: listens(near))
            through = ["--connect-to", f"::127.0.0.1:{near}"]
            got = fetch(files.url(MIB), "", into, 60.0, *through)
            assert not got.fault(MIB), got.fault(MIB)
    return between


@pytest.mark.parametrize("profile", PROFILES)
def test_a_replayed_first_request_is_nginxs_to_answer(
    site: Site, files: FileServer, profile: str, tmp_path: Path
) -> None:
    """A replay of a client's HELLO, or of its token, gets what nginx alone responds to these
    bytes.

    The replay is sent at once and later, in pieces, and with more bytes after it; it never gets
    what the client got.
    """
    said = by_own_client(site, files, profile, tmp_path / "got")
    for number in (0, 1):  # The first connection begins with a HELLO, all others with a token.
        request = said.up[number]
        assert request.startswith((b"GET ", b"POST ")), request[:80]
        half = len(request) // 2
        replays: list[Said] = [
            [request],
            [request],
            [request[:half], 0.1, request[half:]],
            [request, None],
            [request, GET + CLOSE],
            [request[:half], None],
        ]
        for replay in replays:
            with ThreadPoolExecutor(2) as pool:
                ports = (site.port, site.before[profile])
                alone, through = pool.map(ask, ports, (replay, replay))
            assert (through.came, through.ended) == (alone.came, alone.ended)
            assert abs(through.seconds - alone.seconds) < LATE_S, (alone.seconds, through.seconds)
            assert re.sub(rb"Date: [^\r]*", b"Date:", said.down[number])[:1_000] not in alone.came


@pytest.mark.parametrize("profile", PROFILES)
def test_chromium_shows_the_sites_own_page(site: Site, profile: str) -> None:
    """A browser that visits our server gets every object of the page as from nginx alone."""
    shown = []
    for port in (site.port, site.before[profile]):
        with Chromium(Host("here")) as browser:
            browser.show(f"http://127.0.0.1:{port}/album/index.html", seconds=60.0)
            shown.append((pictures_of(browser), browser.ask("document.documentElement.outerHTML")))
            assert browser.complaints == []
    alone, through = shown
    assert through == alone
    assert through[0] == {
        f"album/{name}": (sha256, HEIGHT) for name, sha256 in site.pictures.items()
    }
