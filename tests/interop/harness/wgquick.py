"""WireGuard tunnels that an unmodified wg-quick sets up, with wireguard-go."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from harness.net import Host
from harness.tools import SEARCH_PATH, PeerFailed, tool
from harness.wireguard import (
    DISGUISE,
    INSIDE_CLIENT,
    INSIDE_SERVER,
    MTU,
    Keys,
    interface,
    unique,
)

# wg-quick's default mark, and the routing table with that number.
FWMARK = 51820


class Quick:
    """A tunnel that ``wg-quick up FILE`` makes and ``wg-quick down FILE`` ends."""

    def __init__(self, host: Host, file: Path):
        """Brings up ``file``, NAME.conf; a :func:`unique` NAME becomes the interface."""
        self.host, self.name, self._file = host, file.stem, file
        self._quick("up")

    def mtu(self) -> int:
        """Returns the MTU of its interface."""
        (link,) = json.loads(self.host.must(["ip", "-j", "link", "show", self.name]))
        return int(link["mtu"])

    def rules(self) -> str:
        """Returns the current routing rules."""
        return self.host.must(["ip", "-4", "rule", "show"])

    def reaches_server(self) -> bool:
        """Returns whether the tunnel's other end answers a ping."""
        return self.host.run(["ping", "-c", "1", "-W", "2", INSIDE_SERVER]).returncode == 0

    def _quick(self, what: str) -> None:
        environment = {
            **os.environ,
            "PATH": SEARCH_PATH,
            "WG_QUICK_USERSPACE_IMPLEMENTATION": tool("wireguard-go"),
            "LOG_LEVEL": "error",
        }
        command = self.host.command(["wg-quick", what, str(self._file)])
        # The output goes to a file, because wireguard-go keeps running and would keep a pipe open.
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


@contextlib.contextmanager
def amnezia(host: Host, file: Path) -> Iterator[str]:
    """Brings up a client's file on amneziawg-go; yields the name of its interface.

    The keys and values are applied as by awg-quick, which Debian does not have.
    """
    keys = settings(file)
    disguise = {key: keys[key] for key in DISGUISE}
    own = interface(
        host, INSIDE_CLIENT, keys["privatekey"], program="amneziawg-go", disguise=disguise
    )
    with own as name:
        host.must(["ip", "link", "set", name, "mtu", keys["mtu"]])
        peer = ["wg", "set", name, "peer", keys["publickey"], "endpoint", keys["endpoint"]]
        host.must([*peer, "allowed-ips", keys["allowedips"]])
        yield name


def settings(file: Path) -> dict[str, str]:
    """Returns the keys of a file, in lower case, with their values."""
    pairs = [line.split(" = ", 1) for line in file.read_text().splitlines() if " = " in line]
    return {key.lower(): value for key, value in pairs}


class FullTunnel(Quick):
    """A tunnel on the client to which all packets without the mark are routed."""

    def __init__(self, host: Host, own: Keys, server: str, endpoint: str, folder: Path):
        """Brings up the tunnel. ``server`` is the server's public key; ``endpoint`` is the
        splitter's listening address.
        """
        file = folder / f"{unique('wgf')}.conf"
        # The endpoint is on the loopback interface, whose MTU of 65536 wg-quick would use.
        interface = f"MTU = {MTU}\nFwMark = {FWMARK}\nTable = auto\n"
        write_file(file, own, server, endpoint, interface=interface, networks="0.0.0.0/0")
        super().__init__(host, file)


def write_file(
    file: Path, own: Keys, server: str, endpoint: str, *, interface: str, networks: str
) -> None:
    """Writes a client's wg-quick file; ``interface`` has further lines for the section
    [Interface].
    """
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
