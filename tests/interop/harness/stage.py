"""The stage of the demo: emulated paths, or loopback addresses where those are not allowed."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.net import SERVER, Host, Link, Network, namespaces_allowed, topology
from harness.seeded import MIB
from harness.splitter import Splitter
from harness.tools import MissingPeer, PeerFailed, anabranch, bound, wait_for

PATH_NAMES = ("wlan", "lte", "home")
SCHEDULE = "weighted:2"
SEED = 7


@dataclass
class Stage:
    """Two hosts, the server's address, and paths between them as ``--path`` takes them."""

    client: Host
    server: Host
    address: str
    paths: list[str]
    folder: Path
    description: str
    options: list[str] = field(default_factory=list)
    emulated: bool = True
    live: bool = False
    every: str = "100ms"
    length: int = 25 * MIB  # of the downloads, bytes
    path_names: tuple[str, ...] = PATH_NAMES

    def port(self, usual: int) -> int:
        """Returns a UDP port for a server: ``usual``, unless this machine itself is the server."""
        return usual if self.emulated else free_port()

    @contextlib.contextmanager
    def split(self, name: str, port: int) -> Iterator[str]:
        """Runs the splitter towards the server's ``port`` and yields its listening address.

        It shows its live view or prints a line a second, and writes ``name.parquet``.
        """
        listen = f"127.0.0.1:{free_port()}"
        options = ["--replace", "--trace", str(self.folder / f"{name}.parquet"), *self.options]
        to = f"{self.address}:{port}"
        if self.live:
            with self._live(listen, to, options):
                yield listen
            return
        with Splitter(
            self.client, to, self.paths, listen=listen, options=options,
            schedule=SCHEDULE, every=self.every, seed=SEED, watch=_print_stats,
        ) as splitter:  # fmt: skip
            yield listen
            splitter.stop()

    @contextlib.contextmanager
    def _live(self, listen: str, to: str, options: list[str]) -> Iterator[None]:
        """Runs the splitter with the terminal to itself."""
        command = [anabranch(), "split", "--listen", listen, "--to", to, *options]
        command += ["--schedule", SCHEDULE, "--every", self.every, "--seed", str(SEED)]
        command += [word for path in self.paths for word in ("--path", path)]
        port = int(listen.rsplit(":", 1)[1])
        process = subprocess.Popen(self.client.command(command))

        def settled() -> bool:
            return port in bound(process.pid, "udp") or process.poll() is not None

        try:
            wait_for("the splitter to listen", settled)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait(10)
        if status != 0:
            raise PeerFailed(f"split ended with status {status}")


def emulated(stack: contextlib.ExitStack, folder: Path) -> Stage:
    """Returns a stage of three links of 100 Mbit/s and 10 ms one way, in two network namespaces.

    Raises:
        MissingPeer: namespaces or TUN interfaces are not allowed here.
        PeerFailed: the network does not start.
    """
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces need root")
    links = [Link(name) for name in PATH_NAMES]
    network = stack.enter_context(Network(topology(links)))
    paths = [f"{name}=if:{name}" for name in PATH_NAMES]
    about = f"{', '.join(PATH_NAMES)}: emulated, each 100 Mbit/s and {links[0].delay} one way"
    return Stage(network.client, network.server, SERVER, paths, folder, about)


def loopback(folder: Path) -> Stage:
    """Returns a stage of three source addresses on this machine's loopback interface."""
    here = Host("here")
    paths = [f"{name}=addr:127.0.0.{2 + i}" for i, name in enumerate(PATH_NAMES)]
    about = "loopback addresses " + ", ".join(path.replace("addr:", "") for path in paths)
    # Without a rate or a delay a download is over at once: more bytes and shorter slices.
    return Stage(
        here, here, "127.0.0.1", paths, folder, about, ["--same-egress"],
        emulated=False, every="20ms", length=100 * MIB,
    )  # fmt: skip


def free_port() -> int:
    """Returns a free UDP port of the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _print_stats(event: dict[str, Any]) -> None:
    """Prints a line a second if there is no terminal."""
    if event["event"] == "stats":
        each = (f"{p['name']} {p['up_packets']}/{p['down_packets']}" for p in event["paths"])
        print(f"  {event['time']:5.1f} s, packets up/down: {', '.join(each)}", flush=True)
