"""Tests of the harness's lossy and reordering lines."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from contextlib import closing

import pytest

from harness.losing import Losing, Reordering
from harness.seeded import MIB, seeded_bytes, seeded_sha256

pytestmark = pytest.mark.links

DATAGRAMS = 3000


def numbers_that_came(receiver: socket.socket) -> list[int]:
    """Sends numbered datagrams to a socket, one every 200 µs; returns the order of arrival."""
    came: list[int] = []

    def receive() -> None:
        while len(came) < DATAGRAMS:
            try:
                came.append(int.from_bytes(receiver.recv(4)))
            except TimeoutError:
                return

    receiver.settimeout(1)
    reader = threading.Thread(target=receive)
    reader.start()
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        for number in range(DATAGRAMS):
            sender.sendto(number.to_bytes(4), receiver.getsockname())
            time.sleep(0.0002)
    reader.join()
    return came


def overtaken(numbers: list[int]) -> int:
    """Returns how many datagrams arrived after one that was sent later."""
    return sum(number < max(numbers[:at], default=-1) for at, number in enumerate(numbers))


def test_datagrams_come_late_and_none_is_lost() -> None:
    """One datagram in 50 is overtaken while the line reorders, and none before or after."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as receiver:
        receiver.bind(("127.0.0.1", 0))
        port = receiver.getsockname()[1]
        assert numbers_that_came(receiver) == list(range(DATAGRAMS))
        with Reordering([port], protocols=("tcp", "udp")) as reordering:
            came = numbers_that_came(receiver)
            # Bounds: four standard deviations around a share of 1 in 50.
            assert 30 <= reordering.held <= 95
        assert sorted(came) == list(range(DATAGRAMS))
        assert overtaken(came) >= reordering.held / 2
        assert numbers_that_came(receiver) == list(range(DATAGRAMS))


def test_segments_come_late_or_are_lost_and_all_arrives() -> None:
    """1 MiB over TCP, in segments of 1 KiB, arrives over lines that lose and reorder."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def send() -> None:
            link, _ = server.accept()
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with link:
                for begin in range(0, MIB, 1024):
                    link.sendall(seeded_bytes(MIB)[begin : begin + 1024])
                    time.sleep(0.0002)

        sender = threading.Thread(target=send)
        came = hashlib.sha256()
        with Losing([port]) as losing, Reordering([port]) as reordering:
            sender.start()
            with socket.create_connection(("127.0.0.1", port)) as link:
                while got := link.recv(1 << 16):
                    came.update(got)
            sender.join()
            assert losing.lost() > 0
            assert reordering.held > 0
    assert came.hexdigest() == seeded_sha256(MIB)
