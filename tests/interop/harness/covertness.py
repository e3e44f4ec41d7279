"""Captures of a browser and of transports on the same line, for `anabranch-lab covertness`.

A server runs nginx. Each client reaches it over a line of its own, with the parameters of
StegoTorus' paper (CCS 2012, section 6). A browser loads pages of sites. Over each transport,
:mod:`harness.pages` imitates a link of tor that loads the same number of bytes of the same pages
at the same pace.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness import pages
from harness.capture import Tcpdump
from harness.chromium import Chromium
from harness.closing import Closing
from harness.net import Host, Network
from harness.nginx import nginx
from harness.pages import Way
from harness.tools import CACHE, INTEROP, Background, PeerFailed, anabranch, wait_for
from harness.transports import OBFS4, WEBTUNNEL

SERVER = "198.51.100.1"
"""Address of the server. It is not private, because webtunnel does not connect to private
addresses.
"""
SNAP = 2_048
"""Bytes captured of each packet: more than the line's MTU of 1,500."""
INNER = "127.0.0.1:9000"
"""Destination of the transports: the server of :mod:`harness.pages`."""
FIRST_PORT = 8000
TLS_PORT = 443
PAGES = 3
"""Number of pages of a site; each page is from another package."""
LEAST, MOST = 100_000, 600_000
"""Minimum and maximum size in bytes of a package whose page is used."""
OURS = (
    "nosteg", "nosteg-short", "nosteg-rr", "http-opaque", "http-opaque-short", "http-text",
    "http-text-short", "http-image", "http-site", "embed",
)  # fmt: skip
STRANGERS = ("obfs4", "webtunnel")
REAL = ("real-a", "real-b")
CLASSES = (*REAL, *STRANGERS, *OURS)
"""Class names of the manifest; the first two are the same browser."""

HTTP = """\
  include /etc/nginx/mime.types;
  access_log off;
  server { listen 198.51.100.1:80; root WEB; }
  server {
    listen 198.51.100.1:443 ssl;
    ssl_certificate FOLDER/tls.pem;
    ssl_certificate_key FOLDER/tls.key;
    root WEB;
    location /secret {
      proxy_pass http://127.0.0.1:9001;
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_buffering off;
    }
  }
"""

HOSTS = """\
seed = 1
[[host]]
name = "server"
address = ["198.51.100.1/32"]
"""
CLIENT = """\
[[host]]
name = "cN"
[[link]]
name = "lN"
ends = [
  { host = "cN", address = ["10.77.N.2/24"], routes = ["198.51.100.1/32"] },
  { host = "server", routes = ["10.77.N.0/24"], prefsrc = ["198.51.100.1"] },
]
rate = "700kbit"
rate_back = "5600kbit"
delay = "42.5ms"
queue = "100kB"
"""


@dataclass(frozen=True)
class Site:
    """Pages that are visited one after the other, and the sizes of each page's objects in bytes."""

    name: str
    addresses: list[str]
    objects: list[list[int]] = field(default_factory=list)


def sites_of(web: Path, count: int) -> list[Site]:
    """Returns the first ``count`` sites built from the packages of a local web (``make web``)."""
    listing = tomllib.loads((web / "sites.toml").read_text())["site"]
    fit = [each for each in listing if LEAST <= each["bytes"] <= MOST and each["files"] > 4]
    made = [fit[at : at + PAGES] for at in range(0, len(fit) - PAGES + 1, PAGES)][:count]
    return [Site(each[0]["name"], [f"http://{SERVER}/{one['name']}/{one['page']}" for one in each])
            for each in made]  # fmt: skip


class World(Closing):
    """A server with nginx and all transports, and ``clients`` clients."""

    def __init__(
        self,
        folder: Path,
        web: Path,
        covers: Path,
        clients: int,
        classes: Sequence[str] = CLASSES,
    ):
        """Starts all programs, with their files in ``folder``.

        nginx serves ``web``; ``covers`` is the output of :func:`crawl` for ``web``.
        """
        self.classes = classes
        self._covers = covers
        self._folder = folder
        self._stack = ExitStack()
        try:
            self._start(web, clients)
        except BaseException:
            self._stack.close()
            raise

    def _start(self, web: Path, clients: int) -> None:
        network = HOSTS + "".join(CLIENT.replace("N", str(at)) for at in range(clients))
        self._network = self._stack.enter_context(Network(network))
        self.server = self._network.hosts["server"]
        self.clients = [self._network.hosts[f"c{at}"] for at in range(clients)]
        self.server.must(pages.certificate(self._folder, "openssl"))
        tls = [str(self._folder / "tls.pem"), str(self._folder / "tls.key")]
        inner = [sys.executable, "-c", pages.SERVER, *tls, INNER.rpartition(":")[2]]
        self._run(self.server, inner).wait_bound(9000, "tcp")
        command = nginx(self._folder, HTTP.replace("WEB", str(web)))
        self._run(self.server, command).wait_bound(80, "tcp")
        self.ports = {name: 80 for name in REAL}
        self._lines: dict[str, str] = {}
        for number, name in enumerate(each for each in self.classes if each not in REAL):
            self._serve(name, FIRST_PORT + number)

    def _serve(self, name: str, port: int) -> None:
        """Starts the server of the transport ``name`` at ``port``."""
        self.ports[name], at = port, f"{SERVER}:{port}"
        folder = self._folder / f"server-{name}"
        if name == "obfs4":
            server = OBFS4.serve(self.server, folder, at, INNER)
            self._lines[name] = OBFS4.arguments(self._kept(server))
        elif name == "webtunnel":
            self.ports[name] = TLS_PORT
            url = f"https://{SERVER}/secret"
            self._kept(WEBTUNNEL.serve(self.server, folder, "127.0.0.1:9001", INNER, url=url))
            self._lines[name] = f"url={url};ver=0.0.2"
        else:
            command = [anabranch(), "pt", "server", "--json", "--listen", at, "--to", INNER]
            command += ["--key", str(self._folder / f"{name}.key"), "--profile", name]
            if name.startswith("http"):
                command += ["--site", f"{SERVER}:80"]
            if name == "http-image":
                command += ["--pictures", str(pictures())]
            if name == "http-site":
                command += ["--covers", str(self._covers)]
            server = self._run(self.server, command)
            server.wait_until("its line", lambda: '"bridge"' in server.output())
            self._lines[name] = server.output().split('"bridge":"')[1].split('"')[0]

    @contextmanager
    def dial(self, name: str, host: Host) -> Iterator[Way]:
        """Runs a client of a transport on ``host`` while the block runs; yields programs' route to
        it.
        """
        folder = self._folder / f"client-{name}-{host.name}"
        if name in STRANGERS:
            transport = {"obfs4": OBFS4, "webtunnel": WEBTUNNEL}[name]
            trust = {"SSL_CERT_FILE": str(self._folder / "tls.pem")}
            process, port = transport.dial(host, folder, **trust)
            with process:
                yield Way(("127.0.0.1", port), (self._lines[name], SERVER, self.ports[name]))
            return
        port = 7000 + list(self.ports).index(name)
        command = [anabranch(), "pt", "client", "--listen", f"127.0.0.1:{port}"]
        with host.start([*command, "--bridge", self._lines[name]]) as process:
            process.wait_bound(port, "tcp")
            yield Way(("127.0.0.1", port))

    def _run(self, host: Host, command: list[str]) -> Background:
        return self._kept(host.start(command))

    def _kept(self, process: Background) -> Background:
        return self._stack.enter_context(process)

    def errors(self) -> str:
        """Returns nginx's error log."""
        return (self._folder / "errors").read_text()

    def close(self) -> None:
        """Stops all programs."""
        self._stack.close()


def pictures() -> Path:
    """Returns the folder of JPEGs for http-image: ``$PICTURES``, or the folder of the tests."""
    ours = INTEROP.parent.parent / "crates/stego/testdata"
    return Path(os.environ.get("PICTURES", ours))


def web() -> Path:
    """Returns the local web of `make web`."""
    return CACHE / "web"


def crawl(web: Path, covers: Path) -> None:
    """Makes covers for http-site from the objects of a web."""
    Host("here").must([anabranch(), "pt", "crawl", str(web), "--out", str(covers)], timeout=300)


def load(host: Host, way: Way, site: Site, thinks: Sequence[float]) -> None:
    """Runs one session of a transport that loads every page of a site."""
    play(host, {"at": way.at, "socks": way.socks, "pages": site.objects, "thinks": thinks})


def play(host: Host, wish: Mapping[str, object], seconds: float = 300.0) -> None:
    """Runs :mod:`harness.pages` on a host with ``wish`` as its input.

    Raises:
        PeerFailed: if not all bytes arrived.
    """
    program = [sys.executable, "-P", str(INTEROP / "harness/pages.py")]
    host.must(program, text=json.dumps(wish) + "\n", timeout=seconds)


def browse(browser: Chromium, site: Site, wait: Callable[[int], None]) -> None:
    """Runs one session of the browser: loads every page and calls ``wait`` after each with its
    number.
    """
    browser.fresh()
    for number, address in enumerate(site.addresses):
        browser.show(address, seconds=60.0)
        wait(number)
    browser.fresh()  # closes the connections


SIZES = """[...performance.getEntriesByType('navigation'),
    ...performance.getEntriesByType('resource')].map(each => each.transferSize)"""


def surveyed(browser: Chromium, sites: Sequence[Site]) -> list[Site]:
    """Returns the sites with the sizes of their objects as the browser received them, with headers.

    A site with a page that does not load gets no sizes.
    """
    found = []
    for site in sites:
        browser.fresh()
        objects: list[list[int]] = []
        try:
            for address in site.addresses:
                browser.show(address, seconds=30.0)
                objects.append([int(each) for each in browser.ask(SIZES) if each > 0])
        except (PeerFailed, TimeoutError) as error:
            print(f"{site.name} is not visited: {error}", file=sys.stderr)
            objects = []
        found.append(Site(site.name, site.addresses, objects))
    return found


def firsts(world: World, name: str, file: Path, links: int, length: int = 1) -> None:
    """Captures the first packets of ``links`` links of a transport, without an emulated line.

    Each link fetches ``length`` bytes. Only packets to the server are kept.
    """
    wanted = f"tcp and dst port {world.ports[name]} and dst host {SERVER}"
    with (
        world.dial(name, world.server) as way,
        Tcpdump(world.server, "lo", file, wanted, SNAP) as dump,
    ):
        wish = {"at": way.at, "socks": way.socks, "pages": [[length]], "thinks": [0.0]}
        play(world.server, {**wish, "sessions": links, "together": 16}, 600.0)
        dump.stop()


@dataclass(frozen=True)
class Entry:
    """A capture as an entry of a manifest (`lab/src/anabranch/covertness/manifest.py`)."""

    file: str
    name: str
    port: int
    site: str = "none"
    session: int = 0
    purpose: str = "all"

    def line(self) -> str:
        """Returns the entry as a line of JSON."""
        who = {"file": self.file, "class": self.name, "site": self.site}
        server = f"{SERVER}:{self.port}"
        rest = {"session": self.session, "server": server, "for": self.purpose}
        return json.dumps({**who, **rest}) + "\n"


def established(host: Host, port: int) -> int:
    """Returns the number of established TCP connections from ``host`` to the server's ``port``."""
    said = host.must(["ss", "-Htn", "state", "established", "dst", f"{SERVER}:{port}"])
    return len(said.splitlines())


def settled(host: Host, port: int, seconds: float) -> None:
    """Waits until no connection to ``port`` is left, because some outlive their link."""
    with suppress(TimeoutError):
        wait_for("connections to end", lambda: not established(host, port), seconds)


def connections(name: str) -> int:
    """Returns the minimum number of TCP connections that one link of a transport has."""
    return 1 if name in STRANGERS else 6
