"""A TCP forwarder between a transport's ends that disturbs connections as hostile networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from harness.closing import Closing

PIECE = 16384


#: More bytes than any connection transfers.
ANY = 1 << 62


@dataclass(frozen=True)
class Fate:
    """The fate of a connection after ``down`` bytes of download, or at a point in time."""

    down: int
    # : Closed at both ends; otherwise it stalls silently.
    killed: bool
    # : Interval in seconds at which all live connections meet this fate at the same time, counted
    # : from the meddler's start; 0: never by time.
    every: float = 0.0


#: Forwards until an end closes the connection.
LIVES = Fate(down=ANY, killed=False)
#: Forwards nothing.
HOLE = Fate(down=0, killed=False)


class Meddler(Closing):
    """Forwards a port of 127.0.0.1 to another port, and disturbs connections.

    ``fate`` returns the fate of a connection by its number, from 0.
    """

    def __init__(self, to: int, fate: Callable[[int], Fate]):
        self._to, self._fate = to, fate
        #: Number of accepted connections, and of connections that met their fate.
        self.came = self.struck = 0
        #: First bytes of each connection, up and down, by its number.
        self.up: dict[int, bytes] = {}
        self.down: dict[int, bytes] = {}
        self._began = time.monotonic()
        self._count = threading.Lock()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stops listening; connections end with the process."""
        self._over.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                number, fate = self.came, self._fate(self.came)
                self.came += 1
                threading.Thread(target=self._carry, args=(number, near, fate), daemon=True).start()

    def _carry(self, number: int, near: socket.socket, fate: Fate) -> None:
        far = socket.create_connection(("127.0.0.1", self._to))
        frozen, ended = threading.Event(), threading.Event()
        if fate.every:
            clock = threading.Thread(
                target=self._wait_and_strike, args=(near, far, fate, frozen, ended), daemon=True
            )
            clock.start()
        if fate.down == 0:
            self._strike(near, far, fate, frozen)
        said = partial(self.up.setdefault, number)
        up = threading.Thread(target=_pump, args=(near, far, frozen, said), daemon=True)
        up.start()
        left = fate.down
        while left > 0 and (piece := _read(far, min(PIECE, left))):
            left -= len(piece)
            self.down.setdefault(number, piece)
            if not frozen.is_set() and not _write(near, piece):
                break
        if left <= 0 < fate.down:
            self._strike(near, far, fate, frozen)
        elif left > 0 and not frozen.is_set():
            _shut(near)
        up.join()
        ended.set()

    def _wait_and_strike(
        self,
        near: socket.socket,
        far: socket.socket,
        fate: Fate,
        frozen: threading.Event,
        ended: threading.Event,
    ) -> None:
        lived = time.monotonic() - self._began
        if not ended.wait(fate.every - lived % fate.every):
            self._strike(near, far, fate, frozen)

    def _strike(
        self, near: socket.socket, far: socket.socket, fate: Fate, frozen: threading.Event
    ) -> None:
        with self._count:
            self.struck += 1
        frozen.set()
        if fate.killed:
            # A close alone would wait for the reading thread.
            _shut(near, socket.SHUT_RDWR)
            _shut(far, socket.SHUT_RDWR)
        else:
            # Both ends stay open and receive nothing until the test is over.
            self._over.wait()


def _pump(
    source: socket.socket,
    sink: socket.socket,
    frozen: threading.Event,
    said: Callable[[bytes], object],
) -> None:
    while piece := _read(source, PIECE):
        said(piece)
        if not frozen.is_set() and not _write(sink, piece):
            return
    if not frozen.is_set():
        _shut(sink)


def _read(source: socket.socket, most: int) -> bytes:
    try:
        return source.recv(most)
    except OSError:
        return b""


def _write(sink: socket.socket, piece: bytes) -> bool:
    try:
        sink.sendall(piece)
    except OSError:
        return False
    return True


def _shut(sink: socket.socket, how: int = socket.SHUT_WR) -> None:
    with contextlib.suppress(OSError):
        sink.shutdown(how)
