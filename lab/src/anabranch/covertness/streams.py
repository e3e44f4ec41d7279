"""One direction of a TCP connection: segments in the order of their bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

KEPT = 1 << 20
"""Bytes of a direction that are kept to be read; sizes and times are of all."""
_HALF, _WHOLE = 1 << 31, 1 << 32
_MOST_WAITING = 4096
"""Segments that may wait for one before them: who makes more of them is not believed."""


@dataclass(slots=True)
class Stream:
    """The bytes of one direction, as far as they have come without a gap.

    Attributes:
        data: the first `KEPT` bytes in order; a byte that the capture left out is 0.
        missing: bytes of `data` that the capture left out (a short snap length).
    """

    data: bytearray = field(default_factory=bytearray)
    missing: int = 0
    _next: int | None = None
    """The sequence number behind the last byte in order."""
    _waiting: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def begin(self, number: int) -> None:
        """Tells of SYN; a repeated one changes nothing."""
        if self._next is None:
            self._next = (number + 1) % _WHOLE

    def add(self, number: int, payload: bytes, length: int) -> bool:
        """Takes a segment; whether all of its bytes have come before.

        Args:
            number: sequence number of its first byte.
            payload: as much of it as was captured.
            length: bytes of the whole payload, from 1.
        """
        if self._next is None:  # its SYN was not captured
            self._next = number
        ahead = self._ahead(number)
        if ahead > 0:
            known = number in self._waiting and self._waiting[number][1] >= length
            if not known and len(self._waiting) < _MOST_WAITING:
                self._waiting[number] = (payload, length)
            return known
        if -ahead >= length:
            return True
        self._append(payload[-ahead:], length + ahead)
        while self._waiting and self._more():
            pass
        return False

    def _more(self) -> bool:
        """Whether one that waited was the next."""
        for number in self._waiting:
            ahead = self._ahead(number)
            if ahead > 0:
                continue
            payload, length = self._waiting.pop(number)
            if -ahead < length:
                self._append(payload[-ahead:], length + ahead)
            return True
        return False

    def _ahead(self, number: int) -> int:
        """How far a sequence number is ahead of the next byte; below 0 if it is behind."""
        return (number - (self._next or 0) + _HALF) % _WHOLE - _HALF

    def _append(self, payload: bytes, length: int) -> None:
        room = KEPT - len(self.data)
        absent = max(length - len(payload), 0)
        self.data += payload[:room]
        if absent and len(payload) < room:
            filled = min(absent, room - len(payload))
            self.data += bytes(filled)
            self.missing += filled
        self._next = ((self._next or 0) + length) % _WHOLE
