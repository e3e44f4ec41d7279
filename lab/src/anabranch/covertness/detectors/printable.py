"""Detector of first packets that are neither text nor TLS. Protocol allowlists block them.

Bock et al. observed networks that let only HTTP, TLS and DNS pass: "Detecting and Evading
Censorship-in-Depth: A Case Study of Iran's Protocol Whitelister", FOCI 2020.
"""

from __future__ import annotations

from anabranch.covertness import uniformity as look
from anabranch.covertness.detectors.fully_encrypted import FIRST_PRINTABLE, KNOWN
from anabranch.covertness.flows import Flow


def unprintable(flow: Flow) -> bool:
    """Returns whether the client's first packet begins with neither text nor a TLS record.

    Text is an HTTP method and a space, or 6 printable bytes. An empty packet does not match.
    """
    begin = flow.first[:FIRST_PRINTABLE]
    if not begin or KNOWN.match(flow.first):
        return False
    return look.longest_printable(begin) < len(begin)
