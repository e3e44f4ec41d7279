"""Loopback that loses packets: what is for or from some ports, before the receiver sees it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from harness.closing import Closing
from harness.seeded import MIB
from harness.tools import MissingPeer, tool

LONGEST = int(os.environ.get("LINKS_MIB", "20")) * MIB
"""Bytes of the longest file over lines that lose. At 5 % TCP carries little: 20 MiB take a minute
on a busy machine, ``LINKS_MIB=200`` ten."""
LENGTHS = (1, 514, 100_000, 5 * MIB, LONGEST)
"""What is fetched over such lines."""
PATIENCE = 300.0 + LONGEST / 100_000
"""Seconds that one of them may take."""
LIMIT = 3 * int(PATIENCE)
"""Seconds of a test over such lines."""


class Losing(Closing):
    """One in ``one_in`` packets of these ports is lost until this is closed; all, if it is 1.

    The rule stands where packets come in: what a sender's own firewall drops is no loss, as TCP is
    told of it there. It needs root, or a network namespace of one's own. It forgets the ports after
    ``LIMIT`` seconds: what a killed test leaves behind would lose packets of whoever gets one of
    them next.
    """

    def __init__(self, ports: Sequence[int], one_in: int = 20, protocols: Sequence[str] = ("tcp",)):
        """Begins to lose; ``protocols`` are ``tcp`` and ``udp``.

        Raises:
            MissingPeer: nftables is missing, or forbidden.
        """
        self.table = f"anabranch_loss_{min(ports)}_{one_in}"
        wanted = ", ".join(map(str, ports))
        held = f"set ports {{ type inet_service; timeout {LIMIT}s; elements = {{ {wanted} }}; }}"
        rules = [
            f"{protocol} {end} @ports numgen random mod {one_in} == 0 counter drop"
            for protocol in protocols
            for end in ("sport", "dport")
        ]
        chain = "\n".join(["type filter hook input priority 0;", *rules])
        text = f"table inet {self.table} {{\n{held}\nchain lose {{\n{chain}\n}}\n}}\n"
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
