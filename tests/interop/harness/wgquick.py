"""Tunnels by wg-quick itself, with wireguard-go below it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from harness.net import Host
from harness.tools import SEARCH_PATH, PeerFailed, tool
from harness.wireguard import INSIDE_CLIENT, INSIDE_SERVER, MTU, Keys, unique

# The mark that wg-quick takes of its own accord, and the table of that number.
FWMARK = 51820


class Quick:
    """A tunnel that ``wg-quick up FILE`` makes and ``wg-quick down FILE`` ends."""

    def __init__(self, host: Host, file: Path):
        """``file`` is NAME.conf; a :func:`unique` NAME becomes the interface."""
        self.host, self.name, self._file = host, file.stem, file
        self._quick("up")

    def mtu(self) -> int:
        """The MTU of its interface."""
        (link,) = json.loads(self.host.must(["ip", "-j", "link", "show", self.name]))
        return int(link["mtu"])

    def rules(self) -> str:
        """The routing rules as they are now."""
        return self.host.must(["ip", "-4", "rule", "show"])

    def reaches_server(self) -> bool:
        """Whether a packet comes back from the tunnel's other end."""
        return self.host.run(["ping", "-c", "1", "-W", "2", INSIDE_SERVER]).returncode == 0

    def _quick(self, what: str) -> None:
        environment = {
            **os.environ,
            "PATH": SEARCH_PATH,
            "WG_QUICK_USERSPACE_IMPLEMENTATION": tool("wireguard-go"),
            "LOG_LEVEL": "error",
        }
        command = self.host.command(["wg-quick", what, str(self._file)])
        # To a file: the wireguard-go that it leaves behind would keep a pipe open.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                command, env=environment, stdout=said, stderr=said, timeout=30, check=False
            )
            said.seek(0)
            if done.returncode != 0:
                raise PeerFailed(f"wg-quick {what}: {said.read()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._quick("down")


class FullTunnel(Quick):
    """On the client: every packet that is not marked goes into the tunnel."""

    def __init__(self, host: Host, own: Keys, server: str, endpoint: str, folder: Path):
        """``server`` is its public key; ``endpoint`` is where the splitter listens."""
        file = folder / f"{unique('wgf')}.conf"
        # The endpoint is on the loopback interface, whose MTU of 65536 wg-quick would take over.
        interface = f"MTU = {MTU}\nFwMark = {FWMARK}\nTable = auto\n"
        write_file(file, own, server, endpoint, interface=interface, networks="0.0.0.0/0")
        super().__init__(host, file)


def write_file(
    file: Path, own: Keys, server: str, endpoint: str, *, interface: str, networks: str
) -> None:
    """A client's wg-quick file; ``interface`` holds further lines of that section."""
    file.write_text(f"""\
[Interface]
PrivateKey = {own.private}
Address = {INSIDE_CLIENT}/32
{interface}
[Peer]
PublicKey = {server}
AllowedIPs = {networks}
Endpoint = {endpoint}
""")
    file.chmod(0o600)
