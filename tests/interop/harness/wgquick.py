"""A full tunnel by wg-quick itself, with wireguard-go below it: AllowedIPs = 0.0.0.0/0."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.net import Host
from harness.tools import SEARCH_PATH, PeerFailed, tool
from harness.wireguard import INSIDE_CLIENT, INSIDE_SERVER, MTU, Keys, unique

# The mark that wg-quick takes of its own accord, and the table of that number.
FWMARK = 51820


class FullTunnel:
    """``wg-quick up`` on the client: every packet that is not marked goes into the tunnel."""

    def __init__(self, host: Host, own: Keys, server: str, endpoint: str, folder: Path):
        """``server`` is its public key; ``endpoint`` is where the splitter listens."""
        self.host, self.name = host, unique("wgf")
        # The endpoint is on the loopback interface, whose MTU of 65536 wg-quick would take over.
        self._file = folder / f"{self.name}.conf"
        self._file.write_text(f"""\
[Interface]
PrivateKey = {own.private}
Address = {INSIDE_CLIENT}/32
MTU = {MTU}
FwMark = {FWMARK}
Table = auto
[Peer]
PublicKey = {server}
AllowedIPs = 0.0.0.0/0
Endpoint = {endpoint}
""")
        self._file.chmod(0o600)
        self._quick("up")

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._quick("down")
