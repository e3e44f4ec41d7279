"""Detector of connections whose first packet has random bytes, by Pearson's test."""

from __future__ import annotations

from anabranch.covertness import uniformity as look
from anabranch.covertness.flows import Flow

LEAST = 64
"""Minimum length of a first packet in bytes; the test cannot judge shorter ones."""
FARTHEST = 3.0
"""Maximum value of `uniformity.chi_square` for a first packet that counts as random."""


def entropy(flow: Flow) -> bool:
    """Returns whether the client's first packet is indistinguishable from random bytes.

    Text, including base64, is at least 8 standard deviations away at 64 bytes. Entropy itself is
    less sensitive for short packets: it is at most log2 of their length.
    """
    return len(flow.first) >= LEAST and look.chi_square(flow.first) <= FARTHEST
