"""The emulated network (``anabranch emulate``): a client and a server, joined by a few links."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.closing import Closing
from harness.tools import Background, PeerFailed, anabranch, tool

SERVER = "10.99.0.1"
SERVER6 = "fd99::1"


@dataclass(frozen=True)
class Link:
    """A link between client and server, equal in both directions. Strings are as in the TOML."""

    name: str
    rate: str = "100mbit"
    delay: str = "10ms"  # one way
    loss: float = 0.0  # probability
    queue: str = "250kB"
    mtu: int = 1500


def links(count: int, **settings: Any) -> list[Link]:
    """Returns ``count`` equal links named p0, p1 and so on."""
    return [Link(f"p{i}", **settings) for i in range(count)]


def topology(paths: Sequence[Link], *, seed: int = 1, default_routes: bool = False) -> str:
    """Returns the TOML of a client with one address on each link, and a server with a single
    address.

    Link i is 10.77.i.0/24 on the client's side. With ``default_routes`` the client has a default
    route over each link (metric 100, 101, …), like a machine with several uplinks; otherwise it
    has only routes to the server.
    """
    to_server = "0.0.0.0/0" if default_routes else f"{SERVER}/32"
    to_server6 = "::/0" if default_routes else f"{SERVER6}/128"
    head = f"""\
seed = {seed}
[[host]]
name = "client"
[[host]]
name = "server"
address = ["{SERVER}/32", "{SERVER6}/128"]
"""
    return head + "".join(_link(i, p, to_server, to_server6) for i, p in enumerate(paths))


def add_uplinks(client: Host, count: int) -> None:
    """Adds policy rules that route each source address over its own uplink, as on a multi-homed
    machine. The network must have ``default_routes``.
    """
    for i in range(count):
        table = str(101 + i)
        client.must(["ip", "route", "add", "default", "dev", f"p{i}", "table", table])
        rule = ["ip", "rule", "add", "from", f"10.77.{i}.2", "lookup", table]
        client.must([*rule, "priority", str(20_000 + i)])


def _link(number: int, path: Link, to_server: str, to_server6: str) -> str:
    client = (
        f'{{ host = "client", address = ["10.77.{number}.2/24", "fd77:{number}::2/64"], '
        f'routes = ["{to_server}", "{to_server6}"], metric = {100 + number} }}'
    )
    server = (
        f'{{ host = "server", routes = ["10.77.{number}.0/24", "fd77:{number}::/64"], '
        f'prefsrc = ["{SERVER}", "{SERVER6}"] }}'
    )
    return f"""
[[link]]
name = "{path.name}"
ends = [
  {client},
  {server},
]
rate = "{path.rate}"
delay = "{path.delay}"
loss = {path.loss}
queue = "{path.queue}"
mtu = {path.mtu}
"""


@dataclass(frozen=True)
class Counts:
    """Traffic of one path: packets and IP bytes, to the server (up) and from it (down)."""

    up_packets: int
    up_bytes: int
    down_packets: int
    down_bytes: int

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(
            self.up_packets - earlier.up_packets,
            self.up_bytes - earlier.up_bytes,
            self.down_packets - earlier.down_packets,
            self.down_bytes - earlier.down_bytes,
        )


@dataclass(frozen=True)
class Host:
    """A machine to run programs on: a network namespace, or this machine (``netns`` None)."""

    name: str
    netns: str | None = None

    def command(self, argv: Sequence[str]) -> list[str]:
        """Returns the command that runs ``argv`` on this host."""
        found = [tool(argv[0]), *argv[1:]]
        # nsenter executes the program in its own process, so its process ID is the program's.
        return found if self.netns is None else [tool("nsenter"), f"--net={self.netns}", *found]

    def start(self, argv: Sequence[str], **environment: str) -> Background:
        """Starts a program in the background."""
        return Background(self.command(argv), environment)

    def run(
        self, argv: Sequence[str], *, text: str = "", timeout: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end with ``text`` on its standard input; the caller checks its
        status.

        Raises:
            subprocess.TimeoutExpired: if it takes longer than ``timeout`` seconds.
        """
        return subprocess.run(
            self.command(argv),
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def must(self, argv: Sequence[str], *, text: str = "", timeout: float = 30.0) -> str:
        """Runs a program that must succeed and returns its output.

        Raises:
            PeerFailed: if the program fails.
        """
        done = self.run(argv, text=text, timeout=timeout)
        if done.returncode != 0:
            raise PeerFailed(f"{' '.join(argv)}: {done.stderr or done.stdout}")
        return done.stdout


class Network(Closing):
    """A running ``anabranch emulate``; it and its namespaces end with its ``with`` block."""

    def __init__(self, toml: str):
        """Starts the network described by ``toml`` (see :func:`topology`)."""
        with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False) as file:
            file.write(toml)
        self._file = Path(file.name)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the network)
        self._process = subprocess.Popen(
            [anabranch(), "emulate", file.name, "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C stops us first, then we stop it
        )
        ready = self._event("ready")
        self.hosts = {name: Host(name, each["netns"]) for name, each in ready["hosts"].items()}

    @property
    def client(self) -> Host:
        """The host of the clients."""
        return self.hosts["client"]

    @property
    def server(self) -> Host:
        """The host of the unmodified servers."""
        return self.hosts["server"]

    def set(self, link: str, **changes: Any) -> None:
        """Changes a running link: ``rate``, ``delay``, ``loss``, ``queue``, ``down``."""
        self._say({"set": link, **changes})
        self._event("set")

    def stats(self) -> dict[str, Counts]:
        """Returns the counts so far at the client's end of each link, by name."""
        self._say({"get": "stats"})
        return {name: _counts(each) for name, each in self._event("stats")["links"].items()}

    def censored(self, link: str) -> int:
        """Returns the number of the link's packets that a censor dropped, in both directions."""
        self._say({"get": "stats"})
        ways = self._event("stats")["links"][link].values()
        return sum(way["dropped"]["censored"] for way in ways)

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _event(self, wanted: str) -> dict[str, Any]:
        assert self._process.stdout is not None, "opened as a pipe"
        for line in self._process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == wanted:
                return event
            if event["event"] == "error":
                raise PeerFailed(f"anabranch emulate: {event['message']}")
        self._process.wait()
        self._errors.seek(0)
        raise PeerFailed(f"anabranch emulate exited:\n{self._errors.read()}")

    def close(self) -> None:
        """Stops the network. Processes on its hosts lose their connections."""
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.close()  # it exits at the end of its input
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        self._errors.close()
        self._file.unlink(missing_ok=True)


def _counts(link: Mapping[str, Any]) -> Counts:
    sent, arrived = link["forward"], link["back"]["delivered"]
    return Counts(sent["units"], sent["bytes"], arrived["units"], arrived["bytes"])


def namespaces_allowed() -> bool:
    """Returns whether this process may make network namespaces and TUN interfaces.

    This requires root: in a user namespace the emulator works, but wireguard-go and wg-quick do
    not.
    """
    command = [anabranch(), "emulate", "check"]
    checked = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False)
    return checked is not False and checked.returncode == 0
