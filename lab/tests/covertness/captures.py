"""Synthetic captures: TCP connections, packet by packet."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from anabranch.covertness.flows import Flow

CLIENT, SERVER = bytes([192, 0, 2, 1]), bytes([198, 51, 100, 1])
PORT = 80
FIN, SYN, ACK = 1, 2, 16


@dataclass
class Wire:
    """A pcap file under construction, and the sequence numbers of one connection.

    `numbers` are the next bytes' sequence numbers of the client and of the server.
    """

    packets: list[tuple[float, bytes]] = field(default_factory=list)
    port: int = 40_000
    numbers: list[int] = field(default_factory=lambda: [2**32 - 100, 7_000])

    def open(self, time: float, rtt: float = 0.1) -> Self:
        """Adds both SYNs."""
        self.raw(time, 0, self.numbers[0] - 1, SYN)
        self.raw(time + rtt, 1, self.numbers[1] - 1, SYN | ACK)
        return self

    def say(self, time: float, side: int, payload: bytes) -> Self:
        """Adds the next bytes of the client (0) or the server (1)."""
        self.raw(time, side, self.numbers[side], ACK, payload)
        self.numbers[side] += len(payload)
        return self

    def raw(self, time: float, side: int, number: int, flags: int, payload: bytes = b"") -> Self:
        """Adds a packet of any sequence number."""
        ends = [(CLIENT, self.port), (SERVER, PORT)]
        (here, source), (there, target) = ends[side], ends[1 - side]
        tcp = struct.pack(
            ">HHIIBBHHH", source, target, number % 2**32, 0, 0x50, flags, 65_535, 0, 0
        )
        length = 40 + len(payload)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0x4000, 64, 6, 0) + here + there
        self.packets.append((time, ip + tcp + payload))
        return self

    def write(self, file: Path, snap: int = 65_535) -> Path:
        """Writes a pcap file of raw IP."""
        data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, snap, 101)
        for time, packet in self.packets:
            seconds, rest = divmod(round(time * 1e6), 1_000_000)
            data += struct.pack("<IIII", seconds, rest, min(len(packet), snap), len(packet))
            data += packet[:snap]
        file.write_bytes(data)
        return file


def flow(
    first: bytes = b"",
    sizes: list[int] | None = None,
    times: list[float] | None = None,
    **more: object,
) -> Flow:
    """Returns a made-up connection."""
    given = sizes if sizes is not None else [len(first)]
    at = times if times is not None else [0.1 * place for place in range(len(given))]
    values: dict[str, object] = {
        "client": (CLIENT, 40_000), "server": (SERVER, PORT), "began": 0.0,
        "ended": at[-1] if at else 0.0, "rtt": 0.1, "times": np.array(at, np.float64),
        "sizes": np.array(given, np.int32), "repeated": 0, "first": first, "up": first, "down": b"",
    }  # fmt: skip
    return Flow(**(values | more))  # type: ignore[arg-type]


def noise(length: int, seed: int = 1) -> bytes:
    """Returns random bytes."""
    return np.random.default_rng(seed).bytes(length)
