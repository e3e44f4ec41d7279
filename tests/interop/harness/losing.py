"""Loopback that loses packets: what is for or from some ports, before the receiver sees it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from harness.closing import Closing
from harness.tools import MissingPeer, tool


class Losing(Closing):
    """One in ``one_in`` packets of these ports is lost until this is closed; all, if it is 1.

    The rule stands where packets come in: what a sender's own firewall drops is no loss, as TCP is
    told of it there. It needs root, or a network namespace of one's own.
    """

    def __init__(self, ports: Sequence[int], one_in: int = 20, protocols: Sequence[str] = ("tcp",)):
        """Begins to lose; ``protocols`` are ``tcp`` and ``udp``.

        Raises:
            MissingPeer: nftables is missing, or forbidden.
        """
        self.table = f"anabranch_loss_{min(ports)}_{one_in}"
        wanted = ", ".join(map(str, ports))
        rules = [
            f"{protocol} {end} {{ {wanted} }} numgen random mod {one_in} == 0 counter drop"
            for protocol in protocols
            for end in ("sport", "dport")
        ]
        chain = "\n".join(["type filter hook input priority 0;", *rules])
        text = f"table inet {self.table} {{\nchain lose {{\n{chain}\n}}\n}}\n"
        done = subprocess.run(
            [tool("nft"), "-f", "-"], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise MissingPeer(f"nftables: {done.stderr.strip()}")

    def lost(self) -> int:
        """Packets that were lost so far."""
        command = [tool("nft"), "list", "table", "inet", self.table]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return sum(int(words[at + 1]) for at, word in enumerate(words) if word == "packets")

    def close(self) -> None:
        """Loses nothing any more."""
        command = [tool("nft"), "delete", "table", "inet", self.table]
        subprocess.run(command, capture_output=True, check=False)
