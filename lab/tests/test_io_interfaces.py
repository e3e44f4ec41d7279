"""Captures of several interfaces, and of a truncated capture."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from anabranch import io
from anabranch.covertness.flows import read as connections
from anabranch.io.headers import end
from anabranch.traces import Traces
from anabranch.validate import TraceError, TraceWarning
from covertness.captures import Wire
from test_cli import lab
from test_io_counters import classic, udp

SERVER = "198.51.100.1:51820"
RAW, ETHERNET, USB = 101, 1, 220


def block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def interface(link: int, options: bytes = b"") -> bytes:
    return block(1, struct.pack("<HHI", link, 0, 0) + options)


def packet(number: int, ticks: int, frame: bytes, outward: bool = True) -> bytes:
    head = struct.pack("<IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    flags = option(2, struct.pack("<I", 2 if outward else 1))
    return block(6, head + frame + bytes(-len(frame) % 4) + flags)


def old_packet(number: int, ticks: int, frame: bytes) -> bytes:
    """Returns a Packet Block, as programs wrote it before 2010."""
    place = struct.pack("<HHII", number, 7, ticks >> 32, ticks & 0xFFFFFFFF)
    return block(2, place + struct.pack("<II", len(frame), len(frame)) + frame)


SECTION = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
NANO, MILLI = option(9, b"\x09"), option(9, b"\x03")
YEAR = 31_536_000


def read(folder: Path, *blocks: bytes, server: str | None = SERVER) -> Traces:
    (folder / "a.pcapng").write_bytes(b"".join(blocks))
    meaning = io.Meaning(server=end(server) if server else None)
    return io.read(folder / "a.pcapng", "pcapng", meaning)


def test_a_packet_has_the_link_type_and_the_clock_of_its_interface(tmp_path: Path) -> None:
    up, down = udp(b"x" * 10, True, RAW), udp(b"y" * 20, False, ETHERNET)
    seconds = [1_800_000_000 + k for k in range(4)]
    packets = [
        packet(0, seconds[0] * 10**9, up),
        packet(1, seconds[1] * 10**3, down),
        packet(0, seconds[2] * 10**9, up),
        packet(1, seconds[3] * 10**3, down),
    ]
    traces = read(tmp_path, SECTION, interface(RAW, NANO), interface(ETHERNET, MILLI), *packets)
    assert traces.sizes.tolist() == [38, -48, 38, -48]
    assert traces.times.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_the_offset_of_a_clock_counts(tmp_path: Path) -> None:
    frame, late = udp(b"x", True, RAW), option(14, struct.pack("<q", YEAR))
    traces = read(
        tmp_path, SECTION, interface(RAW, NANO), interface(RAW, NANO + late),
        packet(0, (YEAR + 1) * 10**9, frame), packet(1, 2 * 10**9, frame),
    )  # fmt: skip
    assert traces.times.tolist() == [0.0, 1.0]


def test_a_new_section_numbers_its_interfaces_from_0(tmp_path: Path) -> None:
    first = [SECTION, interface(RAW, NANO), packet(0, 10**9, udp(b"x", True, RAW))]
    second = [SECTION, interface(ETHERNET, MILLI), packet(0, 1_500, udp(b"x", True, ETHERNET))]
    traces = read(tmp_path, *first, *second)
    assert traces.times.tolist() == [0.0, 0.5]
    assert traces.sizes.tolist() == [29, 29]


def test_an_interface_that_no_packet_has_may_be_of_any_kind(tmp_path: Path) -> None:
    links = [interface(USB), interface(RAW, NANO)]
    frame = udp(b"x", True, RAW)
    assert len(read(tmp_path, SECTION, *links, packet(1, 0, frame))) == 1
    with pytest.raises(TraceError, match="the link type 220 is unknown"):
        read(tmp_path, SECTION, *links, packet(0, 0, frame))
    with pytest.raises(TraceError, match="names the interface 2, which"):
        read(tmp_path, SECTION, *links, packet(2, 0, frame))


def test_packets_of_older_blocks_are_not_lost(tmp_path: Path) -> None:
    frame = udp(b"xyz", True, RAW)
    links = [interface(ETHERNET), interface(RAW, NANO)]
    traces = read(tmp_path, SECTION, *links, old_packet(1, 5, frame), packet(1, 6, frame))
    assert traces.sizes.tolist() == [31, 31]
    simple = block(3, struct.pack("<I", len(frame)) + frame)
    with pytest.raises(TraceError, match=r"has no time \(Simple Packet Block\)"):
        read(tmp_path, SECTION, *links, simple)


@pytest.mark.parametrize("form", ["pcapng", "pcap"])
def test_of_a_capture_that_is_cut_what_is_whole_is_read(form: str, tmp_path: Path) -> None:
    frame, file = udp(b"x" * 10, True, RAW), tmp_path / f"a.{form}"
    packets = [packet(0, k, frame) for k in range(3)]
    new = b"".join([SECTION, interface(RAW), *packets])
    whole = new if form == "pcapng" else classic(*((float(k), frame) for k in range(3)))
    last = len(packets[0]) if form == "pcapng" else 16 + len(frame)
    meaning = io.Meaning(server=end(SERVER))
    for lost in (1, 20, last - 4, last - 1):
        file.write_bytes(whole[:-lost])
        at, left = len(whole) - last, last - lost
        with pytest.warns(TraceWarning, match=f"byte {at} is incomplete, so the last {left} bytes"):
            assert io.read(file, meaning=meaning).sizes.tolist() == [38, 38]
    file.write_bytes(whole[: len(whole) - 2 * last - 1])
    with pytest.raises(TraceError, match="damaged or incomplete"):
        io.read(file, meaning=meaning)


def test_the_command_line_says_in_a_line_what_is_missing(tmp_path: Path) -> None:
    frame = udp(b"x" * 10, True, RAW)
    (tmp_path / "a.pcap").write_bytes(classic((0.0, frame), (1.0, frame))[:-3])
    done = lab("convert", tmp_path / "a.pcap", tmp_path / "a.parquet", "--server", SERVER)
    assert done.returncode == 0, done.stderr
    warning = f"anabranch-lab: warning: {tmp_path / 'a.pcap'}: the packet at byte 78 is incomplete"
    assert done.stderr.startswith(warning)
    assert done.stderr.count("\n") == 1


def test_connections_are_read_by_time_and_as_far_as_a_capture_goes(tmp_path: Path) -> None:
    wire = Wire().open(5.0).say(5.1, 0, b"ask").say(5.2, 1, b"answer").say(9.0, 1, b"lost")
    wire.packets[0], wire.packets[3] = wire.packets[3], wire.packets[0]
    file = wire.write(tmp_path / "a.pcap")
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.warns(TraceWarning, match="incomplete"):
        capture = connections(file)
    assert (capture.headless, len(capture.flows)) == (0, 1)
    assert capture.flows[0].sizes.tolist() == [3, -6]
