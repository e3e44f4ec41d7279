"""Uniformity of a message's bytes: bits, printable bytes, distance from chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.int64)
_PRINTABLE = np.zeros(256, np.bool_)
_PRINTABLE[0x20:0x7F] = True
_FREE = 255
"""Degrees of freedom of Pearson's test for 256 byte values."""


def bits(message: bytes) -> float:
    """Returns the mean number of set bits per byte; NaN without bytes."""
    return float(_BITS[_array(message)].mean()) if message else float("nan")


def printable(message: bytes) -> float:
    """Returns the share of bytes from 0x20 to 0x7E; NaN without bytes."""
    return float(_PRINTABLE[_array(message)].mean()) if message else float("nan")


def longest_printable(message: bytes) -> int:
    """Returns the length of the longest run of bytes from 0x20 to 0x7E."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], _PRINTABLE[_array(message)], [0]))))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def entropy(message: bytes) -> float:
    """Returns bits per byte, from byte frequencies: at most log2 of the length; NaN if empty."""
    counts = np.bincount(_array(message), minlength=256)
    shares = counts[counts > 0] / max(len(message), 1)
    return float(-(shares * np.log2(shares)).sum()) if message else float("nan")


def chi_square(message: bytes) -> float:
    """Returns Pearson's statistic for uniform bytes, as standard deviations from its mean.

    For random bytes its mean is 255 and its variance 510 (n - 1) / n, for any number n of bytes.
    NaN for fewer than 2 bytes.
    """
    n = len(message)
    if n < 2:
        return float("nan")
    counts = np.bincount(_array(message), minlength=256).astype(np.float64)
    statistic = 256.0 / n * float((counts**2).sum()) - n
    return float((statistic - _FREE) / np.sqrt(2.0 * _FREE * (n - 1) / n))


def _array(message: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(message, np.uint8)
