"""Compressed captures: reads gzip; errors for other formats name the program that unpacks them."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from anabranch.validate import TraceError

_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"PK\x03\x04": ("a zip archive", "unzip"),
    b"\xfd7zXZ": ("packed with xz", "xz -d"),
    b"\x28\xb5\x2f\xfd": ("packed with zstd", "zstd -d"),
    b"BZh": ("packed with bzip2", "bzip2 -d"),
}
"""Formats by the first bytes of a file: a description, and the command that unpacks it."""


def content(file: Path) -> bytes:
    """Returns the bytes of a file, unpacked if it is gzip.

    Raises:
        TraceError: if the file is compressed in another format, or its gzip data are damaged or
            cut.
    """
    data = file.read_bytes()
    check(data)
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"the gzip data are damaged or incomplete: {error}") from error


def check(begin: bytes) -> None:
    """Raises a TraceError if a file with these first bytes must be unpacked first."""
    for magic, (what, program) in _OTHERS.items():
        if begin.startswith(magic):
            raise TraceError(f"the file is {what}: unpack it first ({program})")


def check_file(file: Path) -> None:
    """Raises a TraceError if `file` must be unpacked first."""
    with file.open("rb") as opened:
        check(opened.read(8))
