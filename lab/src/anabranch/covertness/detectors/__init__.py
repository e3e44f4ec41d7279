"""Fixed detectors: rules without training, one a file, each a function of a `Flow`.

To add a detector, write its file and name it in `DETECTORS`.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.covertness.detectors.entropy import entropy
from anabranch.covertness.detectors.fully_encrypted import fully_encrypted
from anabranch.covertness.detectors.printable import unprintable
from anabranch.covertness.detectors.tls_in_tls import tls_in_tls
from anabranch.covertness.flows import Flow

DETECTORS: dict[str, Callable[[Flow], bool]] = {
    "fully encrypted": fully_encrypted,
    "entropy": entropy,
    "not printable": unprintable,
    "TLS in TLS": tls_in_tls,
}
"""Detectors by their names on the page. Each returns whether it matches (hits) a connection."""

OF_FIRST_PACKETS = ("fully encrypted", "entropy", "not printable")
"""Detectors that use only the client's first packet."""
MUST_HIT = {"fully encrypted": ("nosteg", "obfs4"), "TLS in TLS": ("webtunnel",)}
"""Classes that each detector must match, as positive controls: `nosteg` and `obfs4` are random
from the first byte, `webtunnel` carries tor's TLS inside TLS.
"""
LEAST_HIT = 0.9
"""Minimum share of a control class's connections (`MUST_HIT`) that its detector must match. The
rule for fully encrypted traffic matches 99.6 % of random first packets of 100 B or more.
"""
