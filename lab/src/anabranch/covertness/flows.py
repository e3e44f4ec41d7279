"""Parser that divides a packet capture into TCP connections."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch.covertness.streams import Stream
from anabranch.io import pcapng
from anabranch.io.headers import ACK, SYN, End, Segment, segment
from anabranch.validate import TraceError, source

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Flow:
    """One TCP connection, from its SYN on.

    Attributes:
        client, server: sender and receiver of the SYN.
        began: time of the SYN, in seconds since 1970.
        ended: time of the last packet, with or without payload.
        rtt: seconds from the SYN to its reply, at the point of capture; NaN without a reply.
        times: float64 (n,), seconds since `began`, of packets with new payload, in rising order.
        sizes: int32 (n,), bytes of payload, + from the client, - from the server.
        repeated: number of packets whose payload had arrived before.
        first: the payload of the client's first packet that has a payload.
        up, down: the first MiB of each direction's bytes, in order.
    """

    client: End
    server: End
    began: float
    ended: float
    rtt: float
    times: Floats
    sizes: NDArray[np.int32]
    repeated: int
    first: bytes
    up: bytes
    down: bytes


@dataclass(slots=True)
class _Growing:
    """A TCP connection that is still being read from the capture."""

    client: End
    server: End
    began: float
    number: int
    ended: float
    rtt: float = float("nan")
    rows: list[tuple[float, int]] = field(default_factory=list)
    repeated: int = 0
    first: bytes = b""
    up: Stream = field(default_factory=Stream)
    down: Stream = field(default_factory=Stream)

    def take(self, time: float, found: Segment) -> None:
        """Adds the connection's next packet."""
        outward = found.sender == self.client
        stream = self.up if outward else self.down
        self.ended = max(self.ended, time)
        if found.flags & SYN:
            stream.begin(found.number)
            if not outward and np.isnan(self.rtt):
                self.rtt = time - self.began
            return
        if not found.length:
            return
        if stream.add(found.number, found.payload, found.length):
            self.repeated += 1
            return
        if outward and not self.first:
            self.first = found.payload
        self.rows.append((time - self.began, found.length if outward else -found.length))

    def flow(self) -> Flow:
        """Returns the finished connection."""
        times = np.array([time for time, _ in self.rows], np.float64)
        sizes = np.array([size for _, size in self.rows], np.int32)
        return Flow(
            self.client, self.server, self.began, self.ended, self.rtt, times, sizes,
            self.repeated, self.first, bytes(self.up.data), bytes(self.down.data),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Capture:
    """The TCP connections of a capture file.

    Attributes:
        flows: the connections, sorted by the time of SYN.
        headless: number of packets with payload that are left out, because the SYN of their
            connection was not captured.
    """

    flows: list[Flow]
    headless: int


def read(file: Path, server: End | None = None) -> Capture:
    """Reads the connections of a pcap or pcapng file; with `server`, only those to it.

    Raises:
        TraceError: names the file, and the byte where it is damaged or cut off.
    """
    with source(file):
        try:
            return _grouped(_segments(file), server)
        except (OverflowError, ValueError) as error:
            if isinstance(error, TraceError):
                raise
            raise TraceError(f"has an invalid packet: {error}") from error


def _grouped(packets: Iterable[tuple[int, Segment]], server: End | None) -> Capture:
    growing: dict[tuple[End, End], _Growing] = {}
    done: list[_Growing] = []
    headless = 0
    for nanoseconds, found in packets:
        if server is not None and server not in (found.sender, found.receiver):
            continue
        time, key = nanoseconds / 1e9, (found.sender, found.receiver)
        if found.flags & SYN and not found.flags & ACK:
            old = growing.get(key)
            if old is None or old.number != found.number:  # retransmitted: the same number
                growing[key] = new = _Growing(*key, time, found.number, time)
                done.append(new)
        flow = growing.get(key) or growing.get(key[::-1])
        if flow is None:
            headless += found.length > 0
        else:
            flow.take(time, found)
    return Capture([each.flow() for each in sorted(done, key=lambda one: one.began)], headless)


def _segments(file: Path) -> list[tuple[int, Segment]]:
    """Returns times [ns since 1970] and TCP segments, sorted by time.

    A file of several interfaces may be out of order.
    """
    records = pcapng.records(file.read_bytes(), file)
    found = ((record.time, segment(record.link, record.frame)) for record in records)
    return sorted([(time, each) for time, each in found if each], key=lambda pair: pair[0])
