"""Reassembly of one direction of a TCP connection, in the order of sequence numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

KEPT = 1 << 20
"""Maximum number of bytes to store of a direction; sizes and times have no such limit."""
_HALF, _WHOLE = 1 << 31, 1 << 32
_MOST_WAITING = 4096
"""Maximum number of out-of-order segments to buffer; further ones are dropped."""


@dataclass(slots=True)
class Stream:
    """The bytes of one direction, up to the first gap.

    Attributes:
        data: the first `KEPT` bytes in order; bytes that the capture left out are 0.
        missing: number of bytes of `data` that the capture left out (short snap length).
    """

    data: bytearray = field(default_factory=bytearray)
    missing: int = 0
    _next: int | None = None
    """The next expected sequence number; None before a SYN."""
    _waiting: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def begin(self, number: int) -> None:
        """Records the sequence number of the SYN; a retransmitted SYN changes nothing."""
        if self._next is None:
            self._next = (number + 1) % _WHOLE

    def add(self, number: int, payload: bytes, length: int) -> bool:
        """Adds a segment; returns whether all of its bytes had arrived before.

        Args:
            number: sequence number of the segment's first byte.
            payload: the captured part of the payload.
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
        """Appends a buffered segment if it is now in order; returns whether there was one."""
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
        """Returns a sequence number's distance from the next expected one; negative if earlier."""
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
