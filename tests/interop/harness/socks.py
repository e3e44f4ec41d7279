"""Dante, an unmodified SOCKS5 proxy, on a host between client and server."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from harness.net import SERVER, Host, Link, topology
from harness.tools import Background

# Address of the proxy, and the source address that the server sees for its clients.
PROXY, PORT = "10.77.9.1", 1080
OUTER = "10.78.0.2"
USER, PASSWORD = "anabranch-anna", "correct horse"
# The client's link to the proxy, and the proxy's to the server.
NEAR, FAR = "near", "far"

CONFIGURATION = """\
logoutput: stderr
internal: {near} port = {port}
external: {far}
socksmethod: username
clientmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 10.77.9.0/24 to: 0.0.0.0/0 }}
socks pass {{ from: 10.77.9.0/24 to: 0.0.0.0/0 command: connect udpassociate }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 command: udpreply }}
"""


# A public address of the proxy (documentation range, RFC 5737), and its private one, which is
# meaningless outside its NAT.
PUBLIC, INSIDE = "203.0.113.1", "10.0.0.9"


def translated_topology(direct: Sequence[Link]) -> str:
    """Returns :func:`proxied_topology` with the proxy at :data:`PUBLIC`."""
    near, public = (address.rpartition(".")[0] + "." for address in (PROXY, PUBLIC))
    return proxied_topology(direct).replace(near, public)


@contextlib.contextmanager
def translated_proxy(host: Host) -> Iterator[None]:
    """Runs a proxy that advertises the relay address :data:`INSIDE`, as if it were inside a NAT."""
    with host.start([sys.executable, "-c", _TRANSLATED, PUBLIC, str(PORT), INSIDE]) as proxy:
        proxy.wait_bound(PORT, "tcp")
        yield


# SOCKS5 (RFC 1928) without authentication, for one UDP association after another.
_TRANSLATED = """\
import selectors, socket, sys, threading
at, port, named = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def relay(control):
    near, far = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
    near.bind((at, 0))
    control.recv(64)
    control.sendall(bytes([5, 0]))
    control.recv(64)
    bound = socket.inet_aton(named) + near.getsockname()[1].to_bytes(2, "big")
    control.sendall(bytes([5, 0, 0, 1]) + bound)
    ready, client = selectors.DefaultSelector(), None
    for one in (control, near, far):
        ready.register(one, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is control:
                if not control.recv(64):
                    return near.close(), far.close()
            elif key.fileobj is near:
                data, client = near.recvfrom(65535)
                host, number = socket.inet_ntoa(data[4:8]), int.from_bytes(data[8:10], "big")
                far.sendto(data[10:], (host, number))
            else:
                data, (host, number) = far.recvfrom(65535)
                head = bytes([0, 0, 0, 1]) + socket.inet_aton(host) + number.to_bytes(2, "big")
                near.sendto(head + data, client)

listener = socket.create_server((at, port))
while True:
    threading.Thread(target=relay, args=listener.accept()[:1], daemon=True).start()
"""


def proxied_topology(direct: Sequence[Link], *, default_routes: bool = False) -> str:
    """Returns ``direct`` links from client to server, and a route by a third host, ``proxy``."""
    near, far = Link(NEAR), Link(FAR, delay="1ms")
    return (
        topology(direct, default_routes=default_routes)
        + f"""
[[host]]
name = "proxy"
[[link]]
name = "{near.name}"
ends = [
  {{ host = "client", address = ["10.77.9.2/24"] }},
  {{ host = "proxy", address = ["{PROXY}/24"] }},
]
rate = "{near.rate}"
delay = "{near.delay}"
queue = "{near.queue}"
mtu = {near.mtu}
[[link]]
name = "{far.name}"
ends = [
  {{ host = "proxy", address = ["{OUTER}/24"], routes = ["{SERVER}/32"] }},
  {{ host = "server", routes = ["10.78.0.0/24"], prefsrc = ["{SERVER}"] }},
]
rate = "{far.rate}"
delay = "{far.delay}"
queue = "{far.queue}"
mtu = {far.mtu}
"""
    )


class Dante:
    """A proxy that relays UDP and TCP for :data:`USER`, a user of its mount namespace only."""

    def __init__(self, host: Host, folder: Path):
        """Starts the proxy; its files go to ``folder``."""
        self._host, self._folder = host, folder
        (folder / "danted.conf").write_text(CONFIGURATION.format(near=NEAR, far=FAR, port=PORT))
        hashed = host.must(["openssl", "passwd", "-6", "-stdin"], text=PASSWORD).strip()
        accounts = {
            "passwd": f"{USER}:x:64321:65534::/:/usr/sbin/nologin",
            "shadow": f"{USER}:{hashed}:19000::::::",
        }
        for name, line in accounts.items():
            copy = folder / name
            copy.write_text(Path("/etc", name).read_text() + line + "\n")
            copy.chmod(Path("/etc", name).stat().st_mode & 0o777)
        self._process: Background | None = None
        self.start()

    def start(self) -> None:
        """Starts the proxy (again)."""
        script = (
            'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/shadow" /etc/shadow && '
            'exec danted -f "$0/danted.conf" -p "$0/danted.pid"'
        )
        # In a process namespace of its own, so that its relaying children die with it.
        command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork"]
        command += ["sh", "-c", script]
        self._process = self._host.start([*command, str(self._folder)])
        self._process.wait_bound(PORT, "tcp")

    def kill(self) -> None:
        """Kills the proxy, and every association with it."""
        assert self._process is not None, "it runs"
        pid = self._process.pid
        first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for process in first:  # the first process of its namespace: the kernel kills the others
            os.kill(int(process), signal.SIGKILL)
        self._process.stop()
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()


def path(folder: Path, name: str = "prx", password: str = PASSWORD, *, kind: str = "socks5") -> str:
    """Returns the ``--path`` argument for the proxy over its link; the password is in a file.

    ``kind`` is ``socks5`` for datagrams, or ``socks5-tcp``.
    """
    file = folder / "password"
    file.write_text(password + "\n")
    return f"{name}={kind}:{USER}:@{file}@{PROXY}:{PORT},if:{NEAR}"
