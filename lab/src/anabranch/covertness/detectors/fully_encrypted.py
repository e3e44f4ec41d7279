"""A national firewall's rule for blocking fully encrypted traffic.

Wu et al., "How the Great Firewall of China Detects and Blocks Fully Encrypted Traffic", USENIX
Security 2023, Algorithm 1 and section 4.3: a connection passes if its client's first packet meets
any of five conditions, and may be blocked otherwise. The firewall blocked about a quarter of such
connections, and only to some networks; this detector matches all of them.
"""

from __future__ import annotations

import re

from anabranch.covertness import uniformity as look
from anabranch.covertness.flows import Flow

FEWEST_BITS, MOST_BITS = 3.4, 4.6
"""Ex1: a packet passes if its mean number of set bits per byte is outside these bounds."""
FIRST_PRINTABLE = 6
"""Ex2: a packet passes if this number of first bytes is printable (0x20 to 0x7E)."""
SHARE_PRINTABLE = 0.5
"""Ex3: a packet passes if more than this share of its bytes is printable."""
RUN_PRINTABLE = 20
"""Ex4: a packet passes if it has more than this number of printable bytes in a row."""
KNOWN = re.compile(rb"[\x16\x17]\x03[\x00-\x09]|(?i:GET|PUT|POST|HEAD) ")
"""Ex5: a packet passes if it begins with a TLS record, or with an HTTP method and a space."""


def fully_encrypted(flow: Flow) -> bool:
    """Returns whether the rule blocks the connection; one without a first packet passes."""
    return bool(flow.first) and not is_exempt(flow.first)


def is_exempt(packet: bytes) -> bool:
    """Returns whether a client's first packet, of 1 byte or more, exempts its connection."""
    bits = look.bits(packet)
    return (
        bits <= FEWEST_BITS
        or bits >= MOST_BITS
        or look.longest_printable(packet[:FIRST_PRINTABLE]) == FIRST_PRINTABLE
        or look.printable(packet) > SHARE_PRINTABLE
        or look.longest_printable(packet) > RUN_PRINTABLE
        or KNOWN.match(packet) is not None
    )
