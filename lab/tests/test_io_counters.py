"""Cleartext counters in datagrams of WireGuard and Mosh, and in captures of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from anabranch import io
from anabranch.evaluate import Spec
from anabranch.io import counters as clear_numbers
from anabranch.io.counters import MOSH, NEITHER, WIREGUARD, Clear, clear
from anabranch.io.headers import datagram, end
from anabranch.observers import Observer, SettingError
from anabranch.splitting import Split
from anabranch.validate import MOST_COUNTED, TraceError
from making import made

CLIENT, SERVER = ("192.0.2.1", 40_000), ("198.51.100.1", 51_820)


def data_message(index: int, number: int, inner: int = 64) -> bytes:
    return struct.pack("<IIQ", 4, index, number) + bytes(inner + 16)


def mosh(number: int, to_client: bool, size: int = 60) -> bytes:
    return struct.pack(">Q", number | to_client << 63) + b"x" * size


def udp(payload: bytes, outward: bool, link: int = 101) -> bytes:
    """Returns a frame with these bytes between client and server."""
    (a, p), (b, q) = (CLIENT, SERVER) if outward else (SERVER, CLIENT)
    ends = b"".join(bytes(map(int, address.split("."))) for address in (a, b))
    ip = struct.pack(">BBHIBBH", 0x45, 0, 28 + len(payload), 0x4000, 64, 17, 0) + ends
    before = {101: b"", 1: bytes(12) + b"\x81\x00\0\1\x08\x00", 113: bytes(14) + b"\x08\x00"}
    return before[link] + ip + struct.pack(">HHHH", p, q, 8 + len(payload), 0) + payload


def classic(*frames: tuple[float, bytes], link: int = 101, magic: int = 0xA1B23C4D) -> bytes:
    """Returns a file as tcpdump writes it: time and frame of each packet."""
    data = struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 1 << 16, link)
    for time, frame in frames:
        ticks = round(time % 1 * (1e9 if magic == 0xA1B23C4D else 1e6))
        data += struct.pack("<IIII", int(time), ticks, len(frame), len(frame)) + frame
    return data


def pcapng(*packets: tuple[float, bytes, bool]) -> bytes:
    """Returns a file as the splitter writes it: time, payload and direction of each packet."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        length = struct.pack("<I", len(body) + 12)
        return struct.pack("<I", kind) + length + body + length

    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += block(1, struct.pack("<HHI", 101, 0, 0))
    for time, payload, outward in packets:
        frame, ticks = udp(payload, outward), round(time * 1e6)
        head = struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
        flags = struct.pack("<HHIHH", 2, 4, 2 if outward else 1, 0, 0)
        data += block(6, head + frame + bytes(-len(frame) % 4) + flags)
    return data


def captured(folder: Path, *paths: Sequence[tuple[float, bytes, bool]]) -> list[int] | None:
    """Returns the counters read from captures of these paths, in the order of time."""
    for number, packets in enumerate(paths):
        (folder / f"{number}.pcapng").write_bytes(pcapng(*packets))
    counters = io.read(folder).counters
    return None if counters is None else counters.tolist()


def refusal(path: Path) -> str | None:
    """Returns the reason why a capture of the server's packets is not read, if it is not."""
    try:
        io.read(path, "pcapng", io.Meaning(server=end("198.51.100.1:51820")))
    except TraceError as error:
        return str(error)
    return None


def test_datagrams_show_what_their_protocols_say() -> None:
    assert clear(data_message(7, 5), 96, True) == Clear(WIREGUARD, 7, 5)
    # A packet as long as the tunnel's MTU is not padded to a multiple of 16.
    assert clear(data_message(7, 5, 1420), 1452, True) == Clear(WIREGUARD, 7, 5)
    for kind, size in ((1, 148), (2, 92), (3, 64)):
        handshake = struct.pack("<I", kind) + bytes(size - 4)
        assert clear(handshake, size, True) == Clear(WIREGUARD)
        assert clear(handshake, size + 1, True).kind == NEITHER
    assert clear(mosh(3, to_client=False), 68, outward=True) == Clear(MOSH, 0, 3)
    assert clear(mosh(3, to_client=True), 68, outward=False) == Clear(MOSH, 0, 3)
    assert clear(mosh(3, to_client=True), 68, outward=True).kind == NEITHER, "a wrong direction"
    assert clear(data_message(7, MOST_COUNTED), 96, True).kind == NEITHER, "no tunnel counts that"
    assert clear(data_message(7, 5)[:15], 96, True).kind == NEITHER, "cut off"


def test_no_bytes_are_too_strange(tmp_path: Path) -> None:
    """Any bytes in a capture give a number from 0 to 2^40, no number, or one line."""
    chance = np.random.default_rng(5)
    starts = [b"", b"\4\0\0\0", b"\1\0\0\0", bytes(4), b"\x80\0\0\0\0", b"\x45", b"\x60"]
    for turn in range(3_000):
        noise = starts[turn % len(starts)] + chance.bytes(int(chance.integers(0, 180)))
        shown = clear(noise, int(chance.integers(0, 1500)), bool(turn % 2))
        assert shown.number < MOST_COUNTED
        assert (shown.number < 0) or shown.kind in (WIREGUARD, MOSH)
        for link in (0, 1, 101, 113, 276):
            datagram(link, noise)
    whole = classic(*((k, udp(data_message(1, k), True)) for k in range(6)))
    for _ in range(300):
        damaged = bytearray(whole)
        for place in chance.integers(0, len(damaged), 3):
            damaged[place] = int(chance.integers(256))
        (tmp_path / "a.pcap").write_bytes(damaged[: int(chance.integers(1, len(damaged)))])
        problem = refusal(tmp_path / "a.pcap")
        assert problem is None or "\n" not in problem


def test_counters_of_several_paths_count_from_the_loads_first_packet(tmp_path: Path) -> None:
    first = [(0.0, data_message(9, 100), True), (0.2, data_message(9, 102), True)]
    second = [(0.1, data_message(9, 101), True), (0.3, data_message(4, 50), False)]
    assert captured(tmp_path, first, second) == [1, 2, 3, 1]


def test_a_lost_packet_and_a_late_one_change_no_other(tmp_path: Path) -> None:
    first = [(0.0, data_message(9, 10), True), (0.3, data_message(9, 12), True)]
    second = [(0.1, data_message(9, 14), True)]
    assert captured(tmp_path, first, second) == [1, 5, 3]


def test_handshakes_count_nothing_and_new_keys_go_on(tmp_path: Path) -> None:
    initiation = b"\1\0\0\0" + bytes(144)
    packets = [
        (0.0, data_message(9, 40), True),
        (0.1, data_message(9, 41), True),
        (0.2, initiation, True),
        (0.3, data_message(8, 0), True),
        (0.4, data_message(9, 42), True),  # overtaken
        (0.5, data_message(8, 1), True),
    ]
    assert captured(tmp_path, packets) == [1, 2, 0, 4, 3, 5]


def test_each_direction_of_mosh_counts_for_itself(tmp_path: Path) -> None:
    packets = [(k / 10, mosh(20 + k // 2, to_client=k % 2 == 1), k % 2 == 0) for k in range(6)]
    assert captured(tmp_path, packets) == [1, 1, 2, 2, 3, 3]


def test_what_shows_no_counter_has_none(tmp_path: Path) -> None:
    quic = [(0.0, b"\x45" + b"q" * 60, True), (0.1, data_message(9, 0), True)]
    assert captured(tmp_path, quic) is None
    split = Split("uniform", "1p", 2).split(made(1))
    io.write(split, tmp_path / "caps", "pcapng")
    assert io.read(tmp_path / "caps").counters is None


@pytest.mark.parametrize("link", [1, 101, 113])
@pytest.mark.parametrize("magic", [0xA1B23C4D, 0xA1B2C3D4])
def test_captures_of_tcpdump_need_the_server_named(link: int, magic: int, tmp_path: Path) -> None:
    other = udp(b"x" * 40, True, link).replace(struct.pack(">H", SERVER[1]), b"\0\x35")
    frames = [
        (5.0, udp(data_message(9, 0), True, link)),
        (5.25, other),
        (5.5, udp(data_message(3, 0, 80), False, link)),
    ]
    (tmp_path / "wlan.pcap").write_bytes(classic(*frames, link=link, magic=magic))
    with pytest.raises(TraceError, match=r"wlan\.pcap: .* no direction .* name the server"):
        io.read(tmp_path)
    traces = io.read(tmp_path, meaning=io.Meaning(server=end("198.51.100.1:51820")))
    assert traces.facts.paths == ("wlan",)
    assert traces.times.tolist() == [0.0, 0.5]
    assert traces.sizes.tolist() == [28 + 96, -(28 + 112)]
    assert traces.counters is not None
    assert traces.counters.tolist() == [1, 1]
    with pytest.raises(TraceError, match="no packets of that server"):
        io.read(tmp_path, meaning=io.Meaning(server=end("198.51.100.1:1")))


@pytest.mark.parametrize(
    "text", ["", "1", "1.2.3.4", "1.2.3.4:0", "1.2.3.4:70000", "::1:5", "[::1]5"]
)
def test_an_address_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$"):
        end(text)
    assert end("[::1]:5") == (bytes(15) + b"\1", 5)


def test_made_up_counters_are_those_that_would_be_read(tmp_path: Path) -> None:
    """One split twice: as captures of a tunnel's datagrams, and with the lab's counters."""
    split = Split("weighted:4", "~5p", 3, seed=2).split(made(1))
    assert split.paths is not None
    numbers = split.counted().counters
    assert numbers is not None
    for path in range(3):
        own = np.flatnonzero(split.paths == path)
        rows = [
            (split.times[k], data_message(1, int(numbers[k]) + 99), bool(split.sizes[k] > 0))
            for k in own
        ]
        (tmp_path / f"{path}.pcapng").write_bytes(pcapng(*rows))
    read = io.read(tmp_path)
    assert read.counters is not None
    assert read.counters.tolist() == numbers.tolist()
    for rule in ("random+counter", "largest+counter"):
        mine, theirs = (Observer.parse(rule).see(each).sequences for each in (split, read))
        np.testing.assert_array_equal(mine.counts, theirs.counts)


def test_counters_are_kept_in_our_own_schema_alone(tmp_path: Path) -> None:
    late = Split("uniform", "3p", 2, delays=(0.0, 0.1)).split(made(4))
    io.write(late, tmp_path / "a.parquet")
    back = io.read(tmp_path / "a.parquet").counters
    assert back is not None
    np.testing.assert_array_equal(back, late.counters)
    io.write(late, tmp_path / "a.npz")
    assert io.read(tmp_path / "a.npz").counters is None


def test_counters_that_cannot_be_are_refused() -> None:
    traces = made(1).counted()
    for value, problem in ((-1, "below 0"), (MOST_COUNTED + 1, "above 2")):
        wrong = np.full_like(traces.sizes, value, np.int64)
        with pytest.raises(TraceError, match=f"column 'counter': .* {problem}"):
            type(traces)(
                **{name: getattr(traces, name) for name in traces.__slots__} | {"counters": wrong}
            )


def test_an_attack_without_use_for_counters_refuses_them() -> None:
    with pytest.raises(
        SettingError,
        match=r"^observer: the attack df cannot use the packet counter; these attacks can: .*k-fp",
    ):
        Spec.of(attack="df", observer="largest+counter", schedule="uniform", every="5p")
    with pytest.raises(SettingError, match="path_defence: padding of paths needs a far end"):
        Spec.of(observer="random+counter", schedule="uniform", every="5p", path_defence="front")
    for text in ("+counter", "largest+", "largest+size", "merged:0+counter"):
        with pytest.raises(SettingError, match="each can have \\+counter"):
            Observer.parse(text)
    assert str(Observer.parse("merged:2+counter")) == "merged:2+counter"


def test_the_kinds_are_told_apart_by_all_packets() -> None:
    outward = np.ones(3, np.bool_)
    rows = [Clear(WIREGUARD, 1, 0), Clear(WIREGUARD), Clear(WIREGUARD, 1, 1)]
    found = clear_numbers.counters(outward, np.array(rows))
    assert found is not None
    assert found.tolist() == [1, 0, 2]
    rows[1] = Clear(NEITHER)
    assert clear_numbers.counters(outward, np.array(rows)) is None
