"""wireguard-go at both ends, and HTTP and iperf3 inside the tunnel."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from harness.net import Host
from harness.tools import wait_for
from harness.transfer import Transfer

INSIDE_SERVER = "10.8.0.1"
INSIDE_CLIENT = "10.8.0.2"
PORT = 51820
MTU = 1420
IPERF_PORT = 5201
# AmneziaWG's options: junk packets, junk before each kind of packet, other types (see its README).
DISGUISE = {
    "jc": "4", "jmin": "40", "jmax": "70", "s1": "15", "s2": "68", "s3": "12", "s4": "20",
    "h1": "1234567801", "h2": "1234567802", "h3": "1234567803", "h4": "1234567804",
}  # fmt: skip
_numbers = itertools.count()


@dataclass(frozen=True)
class Keys:
    """A key pair in WireGuard's base64."""

    private: str
    public: str


def make_keys(host: Host) -> Keys:
    """Makes a key pair with ``wg``."""
    private = host.must(["wg", "genkey"])
    return Keys(private.strip(), host.must(["wg", "pubkey"], text=private).strip())


@contextlib.contextmanager
def interface(
    host: Host,
    address: str,
    private: str,
    inside: Host | None = None,
    program: str = "wireguard-go",
    *,
    disguise: Mapping[str, str] = DISGUISE,
) -> Iterator[str]:
    """Runs wireguard-go on ``host``; yields the name of its interface.

    ``program`` may be another program that ``wg`` configures: boringtun-cli, or amneziawg-go,
    which disguises its packets by ``disguise``. The interface is on ``host``, or moved to
    ``inside``; the UDP socket stays on ``host``.
    """
    name = unique("wg")
    control = Path(f"/var/run/wireguard/{name}.sock")
    words = [program, "-f", name]
    words += ["--disable-drop-privileges"] if program == "boringtun-cli" else []
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(host.start(words, LOG_LEVEL="error"))
        if program == "amneziawg-go":
            own = Path(f"/var/run/amneziawg/{name}.sock")
            process.wait_until(f"{name}'s control socket", own.exists)
            configure(own, disguise)
            control.parent.mkdir(parents=True, exist_ok=True)
            control.symlink_to(own)
            stack.callback(control.unlink, missing_ok=True)
        process.wait_until(f"{name}'s control socket", control.exists)
        host.must(["wg", "set", name, "private-key", "/dev/stdin"], text=private)
        if inside is not None and inside.netns is not None:
            host.must(["ip", "link", "set", name, "netns", inside.netns])
        home = inside or host
        home.must(["ip", "address", "add", f"{address}/24", "dev", name])
        home.must(["ip", "link", "set", name, "mtu", str(MTU), "up"])
        # Per route, because only the machine's first namespace may change the default algorithm.
        route = ["ip", "route", "replace", "10.8.0.0/24", "dev", name, "src", address]
        home.must([*route, "congctl", "cubic"])
        yield name


def configure(control: Path, settings: Mapping[str, str]) -> None:
    """Sets options that ``wg`` lacks, by WireGuard's cross-platform configuration protocol."""
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(control))
        stream.sendall(f"set=1\n{lines}\n".encode())
        assert stream.recv(64) == b"errno=0\n\n", settings


def unique(kind: str) -> str:
    """Returns an interface name that is unique on this machine (control sockets share a folder)."""
    return f"{kind}{os.getpid() % 1_000_000}n{next(_numbers)}"


class ServerEnd:
    """The server's end of a tunnel: an interface with one client as its peer."""

    def __init__(
        self,
        host: Host,
        client_public: str,
        port: int = PORT,
        inside: Host | None = None,
        program: str = "wireguard-go",
    ):
        """Listens on UDP ``port`` of ``host``; its interface and servers are ``inside``."""
        keys = make_keys(host)
        self.host, self.public = inside or host, keys.public
        self._stack = contextlib.ExitStack()
        with self._stack:
            self.name = self._stack.enter_context(
                interface(host, INSIDE_SERVER, keys.private, inside, program)
            )
            listen = ["wg", "set", self.name, "listen-port", str(port), "peer", client_public]
            host.must([*listen, "allowed-ips", f"{INSIDE_CLIENT}/32"])
            self._stack = self._stack.pop_all()

    @contextlib.contextmanager
    def web(self, root: Path) -> Iterator[None]:
        """Serves the files below ``root`` by HTTP inside the tunnel, with Python's own server."""
        command = [sys.executable, "-m", "http.server", "80", "--bind", INSIDE_SERVER]
        with self.host.start([*command, "--directory", str(root)]) as server:
            server.wait_bound(80, "tcp")
            yield

    @contextlib.contextmanager
    def iperf(self) -> Iterator[None]:
        """Serves one run of iperf3 inside the tunnel."""
        with self.host.start(["iperf3", "-s", "-1", "-B", INSIDE_SERVER]) as server:
            server.wait_bound(IPERF_PORT, "tcp")
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Tunnel:
    """A WireGuard tunnel between two hosts, each end an unmodified wireguard-go or ``program``."""

    def __init__(
        self,
        server: Host,
        client_host: Host,
        endpoint: str,
        inside: Host | None = None,
        port: int = PORT,
        *,
        program: str = "wireguard-go",
    ):
        """Makes both ends: the client connects to ``endpoint`` (the splitter), the server listens
        on ``port``.

        The server's interface is on ``inside``, if given, while its UDP socket is on ``server``.
        """
        self.client = client_host
        keys = make_keys(client_host)
        with contextlib.ExitStack() as stack:
            self.server = stack.enter_context(ServerEnd(server, keys.public, port, inside, program))
            own = interface(client_host, INSIDE_CLIENT, keys.private, program=program)
            self.name = stack.enter_context(own)
            peer = ["wg", "set", self.name, "peer", self.server.public]
            client_host.must([*peer, "allowed-ips", f"{INSIDE_SERVER}/32", "endpoint", endpoint])
            self._stack = stack.pop_all()

    def ping(self, seconds: float = 10.0) -> None:
        """Waits until a ping passes the tunnel.

        Raises:
            TimeoutError: if no ping passes in time.
        """
        once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]
        wait_for("a ping in the tunnel", lambda: self.client.run(once).returncode == 0, seconds)

    def download(self, length: int, seconds: float = 30.0) -> Transfer:
        """Fetches ``bytes/length`` through the tunnel from :meth:`ServerEnd.web`."""
        return fetch(self.client, length, seconds)

    def iperf(self, seconds: int = 5, *options: str) -> tuple[float, float]:
        """Runs iperf3 with TCP cubic in both directions at once.

        Returns:
            The rates that arrived at the server and at the client, in Mbit/s.
        """
        command = ["iperf3", "-c", INSIDE_SERVER, "-J", "-C", "cubic", "--bidir"]
        command += ["-t", str(seconds), *options]
        with self.server.iperf():
            end = json.loads(self.client.must(command, timeout=seconds + 20))["end"]
        up, down = end["sum_received"], end["sum_received_bidir_reverse"]
        return up["bits_per_second"] / 1e6, down["bits_per_second"] / 1e6

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def fetch(host: Host, length: int, seconds: float, server: str = INSIDE_SERVER) -> Transfer:
    """Downloads ``bytes/length`` from the tunnel's other end with curl and hashes it."""
    url = f"http://{server}/bytes/{length}"
    command = host.command(["curl", "-sSf", "--max-time", str(seconds), url])
    start = last = time.monotonic()
    total, gap, count = hashlib.sha256(), 0.0, 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as curl:
        assert curl.stdout is not None, "opened as a pipe"
        assert curl.stderr is not None, "opened as a pipe"
        while piece := curl.stdout.read1(65536):  # type: ignore[attr-defined]
            now = time.monotonic()
            gap, last = max(gap, now - last) if count else gap, now
            total.update(piece)
            count += len(piece)
        error = curl.stderr.read().decode().strip()
    took = time.monotonic() - start
    return Transfer(
        bytes=count, sha256=total.hexdigest(), seconds=took, error=error,
        goodput_mbits=count * 8e-6 / took, longest_gap_s=gap,
    )  # fmt: skip
