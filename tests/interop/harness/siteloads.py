"""Page loads by Chromium through our transport, with SSH or tor inside, on one emulated line.

A server runs nginx, OpenSSH, a private Tor network with a bridge, and a server of our transport for
each :class:`Kind`. Each kind has a client of its own, behind the line of StegoTorus' paper (CCS
2012, section 6). The client's tunnel (tor, or the SOCKS proxy of ``ssh -D``) stays open; each load
has an empty cache and new connections in the tunnel.
"""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.capture import Tcpdump
from harness.chromium import Chromium
from harness.closing import Closing
from harness.covertness import CLIENT, FIRST_PORT, HOSTS, SERVER, crawl
from harness.net import Host, Network
from harness.nginx import nginx
from harness.sshd import PORT as SSH_PORT
from harness.sshd import Sshd
from harness.tools import INTEROP, Background, PeerFailed, anabranch, tool, wait_for

TOR_PORT = 9100
"""Port of the bridge's server for clients without our transport."""
SOCKS_PORT = 1080
UP_SECONDS = 240.0
HEADERS = 128
"""Bytes captured of each packet: its headers."""
LEAST, MOST = 40_000, 300_000
"""Size limits of a visited site, in bytes of its folder."""
DATABASES = ("a", "b")
PHOTOGRAPHS = 10
"""Pictures of a database."""
COPIES = 8
"""Files whose copies give a database's shapes."""
COVERED = 40
"""Sites of a database; http-site hides bytes in their files."""

HTTP = """\
  include /etc/nginx/mime.types;
  access_log off;
  server { listen 198.51.100.1:80; root WEB; }
"""
# As the harness's private network; without Conflux, which needs a second bridge.
TORRC = """\
TestingTorNetwork 1
DataDirectory {folder}
SocksPort 127.0.0.1:{socks}
ClientOnly 1
UseBridges 1
ConfluxEnabled 0
LearnCircuitBuildTimeout 0
Log notice file {folder}/log
"""
# Other hosts fail without a packet: their names do not resolve, and no proxy is asked.
PAC = """\
function FindProxyForURL(url, host) {
  return host == "198.51.100.1" ? "SOCKS5 127.0.0.1:1080" : "DIRECT";
}
"""


@dataclass(frozen=True)
class Kind:
    """A way to load pages.

    ``tunnel`` is ``direct``, ``ssh`` or ``tor``. ``profile`` is that of our transport around the
    tunnel; empty without it. ``database`` (``a`` or ``b``) selects the profile's covers, pictures
    or shapes; empty if it has none.
    """

    tunnel: str
    profile: str = ""
    database: str = ""

    @property
    def name(self) -> str:
        """Name in captures and results."""
        return "-".join(filter(None, (self.tunnel, self.profile, self.database)))


KINDS = (
    Kind("direct"),
    Kind("ssh"),
    Kind("ssh", "nosteg"),
    Kind("ssh", "http-opaque"),
    Kind("ssh", "http-text"),
    Kind("ssh", "http-site", "a"),
    Kind("tor"),
    Kind("tor", "nosteg"),
    Kind("tor", "http-opaque"),
    Kind("tor", "http-text"),
    Kind("tor", "http-image", "a"),
    Kind("tor", "http-image", "b"),
    Kind("tor", "http-site", "a"),
    Kind("tor", "http-site", "b"),
    Kind("tor", "embed", "a"),
    Kind("tor", "embed", "b"),
)


@dataclass(frozen=True)
class Page:
    """A page of the local web: the name of its site, and its path there."""

    site: str
    path: str

    @property
    def address(self) -> str:
        """Its URL at the server."""
        return f"http://{SERVER}/{self.site}/{self.path}"


@dataclass(frozen=True)
class Pages:
    """Pages of the local web by their use: no site has two."""

    visited: list[Page]
    others: list[Page]
    databases: dict[str, list[Page]]


def pages_of(web: Path, visited: int, others: int) -> Pages:
    """Divides the sites of a local web (``make web``).

    The first ``visited`` and the next ``others`` sites of fitting size are loaded through
    transports. The databases share the rest.
    """
    sites = tomllib.loads((web / "sites.toml").read_text())["site"]
    fit = [each for each in sites if LEAST <= each["bytes"] <= MOST and each["files"] > 4]
    taken = [Page(each["name"], each["page"]) for each in fit[: visited + others]]
    used = {page.site for page in taken}
    rest = [Page(each["name"], each["page"]) for each in sites if each["name"] not in used]
    shares = {name: rest[at :: len(DATABASES)] for at, name in enumerate(DATABASES)}
    return Pages(taken[:visited], taken[visited:], shares)


@dataclass(frozen=True)
class Client:
    """A client of one kind: its host and line, the server's port, and options of its browser."""

    kind: Kind
    host: Host
    interface: str
    port: int
    options: tuple[str, ...]

    def browser(self) -> Chromium:
        """Starts a browser whose traffic uses the tunnel."""
        return Chromium(self.host, self.options)

    def capture(self, file: Path) -> Tcpdump:
        """Starts a capture of the headers of the kind's packets on its line."""
        wanted = f"tcp port {self.port} and host {SERVER}"
        return Tcpdump(self.host, self.interface, file, wanted, HEADERS)


@dataclass(frozen=True)
class TorFacts:
    """A running network: lines that make a tor part of it, and its bridge's fingerprint."""

    authorities: list[str]
    bridge: str


class World(Closing):
    """The server and a running client of each kind."""

    def __init__(self, folder: Path, web: Path, databases: Path, kinds: Sequence[Kind]):
        """Starts everything; the programs keep their files in ``folder``.

        ``web`` is served by nginx; ``databases`` is the output of :func:`make_databases`.
        """
        self._folder, self._databases = folder, databases
        self._stack = ExitStack()
        try:
            self._start(web, kinds)
        except BaseException:
            self._stack.close()
            raise

    def _start(self, web: Path, kinds: Sequence[Kind]) -> None:
        lines = "".join(CLIENT.replace("N", str(at)) for at in range(len(kinds)))
        self._hosts = self._stack.enter_context(Network(HOSTS + lines)).hosts
        self.server = self._hosts["server"]
        command = nginx(self._folder, HTTP.replace("WEB", str(web)))
        self._run(self.server, command).wait_bound(80, "tcp")
        tunnels = {kind.tunnel for kind in kinds}
        if "ssh" in tunnels:
            (self._folder / "ssh").mkdir()
            self._sshd = self._stack.enter_context(Sshd(self.server, self._folder / "ssh"))
        if "tor" in tunnels:
            self._tor = self._tor_network()
        starting = [self._client(number, kind) for number, kind in enumerate(kinds)]
        self.clients = {each.kind.name: each for each in starting}
        for each in starting:
            self._wait(each)

    def _tor_network(self) -> TorFacts:
        folder = self._folder / "tor"
        folder.mkdir()
        command = [sys.executable, "-m", "harness.torserver", str(folder), f"{SERVER}:{TOR_PORT}"]
        network = self.server.start(command, PYTHONPATH=str(INTEROP))
        self._stack.enter_context(network)
        network.wait_until("a tor network", lambda: '"bridge"' in network.output(), UP_SECONDS)
        return TorFacts(**json.loads(network.output().splitlines()[-1]))

    def _client(self, number: int, kind: Kind) -> Client:
        """Starts the client of a kind, and the server of its transport."""
        host, port, line = self._hosts[f"c{number}"], FIRST_PORT + number, ""
        if kind.profile:
            line = self._serve(kind, port)
        if kind.tunnel == "direct":
            return Client(kind, host, f"l{number}", 80, ())
        if kind.tunnel == "ssh":
            self._ssh(host, kind, line)
        else:
            self._tor_client(host, kind, line)
        plain = {"ssh": SSH_PORT, "tor": TOR_PORT}[kind.tunnel]
        pac = base64.b64encode(PAC.encode()).decode()
        options = (
            f"--proxy-pac-url=data:application/x-ns-proxy-autoconfig;base64,{pac}",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        )
        return Client(kind, host, f"l{number}", port if kind.profile else plain, options)

    def _serve(self, kind: Kind, port: int) -> str:
        """Starts the transport's server of a kind; returns its bridge line."""
        to = f"127.0.0.1:{SSH_PORT}" if kind.tunnel == "ssh" else f"{SERVER}:{TOR_PORT}"
        command = [anabranch(), "pt", "server", "--json", "--listen", f"{SERVER}:{port}"]
        command += ["--to", to, "--key", str(self._folder / f"{kind.name}.key")]
        command += ["--profile", kind.profile, *self._hidden_in(kind)]
        if kind.profile.startswith("http"):
            command += ["--site", f"{SERVER}:80"]
        server = self._run(self.server, command)
        server.wait_until("its line", lambda: '"bridge"' in server.output())
        return server.output().split('"bridge":"')[1].split('"')[0]

    def _hidden_in(self, kind: Kind) -> list[str]:
        """Returns the server's options that name the kind's database."""
        folder = self._databases / kind.database
        if kind.profile == "http-image":
            return ["--pictures", str(folder / "pictures")]
        if kind.profile == "http-site":
            return ["--covers", str(folder / "covers")]
        return self._shapes(kind)

    def _shapes(self, kind: Kind) -> list[str]:
        """Returns the option of both ends that names the shapes of embed, unless built in."""
        file = self._databases / kind.database / "own.shapes"
        return ["--shapes", str(file)] if kind.profile == "embed" and file.exists() else []

    def _ssh(self, host: Host, kind: Kind, line: str) -> None:
        address = SERVER
        if line:
            address = "127.0.0.1"
            command = [anabranch(), "pt", "client", "--listen", f"{address}:{SSH_PORT}"]
            command += ["--bridge", line, *self._shapes(kind)]
            self._run(host, command).wait_bound(SSH_PORT, "tcp")
        # Both addresses: all clients share one file of known hosts.
        command = shlex.split(self._sshd.ssh(SERVER, "127.0.0.1"))
        command += ["-N", "-D", f"127.0.0.1:{SOCKS_PORT}", f"{self._sshd.user}@{address}"]
        self._run(host, command)

    def login(self) -> list[str]:
        """Returns the command with which a client logs in to the server."""
        return [*shlex.split(self._sshd.ssh(SERVER, "127.0.0.1")), f"{self._sshd.user}@{SERVER}"]

    def _tor_client(self, host: Host, kind: Kind, line: str) -> None:
        folder = self._tor_folder(kind)
        folder.mkdir(mode=0o700)
        words = line.split()
        bridge = [*words[:2], self._tor.bridge, *words[2:]]
        if not line:
            bridge = [f"{SERVER}:{TOR_PORT}", self._tor.bridge]
        lines = [*self._tor.authorities, f"Bridge {' '.join(bridge)}"]
        if line:
            plugin = [anabranch(), "pt", "client", *self._shapes(kind)]
            lines.append(f"ClientTransportPlugin anabranch exec {' '.join(plugin)}")
        settings = TORRC.format(folder=folder, socks=SOCKS_PORT) + "\n".join(lines) + "\n"
        (folder / "torrc").write_text(settings)
        (folder / "empty").touch()
        command = [tool("tor"), "-f", str(folder / "torrc"), "--quiet"]
        self._run(host, [*command, "--defaults-torrc", str(folder / "empty")])

    def _wait(self, client: Client) -> None:
        """Waits until a client's tunnel is open."""
        if client.kind.tunnel == "tor":
            log = self._tor_folder(client.kind) / "log"

            def is_up() -> bool:
                return log.exists() and "Bootstrapped 100%" in log.read_text()

            self._wait_until(client, is_up)
        elif client.kind.tunnel == "ssh":
            command = ["ss", "-Htln", f"sport = :{SOCKS_PORT}"]
            self._wait_until(client, lambda: bool(client.host.must(command)))

    def _wait_until(self, client: Client, is_up: Callable[[], bool]) -> None:
        try:
            wait_for(f"the tunnel of {client.kind.name}", is_up, UP_SECONDS)
        except TimeoutError as error:
            raise PeerFailed(str(error)) from error

    def _tor_folder(self, kind: Kind) -> Path:
        return self._folder / f"client-{kind.name}"

    def _run(self, host: Host, command: list[str]) -> Background:
        return self._stack.enter_context(host.start(command))

    def close(self) -> None:
        """Stops everything."""
        self._stack.close()


def make_databases(folder: Path, web: Path, pages: Pages) -> None:
    """Makes what two users hide bytes in, each from sites of their own, in ``folder/a`` and ``/b``.

    ``pictures`` are photographs of pages, ``covers`` the output of ``pt crawl`` for the sites and
    these pictures. ``own.shapes``, which only ``b`` has, are connections of OpenSSH that copy
    files; ``a`` has the shapes of the program.
    """
    for name in DATABASES:
        if not (folder / name).exists():
            _make_database(folder / name, web, pages.databases[name], shaped=name != "a")


def _make_database(target: Path, web: Path, pages: Sequence[Page], *, shaped: bool) -> None:
    scratch = target.with_suffix(".new")
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "pictures").mkdir(parents=True)
    (scratch / "kept").mkdir(mode=0o755)
    kinds = [Kind("direct"), *([Kind("ssh")] if shaped else [])]
    with World(scratch / "kept", web, scratch, kinds) as world:
        with world.clients["direct"].browser() as browser:
            _photograph(browser, pages, scratch / "pictures")
        if shaped:
            files = [web / page.site / page.path for page in pages[:COPIES]]
            _record_copies(world, files, scratch / "copies.pcap")
    site = scratch / "site"
    shutil.copytree(scratch / "pictures", site / "pictures")
    for page in pages[:COVERED]:
        shutil.copytree(web / page.site, site / page.site)
    crawl(site, scratch / "covers")
    if shaped:
        command = [anabranch(), "pt", "crawl", "--shape", str(scratch / "copies.pcap")]
        Host("here").must([*command, "--out", str(scratch / "own.shapes")])
    for part in ("site", "kept"):
        shutil.rmtree(scratch / part)
    scratch.rename(target)


def _record_copies(world: World, files: Sequence[Path], capture: Path) -> None:
    """Captures connections of OpenSSH, each of which copies a file up or down."""
    client, login = world.clients["ssh"], shlex.join(world.login())
    with client.capture(capture) as dump:
        for file in files:
            name = shlex.quote(str(file))
            client.host.must(["sh", "-c", f"{login} cat {name} > /dev/null"])
            client.host.must(["sh", "-c", f"{login} 'cat > /dev/null' < {name}"])
        dump.stop()


def _photograph(browser: Chromium, pages: Sequence[Page], folder: Path) -> None:
    """Writes pictures of the first pages that can be loaded."""
    for page in pages:
        browser.fresh()
        try:
            browser.show(page.address)
            told = browser.call("Page.captureScreenshot", 60, format="jpeg", quality=80)
        except (PeerFailed, TimeoutError) as error:
            print(f"{page.site} is not photographed: {error}", file=sys.stderr)
            continue
        (folder / f"{page.site}.jpg").write_bytes(base64.b64decode(told["data"]))
        if len(list(folder.iterdir())) == PHOTOGRAPHS:
            return
    raise PeerFailed(f"fewer than {PHOTOGRAPHS} pages can be photographed")
