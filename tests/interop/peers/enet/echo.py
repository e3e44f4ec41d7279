"""Echoes reliable messages with the ENet library itself, by ctypes.

Usage: ``echo.py listen ADDRESS:PORT`` or ``echo.py dial ADDRESS:PORT COUNT``, which sends a hundred
messages a second and prints how many came back, as one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time

RELIABLE = 1
CONNECT, DISCONNECT, RECEIVE = 1, 2, 3


class Address(ctypes.Structure):
    """``ENetAddress`` of ENet 1.3."""

    _fields_ = [("host", ctypes.c_uint32), ("port", ctypes.c_uint16)]


class Packet(ctypes.Structure):
    """The first fields of ``ENetPacket``."""

    _fields_ = [
        ("references", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("data", ctypes.POINTER(ctypes.c_uint8)),
        ("length", ctypes.c_size_t),
    ]


class Event(ctypes.Structure):
    """ENetEvent."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("peer", ctypes.c_void_p),
        ("channel", ctypes.c_uint8),
        ("data", ctypes.c_uint32),
        ("packet", ctypes.POINTER(Packet)),
    ]


enet = ctypes.CDLL("libenet.so.7")
enet.enet_host_create.restype = ctypes.c_void_p
enet.enet_host_create.argtypes = [ctypes.c_void_p, *2 * [ctypes.c_size_t], *2 * [ctypes.c_uint32]]
enet.enet_host_connect.restype = ctypes.c_void_p
enet.enet_host_connect.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
]  # fmt: skip
enet.enet_host_service.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
enet.enet_packet_create.restype = ctypes.c_void_p
enet.enet_packet_create.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32]
enet.enet_packet_destroy.argtypes = [ctypes.POINTER(Packet)]
enet.enet_peer_send.argtypes = [ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p]


def address(text: str) -> Address:
    """Parses ADDRESS:PORT into the library's form."""
    host, port = text.rsplit(":", 1)
    made = Address(0, int(port))
    enet.enet_address_set_host(ctypes.byref(made), host.encode())
    return made


def send(peer: int, message: bytes) -> None:
    """Sends a reliable message on the first channel."""
    enet.enet_peer_send(peer, 0, enet.enet_packet_create(message, len(message), RELIABLE))


def listen(at: str) -> None:
    """Echoes messages until the process is killed."""
    host = enet.enet_host_create(ctypes.byref(address(at)), 8, 1, 0, 0)
    event = Event()
    while True:
        if enet.enet_host_service(host, ctypes.byref(event), 10) > 0 and event.type == RECEIVE:
            packet = event.packet.contents
            send(event.peer, bytes(packet.data[: packet.length]))
            enet.enet_packet_destroy(event.packet)


def dial(to: str, count: int) -> dict[str, object]:
    """Sends ``count`` messages and waits three seconds for the last echoes."""
    host = enet.enet_host_create(None, 1, 1, 0, 0)
    peer = enet.enet_host_connect(host, ctypes.byref(address(to)), 1, 0)
    event, answered, sent, connected = Event(), 0, 0, 0.0
    end = time.monotonic() + 10
    while time.monotonic() < end and answered < count:
        happened = enet.enet_host_service(host, ctypes.byref(event), 5) > 0
        if happened and event.type == CONNECT:
            connected, end = time.monotonic(), time.monotonic() + count / 100 + 3
        elif happened and event.type == RECEIVE:
            answered += 1
            enet.enet_packet_destroy(event.packet)
        elif happened and event.type == DISCONNECT:
            return {"answered": answered, "error": "disconnected"}
        if connected and sent < min(count, (time.monotonic() - connected) * 100):
            send(peer, sent.to_bytes(4, "big") * 25)
            sent += 1
    return {"answered": answered, "error": "" if connected else "no connection"}


enet.enet_initialize()
if sys.argv[1] == "listen":
    listen(sys.argv[2])
else:
    print(json.dumps(dial(sys.argv[2], int(sys.argv[3]))))
