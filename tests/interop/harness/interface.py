"""The splitter's TUN interface for any program (``--tun``), and the state that it changes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.closing import Closing
from harness.net import Host
from harness.splitter import Splitter
from harness.tools import Background, anabranch

TUN = "any0"
# Prefix of the names of namespaces that this process's tests create.
OURS = f"anabranch-browse-{os.getpid()}"
ECHO_PORT = 60_500

# A server that echoes UDP datagrams. Over TCP it replies, after the client's last byte, with the
# client's address and the number of bytes. It serves IPv4 and IPv6.
_ECHO = """\
import socket, sys, threading
host, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
def udp():
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.bind((host, port))
        while True:
            data, peer = s.recvfrom(65535)
            s.sendto(data, peer)
def serve(connection, peer):
    with connection:
        count = 0
        while data := connection.recv(65536):
            count += len(data)
        connection.sendall(f"{peer[0]} {count}".encode())
threading.Thread(target=udp, daemon=True).start()
with socket.create_server((host, port), family=family, backlog=64) as server:
    while True:
        threading.Thread(target=serve, args=server.accept(), daemon=True).start()
"""

# Sends datagrams of the given sizes from one socket, one after the other. Prints for each the
# length of its reply, or the error.
_UDP = """\
import json, socket, sys
host, port, flag, sizes = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
outcomes = []
with socket.socket(family, socket.SOCK_DGRAM) as s:
    if flag == "whole":  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: the bit "don't fragment"
        s.setsockopt(socket.IPPROTO_IP, 10, 2)
    s.settimeout(2)
    s.connect((host, port))
    for number, size in enumerate(sizes):
        data = bytes([number % 256]) * size
        try:
            s.send(data)
            answer = s.recv(65535)
            while number and answer == bytes([(number - 1) % 256]) * sizes[number - 1]:
                answer = s.recv(65535)  # to a copy, by which a path was tried
            outcomes.append(size if answer == data else "other bytes")
        except OSError as error:
            outcomes.append(type(error).__name__ if error.errno is None else error.errno)
print(json.dumps(outcomes))
"""

# Connects, sends the given number of bytes, and prints the server's reply.
_TCP = """\
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as s:
    s.sendall(bytes(int(sys.argv[3])))
    s.shutdown(socket.SHUT_WR)
    print(s.recv(1000).decode())
"""

# A name server that answers every query for an IPv4 address with the same address (RFC 1035),
# after some seconds.
_NAMES = """\
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], 53))
    while True:
        q, peer = s.recvfrom(512)
        time.sleep(float(sys.argv[3]))
        end = q.index(0, 12) + 5
        head = q[:2] + b"\\x81\\x80\\0\\1\\0" + bytes([q[end - 3] == 1]) + b"\\0\\0\\0\\0"
        answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + socket.inet_aton(sys.argv[2])
        s.sendto(head + q[12:end] + (answer if q[end - 3] == 1 else b""), peer)
"""


def interface(
    host: Host, paths: Sequence[str], *words: str, route: bool = True, **settings: Any
) -> Splitter:
    """Starts ``anabranch split --tun any0`` on a host, with ``--route`` unless ``route``
    is false.
    """
    options = ["--tun", TUN, *(["--route"] if route else []), *words]
    return Splitter(host, "", paths, listen="", options=options, **settings)


def refused(host: Host, *words: str, before: Sequence[str] = ()) -> str:
    """Runs ``anabranch split``, asserts exit status 2, and returns its one line of error."""
    command = [*before, anabranch(), "split", *words]
    done = subprocess.run(
        host.command(command), capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2, done
    assert not done.stdout, done
    assert done.stderr.count("\n") == 1, done
    return done.stderr


@contextlib.contextmanager
def echo(host: Host, address: str, port: int = ECHO_PORT) -> Iterator[None]:
    """Runs an echo server on a port, for UDP and TCP, while the block runs."""
    with host.start([sys.executable, "-c", _ECHO, address, str(port)]) as server:
        server.wait_bound(port, "tcp")
        server.wait_bound(port, "udp")
        yield


@contextlib.contextmanager
def names(
    host: Host, address: str, answer: str = "192.0.2.80", delay: float = 0.0
) -> Iterator[None]:
    """Runs a name server with one address, which replies after ``delay`` seconds."""
    words = [sys.executable, "-c", _NAMES, address, answer, str(delay)]
    with host.start(words) as server:
        server.wait_bound(53)
        yield


@dataclass(frozen=True)
class WithNames(Host):
    """A host whose programs use the name servers of the file ``resolver``."""

    resolver: Path = Path("/etc/resolv.conf")

    def command(self, argv: Sequence[str]) -> list[str]:
        """Returns ``argv`` wrapped in a mount namespace where ``resolver`` is /etc/resolv.conf."""
        script = f'mount --bind {self.resolver} /etc/resolv.conf && exec "$0" "$@"'
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, *argv]
        return super().command(words)


def udp(
    host: Host, address: str, sizes: Sequence[int], *, port: int = ECHO_PORT, whole: bool = False
) -> list[Any]:
    """Sends datagrams of these sizes; returns for each the reply's size, an errno, or an error.

    ``whole`` sets the "don't fragment" bit.
    """
    flag = "whole" if whole else "-"
    words = [sys.executable, "-c", _UDP, address, str(port), flag, json.dumps(list(sizes))]
    outcomes: list[Any] = json.loads(host.must(words, timeout=40))
    return outcomes


def tcp(host: Host, address: str, *, port: int = ECHO_PORT, length: int = 10) -> tuple[str, int]:
    """Sends ``length`` bytes by TCP; returns the client's address and the byte count at
    the server.
    """
    words = [sys.executable, "-c", _TCP, address, str(port), str(length)]
    seen, count = host.must(words, timeout=40).split()
    return seen, int(count)


def tcp_beside(host: Host, address: str, length: int) -> Background:
    """Starts the transfer of `tcp` in the background and ignores its outcome."""
    return host.start([sys.executable, "-c", _TCP, address, str(ECHO_PORT), str(length)])


# A program that sends a few bytes each millisecond from each of its sockets and ignores errors.
# Some ports are split and others are not, for IPv4 and IPv6. At the end of its input it prints the
# number of datagrams sent, and exits.
_SENDER = """\
import select, socket, sys
sockets = []
for host in sys.argv[1].split(","):
    for port in map(int, sys.argv[2].split(",")):
        s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        sockets.append((s, (host, port)))
print("begins", flush=True)
sent = 0
while not select.select([sys.stdin], [], [], 0.001)[0]:
    for s, to in sockets:
        try:
            s.sendto(b"anabranch", to)
            sent += 1
        except OSError:
            pass
print("sent", sent, flush=True)
"""


class Sender(Closing):
    """A program that sends without pause, so that a capture shows any gap, however short."""

    def __init__(self, host: Host, servers: Sequence[str], ports: Sequence[int]):
        """Starts to send from a socket for each server and port, until it is closed."""
        words = [",".join(servers), ",".join(map(str, ports))]
        self._process = subprocess.Popen(
            host.command([sys.executable, "-c", _SENDER, *words]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None, "opened as a pipe"
        assert self._process.stdout.readline() == "begins\n"

    def stop(self) -> int:
        """Stops the program and returns the number of datagrams sent."""
        said, _ = self._process.communicate(timeout=10)
        return int(said.split()[1])

    def close(self) -> None:
        """Stops the program if it runs."""
        if self._process.poll() is None:
            self._process.communicate(timeout=10)


_COOKIE = """\
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    print(f"{int.from_bytes(s.getsockopt(socket.SOL_SOCKET, 71, 8), 'little'):x}")
"""


def state(host: Host) -> str:
    """Returns the state of a host that ``--tun`` may change, as the system's tools print it.

    Of folders that all hosts share, only this host's entries are listed, because other tests may
    run at the same time.
    """
    shown = [
        host.must(words)
        for words in (
            ["nft", "list", "ruleset"],
            ["ip", "rule"],
            ["ip", "-6", "rule"],
            ["ip", "route", "show", "table", "all"],
            ["ip", "-6", "route", "show", "table", "all"],
            ["ip", "-o", "link"],
            ["sh", "-c", "grep -H . /proc/sys/net/ipv*/conf/*/*forwarding "
             "/proc/sys/net/ipv*/conf/*/accept_ra /proc/sys/net/ipv4/conf/*/src_valid_mark"],
        )
    ]  # fmt: skip
    namespace = host.must([sys.executable, "-c", _COOKIE]).strip()
    files = [
        *Path("/run/anabranch").glob(f"{namespace}-*"),
        *Path("/run/netns").glob(f"{OURS}*"),
        *Path("/etc/netns").glob(f"{OURS}*"),
        *Path("/etc/netns").glob(f"{OURS}*/*"),
    ]
    return "\n".join([*shown, *sorted(map(str, files))])


@contextlib.contextmanager
def unchanged(host: Host, wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Asserts that a host's :func:`state` is the same at the end of the ``with`` block as at its
    start.
    """
    before = state(host)
    yield
    wait()
    after = state(host)
    changes = set(before.splitlines()) ^ set(after.splitlines())
    assert before == after, "\n".join(sorted(changes))
