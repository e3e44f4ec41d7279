from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from anabranch.covertness import http
from anabranch.covertness.flows import read
from anabranch.covertness.streams import Stream
from anabranch.validate import TraceError, TraceWarning
from covertness.captures import ACK, PORT, SERVER, SYN, Wire


def test_a_connection_has_its_packets_and_both_directions(tmp_path: Path) -> None:
    wire = Wire().open(5.0, rtt=0.085)
    wire.say(5.1, 0, b"GET").say(5.2, 1, b"answer").say(5.3, 1, b"s").raw(9.0, 1, 0, ACK)
    (flow,) = read(wire.write(tmp_path / "a.pcap")).flows
    assert flow.sizes.tolist() == [3, -6, -1]
    assert np.allclose(flow.times, [0.1, 0.2, 0.3])
    assert flow.rtt == pytest.approx(0.085)
    assert (flow.began, flow.ended) == (5.0, 9.0)
    assert (flow.first, flow.up, flow.down) == (b"GET", b"GET", b"answers")
    assert flow.server == (SERVER, PORT)


def test_what_comes_late_or_twice_is_put_in_order_over_the_end_of_the_numbers(
    tmp_path: Path,
) -> None:
    wire = Wire().open(0.0)
    start, text = wire.numbers[0], bytes(range(250))
    assert start < 2**32 < start + 250
    parts = ((0, 50), (150, 250), (100, 150), (0, 50), (150, 250), (40, 100))
    for place, (at, end) in enumerate(parts):
        wire.raw(1.0 + place, 0, start + at, ACK, text[at:end])
    (flow,) = read(wire.write(tmp_path / "a.pcap")).flows
    assert flow.up == text
    assert flow.repeated == 2
    assert flow.sizes.tolist() == [50, 100, 50, 60]


def test_ports_used_again_are_two_connections_and_a_repeated_syn_is_one(tmp_path: Path) -> None:
    wire = Wire().open(0.0).say(1.0, 0, b"one")
    wire.numbers = [500, 900]
    wire.open(2.0).open(2.5).say(3.0, 0, b"two")
    flows = read(wire.write(tmp_path / "a.pcap")).flows
    assert [each.up for each in flows] == [b"one", b"two"]
    assert flows[1].began == 2.0


def test_connections_of_others_and_those_that_ran_before_are_left_out(tmp_path: Path) -> None:
    wire = Wire().say(0.0, 0, b"before").say(0.1, 0, b"and on")
    other = Wire(wire.packets, port=40_001).open(1.0)
    file = other.write(tmp_path / "a.pcap")
    capture = read(file, (SERVER, PORT))
    assert len(capture.flows) == 1
    assert capture.headless == 2
    assert read(file, (SERVER, 443)).flows == []


def test_a_short_snap_length_leaves_sizes_whole(tmp_path: Path) -> None:
    wire = Wire().open(0.0).say(1.0, 0, b"x" * 100).say(2.0, 0, b"y" * 10)
    (flow,) = read(wire.write(tmp_path / "a.pcap", snap=100)).flows
    assert flow.sizes.tolist() == [100, 10]
    assert flow.up == b"x" * 60 + bytes(40) + b"y" * 10


@pytest.mark.parametrize("kept", [3, 20, 30, 50])
def test_a_capture_without_a_whole_packet_is_one_line_with_its_name(
    tmp_path: Path, kept: int
) -> None:
    file = Wire().open(0.0).say(1.0, 0, b"x" * 100).write(tmp_path / "a.pcap")
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(TraceError) as error:
        read(file)
    assert "a.pcap: " in str(error.value)
    assert "\n" not in str(error.value)


def test_damaged_bytes_never_end_in_another_error(tmp_path: Path) -> None:
    whole = Wire().open(0.0).say(1.0, 0, b"x" * 40).write(tmp_path / "a.pcap").read_bytes()
    for place in range(len(whole)):
        for value in (0, 0xFF, 0x7F):
            data = bytearray(whole)
            data[place] = value
            (tmp_path / "b.pcap").write_bytes(data)
            with suppress(TraceError), warnings.catch_warnings():  # and nothing else
                warnings.simplefilter("ignore", TraceWarning)
                read(tmp_path / "b.pcap")


def test_a_stream_keeps_a_bounded_number_of_segments_that_wait() -> None:
    stream = Stream()
    stream.begin(0)
    for number in range(10_000):
        stream.add(100 + number * 2, b"x", 1)
    assert len(stream._waiting) < 5_000
    assert stream.data == b""


def test_requests_and_answers_are_found_with_bodies_of_every_framing() -> None:
    up = b"GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"
    up += b"POST /x HTTP/1.1\r\nhost: a\r\nContent-Length: 5\r\n\r\nhello" + up
    found = http.requests(up)
    assert [each.start for each in found] == ["GET", "POST", "GET"]
    assert [each.head for each in found] == [40, 48, 40]
    assert found[0].names == ("Host", "Accept")
    assert found[1].body == b"hello"
    down = b"HTTP/1.1 200 OK\r\nContent-Type: Video/MP4; x=1\r\nContent-Length: 3\r\n\r\nabc"
    down += b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"
    down += b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n"
    down += b"HTTP/1.1 404 No\r\n\r\nuntil the end"
    got = http.answers(down)
    assert [each.start for each in got] == ["200", "304", "200", "404"]
    assert [each.kind for each in got] == ["video/mp4", "", "", ""]
    assert [len(each.body) for each in got] == [3, 0, 12, 13]
    assert [each.head for each in got] == [68, 48, 47, 19]
    assert http.requests(b"\x16\x03\x01" + up) == []
    assert http.answers(down[:60]) == []


def test_a_syn_alone_is_a_connection_without_payload(tmp_path: Path) -> None:
    file = Wire().raw(1.0, 0, 5, SYN).write(tmp_path / "a.pcap")
    (flow,) = read(file).flows
    assert np.isnan(flow.rtt)
    assert flow.sizes.size == 0
    assert flow.first == b""
