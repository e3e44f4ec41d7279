"""Parser of cleartext HTTP/1.1 requests and responses in an observer's capture (RFC 9112)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_REQUEST = re.compile(rb"[A-Z]{3,10} [^ \r\n]+ HTTP/1\.[01]\r\n")
_ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3})[^\r\n]*\r\n")
_LONGEST_HEAD = 65_536
_UNBODIED = frozenset({"204", "304"})


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response.

    Attributes:
        start: method or status code, from the first line.
        head: bytes from the first line to the empty one, including both.
        names: names of the headers, in their order and case.
        kind: Content-Type without parameters, in lower case; empty if there is none.
        body: as sent, without decoding or dechunking; incomplete if the stream ended or was cut.
    """

    start: str
    head: int
    names: tuple[str, ...]
    kind: str
    body: bytes


def requests(stream: bytes) -> list[Message]:
    """Returns the requests in a client's direction; empty if it is not cleartext HTTP."""
    return list(_messages(stream, _REQUEST))


def answers(stream: bytes) -> list[Message]:
    """Returns the responses in a server's direction."""
    return list(_messages(stream, _ANSWER))


def _messages(stream: bytes, first_line: re.Pattern[bytes]) -> Iterator[Message]:
    at = 0
    while found := first_line.match(stream, at):
        end = stream.find(b"\r\n\r\n", at, at + _LONGEST_HEAD)
        if end < 0:
            return
        lines = stream[found.end() : end].decode("latin-1").split("\r\n") if end > at else []
        pairs = [line.partition(":")[::2] for line in lines if ":" in line]
        headers = {name.lower(): value.strip() for name, value in pairs}
        start = found[1].decode() if first_line is _ANSWER else found[0].split()[0].decode()
        head, begin = end + 4 - at, end + 4
        at = begin + _length(stream, begin, headers, start, asked=first_line is _REQUEST)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        yield Message(start, head, tuple(name for name, _ in pairs), kind, stream[begin:at])


def _length(stream: bytes, begin: int, headers: dict[str, str], start: str, *, asked: bool) -> int:
    """Returns the length in bytes of a body that begins at `begin` (RFC 9112, section 6.3).

    Without a valid length in `headers`, the body of a request (`asked`) is empty, and that of a
    response ends with the stream.
    """
    rest = len(stream) - begin
    if start in _UNBODIED:
        return 0
    if headers.get("transfer-encoding", "").lower() == "chunked":
        end = stream.find(b"\r\n0\r\n\r\n", max(begin - 2, 0))
        return rest if end < 0 else end + 7 - begin
    length = headers.get("content-length", "")
    if length.isdecimal() and len(length) < 16:
        return min(int(length), rest)
    return 0 if asked else rest
