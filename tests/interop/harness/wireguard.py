"""wireguard-go at both ends, and HTTP and iperf3 inside the tunnel."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.net import Host
from harness.tools import Background, wait_for
from harness.transfer import Transfer, client

INSIDE_SERVER = "10.8.0.1"
INSIDE_CLIENT = "10.8.0.2"
PORT = 51820
MTU = 1420
_numbers = itertools.count()


@dataclass(frozen=True)
class Keys:
    """A key pair in WireGuard's base64."""

    private: str
    public: str


def make_keys(host: Host) -> Keys:
    """A fresh pair, by ``wg`` itself."""
    private = host.must(["wg", "genkey"])
    return Keys(private.strip(), host.must(["wg", "pubkey"], text=private).strip())


@contextlib.contextmanager
def interface(host: Host, name: str) -> Iterator[Background]:
    """A wireguard-go process with an interface of this name on ``host``."""
    socket = Path(f"/var/run/wireguard/{name}.sock")
    with host.start(["wireguard-go", "-f", name], LOG_LEVEL="error") as process:
        process.wait_until(f"{name}'s control socket", socket.exists)
        yield process


def unique(kind: str) -> str:
    """An interface name that no other run on this machine has (control sockets share a folder)."""
    return f"{kind}{os.getpid() % 1_000_000}n{next(_numbers)}"


class Tunnel:
    """A WireGuard tunnel between two hosts, each end an unaltered wireguard-go."""

    def __init__(self, server: Host, client_host: Host, endpoint: str):
        """Makes both ends; ``endpoint`` is what the client is told to speak to (the splitter)."""
        self.server, self.client = server, client_host
        self._stack = contextlib.ExitStack()
        keys, peer = make_keys(server), make_keys(client_host)
        try:
            self.server_interface = self._end(server, "s", INSIDE_SERVER, keys.private)
            self._peer(server, self.server_interface, peer.public, INSIDE_CLIENT, port=PORT)
            self.client_interface = self._end(client_host, "c", INSIDE_CLIENT, peer.private)
            self._peer(
                client_host, self.client_interface, keys.public, INSIDE_SERVER, endpoint=endpoint
            )
        except BaseException:
            self._stack.close()
            raise

    def _end(self, host: Host, kind: str, address: str, private: str) -> str:
        name = unique(f"wg{kind}")
        self._stack.enter_context(interface(host, name))
        host.must(["wg", "set", name, "private-key", "/dev/stdin"], text=private)
        host.must(["ip", "address", "add", f"{address}/24", "dev", name])
        host.must(["ip", "link", "set", name, "mtu", str(MTU), "up"])
        # By route, because only the machine's first namespace may change the default algorithm.
        inside = ["ip", "route", "replace", "10.8.0.0/24", "dev", name, "src", address]
        host.must([*inside, "congctl", "cubic"])
        return name

    def _peer(
        self, host: Host, name: str, public: str, inside: str, *, port: int = 0, endpoint: str = ""
    ) -> None:
        command = ["wg", "set", name]
        command += ["listen-port", str(port)] if port else []
        command += ["peer", public, "allowed-ips", f"{inside}/32"]
        command += ["endpoint", endpoint] if endpoint else []
        host.must(command)

    def ping(self, seconds: float = 10.0) -> None:
        """Waits until the tunnel carries a packet there and back.

        Raises:
            TimeoutError: it does not.
        """
        once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]
        wait_for(
            "a ping through the tunnel", lambda: self.client.run(once).returncode == 0, seconds
        )

    @contextlib.contextmanager
    def web(self, root: Path) -> Iterator[None]:
        """Serves the files below ``root`` by HTTP inside the tunnel, with Python's own server."""
        command = [sys.executable, "-m", "http.server", "80", "--bind", INSIDE_SERVER]
        with self.server.start([*command, "--directory", str(root)]) as server:
            server.wait_bound(80, "tcp")
            yield

    def download(self, length: int, seconds: float = 30.0) -> Transfer:
        """Fetches ``bytes/length`` by HTTP through the tunnel, with curl."""
        return fetch(self.client, f"http://{INSIDE_SERVER}/bytes/{length}", seconds)

    def iperf(self, seconds: int = 5, *options: str) -> tuple[float, float]:
        """iperf3 with TCP cubic, both directions at once.

        Returns:
            What arrived at the server and at the client, in Mbit/s.
        """
        with self.server.start(["iperf3", "-s", "-1", "-B", INSIDE_SERVER]) as server:
            server.wait_bound(5201, "tcp")
            command = ["iperf3", "-c", INSIDE_SERVER, "-J", "-C", "cubic", "--bidir"]
            command += ["-t", str(seconds), *options]
            end = json.loads(self.client.must(command, timeout=seconds + 20))["end"]
        up, down = end["sum_received"], end["sum_received_bidir_reverse"]
        return up["bits_per_second"] / 1e6, down["bits_per_second"] / 1e6

    def handshakes(self) -> int:
        """When the client's latest handshake was, in seconds since 1970; 0 if there was none."""
        shown = self.client.must(["wg", "show", self.client_interface, "latest-handshakes"])
        return int(shown.split()[1])

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def fetch(host: Host, url: str, seconds: float) -> Transfer:
    """Downloads a URL with curl and hashes what it prints."""
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
    return Transfer(count, total.hexdigest(), took, count * 8e-6 / took, gap, error)


class UserSpaceTunnel:
    """wgnet at both ends: wireguard-go with its own network stack, without TUN and without root."""

    def __init__(self, server: Host, client_host: Host, port: int = PORT):
        """Starts the server's end, listening on UDP ``port``."""
        self.client, self._server, self._peer = client_host, _wgnet_keys(), _wgnet_keys()
        serve = ["wgnet", "serve", "-private", self._server["private"], "-port", str(port)]
        self._process = server.start([*serve, "-peer", self._peer["public"]])
        self._process.wait_bound(port)

    def download(self, endpoint: str, length: int, seconds: float = 30.0) -> Transfer:
        """Fetches ``bytes/length`` through a fresh tunnel to ``endpoint``."""
        fetch_by = ["wgnet", "fetch", "-private", self._peer["private"], "-endpoint", endpoint]
        fetch_by += ["-peer", self._server["public"], "-path", f"/bytes/{length}"]
        return client(self.client, [*fetch_by, "-timeout", f"{seconds}s"], seconds)

    def __enter__(self) -> UserSpaceTunnel:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()


def _wgnet_keys() -> dict[str, str]:
    made: dict[str, str] = json.loads(Host("here").must(["wgnet", "keys"]))
    return made
