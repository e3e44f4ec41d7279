"""Loopback that loses packets of some ports, or brings some late, before the receiver sees them."""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import threading
import time
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


# Ethernet on loopback: what is behind its addresses, and where IPv4 begins.
ETHERTYPE, IPV4 = slice(12, 14), b"\x08\x00"
ETHERNET = 14
# Of <linux/if_tun.h>: makes an interface for a descriptor; with frames of Ethernet, and nothing
# before them.
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000


class _Rules(Closing):
    """A table of nftables for packets of these ports, until this is closed.

    It needs root, or a network namespace of one's own. It forgets the ports after ``LIMIT``
    seconds: what a killed test leaves behind would lose packets of whoever gets one of them next.
    """

    def __init__(
        self, family: str, table: str, hook: str, ports: Sequence[int], rules: Sequence[str]
    ):
        """Puts the rules in force, in which ``@ports`` are the ports.

        Raises:
            MissingPeer: nftables is missing, or forbidden.
        """
        self._table = [family, table]
        wanted = ", ".join(map(str, ports))
        held = f"set ports {{ type inet_service; timeout {LIMIT}s; elements = {{ {wanted} }}; }}"
        chain = "\n".join([f"type filter hook {hook} priority 0;", *rules])
        text = f"table {family} {table} {{\n{held}\nchain fate {{\n{chain}\n}}\n}}\n"
        done = subprocess.run(
            [tool("nft"), "-f", "-"], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise MissingPeer(f"nftables: {done.stderr.strip()}")

    def _counted(self) -> int:
        """Packets that the rules' counters have seen so far."""
        command = [tool("nft"), "list", "table", *self._table]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return sum(int(words[at + 1]) for at, word in enumerate(words) if word == "packets")

    def close(self) -> None:
        """All packets pass again."""
        command = [tool("nft"), "delete", "table", *self._table]
        subprocess.run(command, capture_output=True, check=False)


def _of_ports(protocols: Sequence[str], one_in: int, fate: str) -> list[str]:
    """Rules by which this happens to one in so many packets for or from the ports."""
    return [
        f"{protocol} {end} @ports numgen random mod {one_in} == 0 counter {fate}"
        for protocol in protocols
        for end in ("sport", "dport")
    ]


class Losing(_Rules):
    """One in ``one_in`` packets of these ports is lost until this is closed; all, if it is 1.

    The rule stands where packets come in: what a sender's own firewall drops is no loss, as TCP is
    told of it there.
    """

    def __init__(self, ports: Sequence[int], one_in: int = 20, protocols: Sequence[str] = ("tcp",)):
        """Begins to lose; ``protocols`` are ``tcp`` and ``udp``.

        Raises:
            MissingPeer: nftables is missing, or forbidden.
        """
        table = f"anabranch_loss_{min(ports)}_{one_in}"
        super().__init__("inet", table, "input", ports, _of_ports(protocols, one_in, "drop"))

    def lost(self) -> int:
        """Packets that were lost so far."""
        return self._counted()


class Reordering(_Rules):
    """One in ``one_in`` packets of these ports comes ``late`` ms later than it would have, behind
    those that follow it, until this is closed.

    The kernel hands them over at loopback's entry, by an interface that is made for that, and gets
    them back by a raw socket: they come in anew, and may be held again, or lost. ``netem`` is not
    in every kernel.
    """

    def __init__(
        self,
        ports: Sequence[int],
        one_in: int = 50,
        protocols: Sequence[str] = ("tcp",),
        late: tuple[float, float] = (2, 8),
    ):
        """Begins to hold packets back.

        Raises:
            MissingPeer: TUN interfaces or nftables are missing, or forbidden.
        """
        self.held = 0
        self._late = late
        self._ended = threading.Event()
        name = f"held{min(ports)}"
        try:
            self._raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
            self._tap = os.open("/dev/net/tun", os.O_RDWR)
            request = struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI)
            fcntl.ioctl(self._tap, TUNSETIFF, request)
        except OSError as error:
            raise MissingPeer(f"TUN interfaces and raw sockets: {error}") from error
        subprocess.run([tool("ip"), "link", "set", name, "up"], check=True)
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()
        rules = _of_ports(protocols, one_in, f'fwd to "{name}"')
        table = f"anabranch_late_{min(ports)}_{one_in}"
        try:
            super().__init__("netdev", table, 'ingress device "lo"', ports, rules)
        except MissingPeer:
            self._end()
            raise

    def _hold(self) -> None:
        waiting: list[tuple[float, int, bytes]] = []
        # What waits goes on its way before the end.
        while waiting or not self._ended.is_set():
            timeout = waiting[0][0] - time.monotonic() if waiting else 0.1
            if select.select([self._tap], [], [], max(timeout, 0))[0]:
                frame = os.read(self._tap, 1 << 17)
                # The kernel itself says a few words of IPv6 there.
                if frame[ETHERTYPE] == IPV4:
                    self.held += 1
                    due = time.monotonic() + random.uniform(*self._late) / 1000
                    heapq.heappush(waiting, (due, self.held, frame[ETHERNET:]))
            while waiting and waiting[0][0] <= time.monotonic():
                packet = heapq.heappop(waiting)[2]
                self._raw.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))

    def close(self) -> None:
        """All packets come in order again."""
        super().close()
        self._end()

    def _end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._raw.close()
        os.close(self._tap)
