"""Captures with tcpdump, and a reader of the packets in their files."""

from __future__ import annotations

import re
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.closing import Closing
from harness.net import Host
from harness.tools import PeerFailed

ETHERNET, RAW_IP = 1, 101
TCP, UDP = 6, 17


@dataclass(frozen=True)
class Packet:
    """A captured UDP packet or TCP segment. ``size`` is the size of the IP packet in bytes,
    ``time`` is in seconds since 1970, and ``sequence`` is the sequence number of a segment.
    """

    time: float
    size: int
    source: tuple[bytes, int]
    destination: tuple[bytes, int]
    payload: bytes
    sequence: int = 0

    def is_to_port(self, port: int) -> bool:
        """Returns whether the packet is sent to the server's ``port``, rather than from it."""
        return self.destination[1] == port


class Tcpdump(Closing):
    """tcpdump on one interface of a host, from the start of the ``with`` block to its end.

    After :meth:`stop`, :attr:`captured` is the number of packets that the filter accepted.
    """

    def __init__(
        self, host: Host, interface: str, file: Path, wanted: str = "udp", snap: int = 262_144
    ):
        """Waits until the capture runs; ``wanted`` is a capture filter.

        ``snap`` bytes of each packet are kept. With a small ``snap``, more packets fit into the
        buffer.
        """
        self.file = file
        command = ["tcpdump", "-Z", "root", "-n", "-i", interface, "-B", "32768"]
        command += ["--immediate-mode", "-U", "-s", str(snap), "-w", str(file), wanted]
        self._process = host.start(command)
        self._process.wait_until("tcpdump", lambda: "listening on" in self._process.output())
        self._stopped = False
        self.captured = 0

    def stop(self, most_lost: float = 0.0) -> list[Packet]:
        """Stops the capture and returns its packets.

        ``most_lost`` is the accepted share of lost packets, for tests that do not count packets.

        Raises:
            PeerFailed: if the kernel dropped more packets, so that the capture is not reliable.
        """
        time.sleep(0.3)  # the last packets are still in the capture's buffer
        self._process.interrupt_and_wait()
        said = self._process.output()
        self.close()
        captured = re.search(r"(\d+) packets? captured", said)
        dropped = re.search(r"(\d+) packets? dropped by kernel", said)
        if captured is None or dropped is None:
            raise PeerFailed(f"tcpdump: {said}")
        self.captured = int(captured[1])
        if int(dropped[1]) > most_lost * self.captured:
            raise PeerFailed(f"tcpdump: {said}")
        return list(read_pcap(self.file))

    def close(self) -> None:
        """Stops the capture if it runs."""
        if not self._stopped:
            self._stopped = True
            self._process.stop(signal.SIGINT)


def read_pcapng(host: Host, file: Path, protocol: int = UDP) -> list[Packet]:
    """Returns the packets of a protocol in a pcapng file; tcpdump converts it to pcap first."""
    plain = file.with_suffix(".converted.pcap")
    host.must(["tcpdump", "-Z", "root", "-r", str(file), "-w", str(plain)])
    return list(read_pcap(plain, protocol))


def read_pcap(file: Path, protocol: int = UDP) -> Iterator[Packet]:
    """Yields the packets of a protocol in a pcap file (Ethernet or raw IP, microseconds or
    nanoseconds).
    """
    data = file.read_bytes()
    order = "<" if data[0] in (0xD4, 0x4D) else ">"
    (magic,) = struct.unpack(order + "I", data[:4])
    (link,) = struct.unpack(order + "I", data[20:24])
    fraction = 1e-9 if magic == 0xA1B23C4D else 1e-6
    at = 24
    while at + 16 <= len(data):
        seconds, part, length, _ = struct.unpack(order + "IIII", data[at : at + 16])
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        packet = _packet(seconds + part * fraction, _ip(frame, link & 0xFFFF), protocol)
        if packet is not None:
            yield packet


def _ip(frame: bytes, link: int) -> bytes:
    if link == RAW_IP:
        return frame
    if link == ETHERNET:
        return frame[14:]
    raise PeerFailed(f"a capture with link type {link}, which nothing here reads")


def _packet(when: float, ip: bytes, wanted: int) -> Packet | None:
    if ip[0] >> 4 == 4:
        size, start, protocol = int.from_bytes(ip[2:4], "big"), 4 * (ip[0] & 0xF), ip[9]
        source, destination = ip[12:16], ip[16:20]
    else:
        size, start, protocol = 40 + int.from_bytes(ip[4:6], "big"), 40, ip[6]
        source, destination = ip[8:24], ip[24:40]
    if protocol != wanted:
        return None
    ports = struct.unpack(">HH", ip[start : start + 4])
    sequence, header = 0, 8
    if protocol == TCP:
        sequence = int.from_bytes(ip[start + 4 : start + 8], "big")
        header = 4 * (ip[start + 12] >> 4)
    payload = ip[start + header : size]
    return Packet(when, size, (source, ports[0]), (destination, ports[1]), payload, sequence)
