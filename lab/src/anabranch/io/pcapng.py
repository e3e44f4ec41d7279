"""Captures: a folder with NAME.pcapng or NAME.pcap for each path (docs/formats.md, "Captures").

All packets of a folder are one load, because captures do not record which session (the traffic
between one program and one server) a datagram belongs to. The splitter's own captures contain the
direction of each packet; for other captures, the server's address determines it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch import validate
from anabranch.io import draft, packed, pcap
from anabranch.io.counters import NEITHER, Clear, clear, counters
from anabranch.io.headers import RAW_IP, End, check_link, datagram
from anabranch.io.meaning import Meaning
from anabranch.io.pcap import CutError, Record
from anabranch.traces import WHOLE, Builder, Facts, Traces
from anabranch.validate import TraceError, source

_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_ORDER_MARK = 0x1A2B3C4D
_IF_NAME, _IF_TSRESOL, _IF_TSOFFSET, _EPB_FLAGS = 2, 9, 14, 2
_ENDINGS = (".pcapng", ".pcap")
_HEADERS = 28
"""Bytes of an IPv4 and a UDP header: the part of each packet that is written, and the minimum size
of a packet.
"""
_LONGEST = np.iinfo(np.int32).max
_LATEST = np.iinfo(np.int64).max
"""Maximum size [bytes], and latest time [ns since 1970], that fit into our arrays."""

Row: TypeAlias = tuple[int, int, int, int, int]
"""A packet: nanoseconds since 1970, signed size, and the three fields of its `Clear`."""


def read(path: Path, meaning: Meaning | None = None) -> Traces:
    """Reads a folder, or one file. Paths are numbered by the names of their files.

    Times count from the first packet on any path; packets of equal time are in the order of paths.
    If all packets are WireGuard's, or all are Mosh's, the traces have cleartext counters.

    Raises:
        TraceError: names the file and the wrong place in it.
    """
    meaning = meaning or Meaning()
    captures = files(path) if path.is_dir() else [path]
    if not captures:
        raise TraceError("this folder holds no .pcapng or .pcap files")
    rows: list[NDArray[np.int64]] = []
    for number, file in enumerate(captures):
        with source(file):
            packets = list(_packets(file, meaning.server))
        rows.append(np.array([(*packet, number) for packet in packets], np.int64).reshape(-1, 6))
    table = np.concatenate(rows)
    if not len(table):
        whose = " of that server" if meaning.server else ""
        raise TraceError(f"contains no packets{whose}: only UDP is read")
    table = table[np.argsort(table[:, 0], kind="stable")]
    times = (table[:, 0] - table[0, 0]) / 1e9
    builder = Builder(Facts(paths=tuple(_name(file) for file in captures)))
    builder.add(
        meaning.label, times, table[:, 1], monitored=meaning.monitored and bool(meaning.label)
    )
    shown = counters(table[:, 1] > 0, table[:, 2:5])
    return replace(builder.build(), paths=table[:, 5].astype(np.int16), counters=shown)


def files(path: Path) -> list[Path]:
    """Returns the files of a folder that `read` reads."""
    return sorted(file for file in path.iterdir() if is_named(file))


def is_named(file: Path) -> bool:
    """Returns whether the file's name is that of a capture, compressed with gzip or not."""
    return file.name.removesuffix(".gz").endswith(_ENDINGS)


def _name(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).stem


def write(traces: Traces, path: Path) -> None:
    """Writes a folder of captures of one load: headers of the right lengths, without payload.

    Addresses are from documentation ranges. Times are written as if the load began in 1970.

    Raises:
        TraceError: if there is not exactly one load with packets, or sizes are not those of IP
            packets, or a path cannot be named.
    """
    if len(traces) != 1:
        raise TraceError(f"a capture can have only one load, not {len(traces)}")
    validate.filled(traces, "captures")
    if traces.facts.size != "ip-packet" or (abs(traces.sizes) < _HEADERS).any():
        raise TraceError("a capture can have only IP packets of 28 bytes or more", column="size")
    whole = np.full(traces.sizes.size, WHOLE, np.int16)
    # Unsplit packets are all on the first path.
    paths = np.maximum(whole if traces.paths is None else traces.paths, 0)
    names = _names(traces.facts.paths, int(paths.max()) + 1)
    with draft.folder(path) as folder:
        for number, name in enumerate(names):
            own = paths == number
            blocks = map(_packet_block, traces.times[own].tolist(), traces.sizes[own].tolist())
            (folder / f"{name}.pcapng").write_bytes(_begin(name) + b"".join(blocks))


def _names(known: tuple[str, ...], paths: int) -> list[str]:
    """Returns all `known` names, and numbers for further paths up to `paths` (docs/formats.md).

    Raises:
        TraceError: if a name cannot be a file's, or occurs twice.
    """
    names = [*known, *map(str, range(len(known), paths))]
    for place, name in enumerate(names):
        if not name or name[0] == "." or "/" in name or "\0" in name or name in names[:place]:
            raise TraceError(
                f"path {place} has the name {name!r}, which cannot be a file's "
                "name or occurs twice",
                column="path",
            )
    return names


def _packets(file: Path, server: End | None) -> Iterator[Row]:
    """Yields the packets of one file; with `server`, only those to and from it."""
    for record in records(packed.content(file), file):
        row = _row(record, server)
        if row is not None:
            yield row


def _row(record: Record, server: End | None) -> Row | None:
    found, size, outward = datagram(record.link, record.frame), record.length, record.outward
    if server is not None:
        if found is None or server not in (found.sender, found.receiver):
            return None
        outward = server == found.receiver
    elif outward is None:
        problem = f"the packet at byte {record.at} has no direction in its flags"
        cure = "name the server (`anabranch-lab convert --server ADDRESS:PORT`)"
        raise TraceError(f"{problem}: {cure}")
    if found is not None and record.link != RAW_IP:
        size = found.size
    if not 0 < size <= _LONGEST:
        raise TraceError(f"the packet at byte {record.at} has {size} bytes")
    if record.time > _LATEST:
        raise TraceError(f"the packet at byte {record.at} has a time after the year 2262")
    shows = Clear(NEITHER) if found is None else clear(found.payload, found.length, outward)
    return record.time, size if outward else -size, *shows


def records(data: bytes, file: Path) -> Iterator[Record]:
    """Yields the packets of a `file` in either format, whose content is `data`.

    If the file ends within a packet, as after a crash, a warning names the ignored rest.

    Raises:
        TraceError: if the file is damaged, or ends before its first packet; the message has the
            offset.
    """
    seen = False
    try:
        for record in pcap.records(data) if pcap.matches(data) else _records(data):
            yield record
            seen = True
    except CutError as error:
        if not seen:
            raise
        validate.doubt(error.missing, file)


class _Interface(NamedTuple):
    """An Interface Description Block (draft-ietf-opsawg-pcapng, section 4.2)."""

    link: int
    ticks: int
    """Ticks per second of the interface's clock."""
    offset: int
    """Seconds to add to the times of the interface's clock."""

    def time(self, high: int, low: int) -> int:
        """Converts a packet's timestamp to nanoseconds since 1970."""
        return (high << 32 | low) * 1_000_000_000 // self.ticks + self.offset * 1_000_000_000


def _records(data: bytes) -> Iterator[Record]:
    """Yields the packets of a pcapng file, with link type and clock of each packet's interface."""
    order, interfaces = "<", list[_Interface]()
    for kind, body, at in _blocks(data):
        try:
            if kind == _SECTION:
                order = "<" if struct.unpack_from("<I", body)[0] == _ORDER_MARK else ">"
                interfaces = []
            elif kind == _INTERFACE:
                interfaces.append(_interface(body, order))
            elif kind in (_PACKET, _OLD_PACKET):
                yield _packet(kind, body, order, interfaces, at)
            elif kind == _SIMPLE_PACKET:
                raise TraceError(f"the packet at byte {at} has no time (Simple Packet Block)")
        except (struct.error, IndexError) as error:
            raise TraceError(f"the block at byte {at} is damaged or incomplete") from error


def _blocks(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yields kind, body and offset of each block."""
    at, order = 0, "<"
    if data[:4] != struct.pack("<I", _SECTION):
        raise TraceError("not a pcapng file")
    while at < len(data):
        if data[at : at + 4] == struct.pack("<I", _SECTION):
            order = "<" if data[at + 8 : at + 12] == struct.pack("<I", _ORDER_MARK) else ">"
        head = data[at : at + 8]
        kind, length = struct.unpack(f"{order}II", head) if len(head) == 8 else (0, 0)
        if len(head) < 8 or at + length > len(data):
            raise CutError("the block", at, len(data))
        if length < 12 or length % 4:
            raise TraceError(f"the block at byte {at} is damaged or incomplete")
        yield kind, data[at + 8 : at + length - 4], at
        at += length


def _interface(body: bytes, order: str) -> _Interface:
    link = struct.unpack_from(f"{order}H", body)[0]
    options = _options(body[8:], order)
    resolution = options.get(_IF_TSRESOL, b"\6")[0]
    ticks = int(2 ** (resolution & 0x7F)) if resolution & 0x80 else int(10**resolution)
    offset = struct.unpack(f"{order}q", options.get(_IF_TSOFFSET, bytes(8)))[0]
    return _Interface(link, ticks, offset)


def _packet(kind: int, body: bytes, order: str, interfaces: list[_Interface], at: int) -> Record:
    """Parses an Enhanced Packet Block, or an obsolete Packet Block with its 16-bit interface ID.

    Link types are checked here rather than with the interface: an interface without packets, such
    as a USB bus, may have any link type.
    """
    number = struct.unpack_from(f"{order}{'I' if kind == _PACKET else 'H'}", body)[0]
    _, high, low, kept, length = struct.unpack_from(f"{order}IIIII", body)
    if number >= len(interfaces):
        raise TraceError(
            f"the packet at byte {at} names the interface {number}, which the file does not "
            "describe"
        )
    if len(body) < 20 + kept:
        raise IndexError
    interface = interfaces[number]
    check_link(interface.link)
    options = _options(body[20 + (kept + 3) // 4 * 4 :], order)
    flags = struct.unpack(f"{order}I", options[_EPB_FLAGS])[0] if _EPB_FLAGS in options else 0
    outward = {1: False, 2: True}.get(flags & 3)
    time, frame = interface.time(high, low), body[20 : 20 + kept]
    return Record(time, length, frame, outward, interface.link, at)


def _options(data: bytes, order: str) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(f"{order}HH", data, at)
        if code == 0:
            break
        found[code] = data[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
    return found


def _begin(name: str) -> bytes:
    section = struct.pack("<IHHq", _ORDER_MARK, 1, 0, -1)
    options = _option(_IF_NAME, name.encode()) + _option(_IF_TSRESOL, b"\x09") + _option(0, b"")
    return _block(_SECTION, section) + _block(
        _INTERFACE, struct.pack("<HHI", RAW_IP, 0, 0) + options
    )


def _packet_block(time: float, size: int) -> bytes:
    ticks, outward = round(time * 1e9), size > 0
    flags = _option(_EPB_FLAGS, struct.pack("<I", 2 if outward else 1)) + _option(0, b"")
    head = struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, _HEADERS, abs(size))
    return _block(_PACKET, head + _ip_header(abs(size), outward) + flags)


def _ip_header(length: int, outward: bool) -> bytes:
    """Returns IPv4 and UDP headers between 192.0.2.1 and 198.51.100.1, without checksums."""
    client, server = bytes([192, 0, 2, 1]), bytes([198, 51, 100, 1])
    ends = client + server if outward else server + client
    ports = (40_000, 443) if outward else (443, 40_000)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, min(length, 0xFFFF), 0, 0x4000, 64, 17, 0) + ends
    return ip + struct.pack(">HHHH", *ports, min(length, 0xFFFF) - 20, 0)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
