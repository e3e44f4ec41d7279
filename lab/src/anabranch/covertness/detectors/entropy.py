"""Random bytes from the first packet on, by Pearson's test."""

from __future__ import annotations

from anabranch.covertness import uniformity as look
from anabranch.covertness.flows import Flow

LEAST = 64
"""Bytes of a first packet that can be judged."""
FARTHEST = 3.0
"""Standard deviations from what random bytes give."""


def entropy(flow: Flow) -> bool:
    """Whether the client's first packet cannot be told from random bytes.

    Text, base64 too, is 8 and more standard deviations away at 64 bytes. Entropy itself tells less
    of short packets: at most log2 of their length.
    """
    return len(flow.first) >= LEAST and look.chi_square(flow.first) <= FARTHEST
