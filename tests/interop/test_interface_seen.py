"""The user's view of ``--tun``: captures and the live view, for IPv4 and IPv6 sessions."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet
import pyte
import pytest

from conftest import MakeNetwork
from harness.capture import Packet, Tcpdump, read_pcapng
from harness.closing import Closing
from harness.interface import ECHO_PORT, OURS, TUN, echo, interface, udp
from harness.net import SERVER, SERVER6, Host, Network, links
from harness.splitter import interfaces
from harness.tools import anabranch, wait_for

pytestmark = pytest.mark.interface

SIZES = [200, 100, 700, 1200] * 6
COLUMNS, ROWS = 120, 30


@pytest.fixture
def network(make_network: MakeNetwork) -> Network:
    """Returns a network of three uplinks, each with a default route."""
    return make_network(links(3), default_routes=True)


@pytest.mark.parametrize("words", [[], ["--netns", OURS]], ids=["host", "netns"])
def test_captures_hold_what_each_observer_sees(
    network: Network, words: list[str], tmp_path: Path
) -> None:
    """``--pcap`` and ``--trace`` contain the same packets as tcpdump's captures."""
    client = network.client
    folder, trace = tmp_path / "captures", tmp_path / "run.parquet"
    folder.mkdir()
    options = ["--pcap", str(folder), "--trace", str(trace), *words]
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(echo(network.server, SERVER6))
        splitter = stack.enter_context(interface(client, interfaces(3), *options, every="1p"))
        observers = {
            name: stack.enter_context(
                Tcpdump(client, name, tmp_path / f"{name}.pcap", f"udp port {ECHO_PORT}")
            )
            for name in ("p0", "p1", "p2")
        }
        host = Host("inside", f"/run/netns/{OURS}") if words else client
        for server in (SERVER, SERVER6):
            assert udp(host, server, SIZES) == SIZES
        splitter.stop()
        seen = {name: observer.stop() for name, observer in observers.items()}
    for name, packets in seen.items():
        assert len(packets) == 2 * 2 * len(SIZES) / 3
        ours = read_pcapng(client, folder / f"{name}.pcapng")
        assert sorted(map(_content, ours)) == sorted(map(_content, packets))
    rows = pyarrow.parquet.read_table(trace).to_pylist()
    assert len(rows) == sum(map(len, seen.values()))


def _content(packet: Packet) -> tuple[object, ...]:
    return (packet.source, packet.destination, packet.size, packet.payload)


def test_the_live_view_shows_sessions_and_what_others_took_away(network: Network) -> None:
    """The live view shows paths, sessions with their servers, and the warning, and finally the
    counts.
    """
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(echo(network.server, SERVER6))
        screen = stack.enter_context(_Screen(network.client))
        screen.wait_for("q quit")
        assert screen.shows(f"interface {TUN} is up")
        # The recommended MTU is for servers of both families: an IPv6 header is 20 bytes longer.
        assert screen.shows("set the MTU of a WireGuard tunnel to 1420")
        for server in (SERVER, SERVER6):
            assert udp(network.client, server, [100] * 9) == [100] * 9
        screen.wait_for(f"to {SERVER}:{ECHO_PORT}  other")
        screen.wait_for(f"to [{SERVER6}]:{ECHO_PORT}  other")
        network.client.must(["nft", "flush", "ruleset"])
        screen.wait_for("table inet anabranch_0: the splitter has restored it")
        assert screen.end() == 0
        assert screen.shows("ended after")


class _Answering(pyte.Screen):
    """A screen that reports its cursor's position on request."""

    def __init__(self, terminal: int):
        super().__init__(COLUMNS, ROWS)
        self._terminal = terminal

    def write_process_input(self, data: str) -> None:
        """Sends the terminal's response to the program."""
        os.write(self._terminal, data.encode())


class _Screen(Closing):
    """The splitter on a pseudo-terminal, which responds to a program's queries."""

    def __init__(self, host: Host):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._screen = _Answering(self._ours)
        self._stream = pyte.ByteStream(self._screen)
        words = [anabranch(), "split", "--tun", TUN, "--route"]
        words += [word for path in interfaces(3) for word in ("--path", path)]
        self._process = subprocess.Popen(
            # This makes the terminal the program's controlling terminal.
            ["setsid", "--ctty", *host.command(words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        os.close(theirs)

    def shows(self, text: str) -> bool:
        """Returns whether the screen has this text, after all output so far."""
        while select.select([self._ours], [], [], 0.05)[0]:
            try:
                self._stream.feed(os.read(self._ours, 65536))
            except OSError:  # the other end is closed
                break
        return any(text in line for line in self._screen.display)

    def wait_for(self, text: str) -> None:
        """Waits until the screen has this text."""
        wait_for(f"'{text}' on the screen", lambda: self.shows(text), 15)

    def end(self) -> int:
        """Sends Ctrl-C, and returns the exit status."""
        os.write(self._ours, b"\x03")
        end = time.monotonic() + 10
        while self._process.poll() is None and time.monotonic() < end:
            self.shows("")
        return self._process.wait(1)

    def close(self) -> None:
        """Kills the program."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(10)
        os.close(self._ours)
