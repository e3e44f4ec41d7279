"""What the bytes of a message look like: bits, printable bytes, distance from chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.int64)
_PRINTABLE = np.zeros(256, np.bool_)
_PRINTABLE[0x20:0x7F] = True
_FREE = 255
"""Degrees of freedom of 256 kinds of byte."""


def bits(message: bytes) -> float:
    """Mean number of set bits of a byte; NaN of no bytes."""
    return float(_BITS[_array(message)].mean()) if message else float("nan")


def printable(message: bytes) -> float:
    """Share of bytes from 0x20 to 0x7E; NaN of no bytes."""
    return float(_PRINTABLE[_array(message)].mean()) if message else float("nan")


def longest_printable(message: bytes) -> int:
    """The longest run of such bytes."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], _PRINTABLE[_array(message)], [0]))))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def entropy(message: bytes) -> float:
    """Bits a byte, of the frequencies of bytes: at most log2 of the length; NaN of no bytes."""
    counts = np.bincount(_array(message), minlength=256)
    shares = counts[counts > 0] / max(len(message), 1)
    return float(-(shares * np.log2(shares)).sum()) if message else float("nan")


def chi_square(message: bytes) -> float:
    """Pearson's statistic against equally frequent bytes, as standard deviations from its mean.

    Of random bytes its mean is 255 and its variance 510 (n - 1) / n, whatever their number n.
    NaN of fewer than 2 bytes.
    """
    n = len(message)
    if n < 2:
        return float("nan")
    counts = np.bincount(_array(message), minlength=256).astype(np.float64)
    statistic = 256.0 / n * float((counts**2).sum()) - n
    return float((statistic - _FREE) / np.sqrt(2.0 * _FREE * (n - 1) / n))


def _array(message: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(message, np.uint8)
