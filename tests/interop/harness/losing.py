"""Packet loss and reordering on loopback for some ports, before the receiver gets the packets."""

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
"""Size in bytes of the longest file over lossy lines. At 5 % loss TCP is slow: on a busy machine,
20 MiB take a minute, and 200 MiB (``LINKS_MIB=200``) ten.
"""
LENGTHS = (1, 514, 100_000, 5 * MIB, LONGEST)
"""Sizes of the files fetched over such lines, in bytes."""
PATIENCE = 300.0 + LONGEST / 100_000
"""Timeout of one fetch in seconds."""
LIMIT = 3 * int(PATIENCE)
"""Timeout of a test over such lines in seconds."""


# Ethernet frames on loopback: the field after the addresses, and the offset of IPv4.
ETHERTYPE, IPV4 = slice(12, 14), b"\x08\x00"
ETHERNET = 14
# From <linux/if_tun.h>: creates an interface for a descriptor; Ethernet frames without a prefix.
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000


class _Rules(Closing):
    """A table of nftables for packets of some ports, removed when this is closed.

    It needs root, or a network namespace. The set of ports expires after ``LIMIT`` seconds, so
    that the rules of a killed test do not drop packets of later users of the ports.
    """

    def __init__(
        self, family: str, table: str, hook: str, ports: Sequence[int], rules: Sequence[str]
    ):
        """Installs the rules, in which ``@ports`` is the set of ports.

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
        """Returns the number of packets that the rules' counters have seen so far."""
        command = [tool("nft"), "list", "table", *self._table]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return sum(int(words[at + 1]) for at, word in enumerate(words) if word == "packets")

    def close(self) -> None:
        """Removes the rules."""
        command = [tool("nft"), "delete", "table", *self._table]
        subprocess.run(command, capture_output=True, check=False)


def _of_ports(protocols: Sequence[str], one_in: int, fate: str) -> list[str]:
    """Returns rules that apply ``fate`` to one in ``one_in`` packets from or to the ports."""
    return [
        f"{protocol} {end} @ports numgen random mod {one_in} == 0 counter {fate}"
        for protocol in protocols
        for end in ("sport", "dport")
    ]


class Losing(_Rules):
    """Drops one in ``one_in`` packets of some ports until it is closed; with 1, all packets.

    The rule is in the input hook. A drop in the sender's output hook would not act as loss,
    because the kernel reports it to TCP.
    """

    def __init__(self, ports: Sequence[int], one_in: int = 20, protocols: Sequence[str] = ("tcp",)):
        """Starts to drop packets; ``protocols`` are ``tcp`` and ``udp``.

        Raises:
            MissingPeer: nftables is missing, or forbidden.
        """
        table = f"anabranch_loss_{min(ports)}_{one_in}"
        super().__init__("inet", table, "input", ports, _of_ports(protocols, one_in, "drop"))

    def lost(self) -> int:
        """Returns the number of packets dropped so far."""
        return self._counted()


class Reordering(_Rules):
    """Delays one in ``one_in`` packets of some ports by ``late`` ms, so that later packets
    overtake it, until it is closed.

    At loopback's ingress, the kernel redirects these packets to a TAP interface. They return
    through a raw socket, and may be delayed again, or lost. ``netem`` is not used, because not
    every kernel has it.
    """

    def __init__(
        self,
        ports: Sequence[int],
        one_in: int = 50,
        protocols: Sequence[str] = ("tcp",),
        late: tuple[float, float] = (2, 8),
    ):
        """Starts to delay packets.

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
        # Packets that still wait are sent before the thread ends.
        while waiting or not self._ended.is_set():
            timeout = waiting[0][0] - time.monotonic() if waiting else 0.1
            if select.select([self._tap], [], [], max(timeout, 0))[0]:
                frame = os.read(self._tap, 1 << 17)
                # The kernel itself sends a few IPv6 packets there.
                if frame[ETHERTYPE] == IPV4:
                    self.held += 1
                    due = time.monotonic() + random.uniform(*self._late) / 1000
                    heapq.heappush(waiting, (due, self.held, frame[ETHERNET:]))
            while waiting and waiting[0][0] <= time.monotonic():
                packet = heapq.heappop(waiting)[2]
                self._raw.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))

    def close(self) -> None:
        """Restores the order of all packets."""
        super().close()
        self._end()

    def _end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._raw.close()
        os.close(self._tap)
