"""Dante, an unaltered SOCKS5 proxy, on a host between client and server."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from harness.net import SERVER, Host, Link, topology
from harness.tools import Background

# Where the proxy listens, and what the server sees of whom it relays for.
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
socks pass {{ from: 10.77.9.0/24 to: 0.0.0.0/0 command: udpassociate }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 command: udpreply }}
"""


def proxied_topology(direct: Sequence[Link], *, default_routes: bool = False) -> str:
    """``direct`` links from client to server, and a way round by a third host, ``proxy``."""
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
    """A proxy that relays UDP for :data:`USER`, who exists nowhere but in its mount namespace."""

    def __init__(self, host: Host, folder: Path):
        """Starts it; its files go to ``folder``."""
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
        """Starts it (again)."""
        script = (
            'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/shadow" /etc/shadow && '
            'exec danted -f "$0/danted.conf" -p "$0/danted.pid"'
        )
        # In a process namespace of its own, so that its children, which relay, die with it.
        command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork"]
        command += ["sh", "-c", script]
        self._process = self._host.start([*command, str(self._folder)])
        self._process.wait_bound(PORT, "tcp")

    def kill(self) -> None:
        """Ends it, and with it every association."""
        assert self._process is not None, "it runs"
        pid = self._process.pid
        first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for process in first:  # it is the first of its namespace: the kernel kills the others
            os.kill(int(process), signal.SIGKILL)
        self._process.stop()
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()


def path(folder: Path, name: str = "prx", password: str = PASSWORD) -> str:
    """The ``--path`` argument for the proxy, reached by its link; the password is in a file."""
    file = folder / "password"
    file.write_text(password + "\n")
    return f"{name}=socks5:{USER}:@{file}@{PROXY}:{PORT},if:{NEAR}"
