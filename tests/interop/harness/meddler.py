"""A forwarder between a transport's two ends that does to connections what hostile networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from harness.closing import Closing

PIECE = 16384


@dataclass(frozen=True)
class Fate:
    """What becomes of a connection once it has brought so many bytes down."""

    down: int
    #: Closed at both ends; otherwise nothing passes any more, and nobody is told.
    killed: bool


#: It lives, as long as both ends want it to.
LIVES = Fate(down=1 << 62, killed=False)
#: Nothing ever passes.
HOLE = Fate(down=0, killed=False)


class Meddler(Closing):
    """Listens on a port of 127.0.0.1 and forwards to another; ``fate`` says what becomes of each.

    ``fate`` is asked with the number of the connection, from 0.
    """

    def __init__(self, to: int, fate: Callable[[int], Fate]):
        self._to, self._fate = to, fate
        #: Connections that came, and those that met their fate.
        self.came = self.struck = 0
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Ends it; connections end with the process."""
        self._over.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                fate = self._fate(self.came)
                self.came += 1
                threading.Thread(target=self._carry, args=(near, fate), daemon=True).start()

    def _carry(self, near: socket.socket, fate: Fate) -> None:
        far = socket.create_connection(("127.0.0.1", self._to))
        frozen = threading.Event()
        if fate.down == 0:
            self._strike(near, far, fate, frozen)
        up = threading.Thread(target=_pump, args=(near, far, frozen), daemon=True)
        up.start()
        left = fate.down
        while left > 0 and (piece := _read(far, min(PIECE, left))):
            left -= len(piece)
            if not _write(near, piece):
                break
        if left <= 0 < fate.down:
            self._strike(near, far, fate, frozen)
        elif left > 0:
            _shut(near)
        up.join()

    def _strike(
        self, near: socket.socket, far: socket.socket, fate: Fate, frozen: threading.Event
    ) -> None:
        self.struck += 1
        frozen.set()
        if fate.killed:
            # A close alone would wait for the thread that reads.
            _shut(near, socket.SHUT_RDWR)
            _shut(far, socket.SHUT_RDWR)
        else:
            # Both ends stay open, and hear nothing, until the test is over.
            self._over.wait()


def _pump(source: socket.socket, sink: socket.socket, frozen: threading.Event) -> None:
    while piece := _read(source, PIECE):
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
