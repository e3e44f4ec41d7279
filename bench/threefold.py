"""Three of our relays in a network of C tor's authorities, and the options that pin them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from harness.tornet import TorNetwork
from harness.torours import OurRelay


def three_relays(
    stack: contextlib.ExitStack, network: TorNetwork, folder: Path, *options: str
) -> list[OurRelay]:
    """Starts guard, middle and exit with the same options; returns them in this order.

    Call it before `network.start`, which then waits until the consensus has them.
    """
    ours = [
        stack.enter_context(
            OurRelay(network, folder / f"ours{place}", f"ours{place}", *options, *more)
        )
        for place, more in enumerate([(), (), ("--exit", "accept *:*")])
    ]
    network.others = {relay.name: relay.fingerprint for relay in ours}
    network.other_exits = [ours[2].name]
    return ours


def pins(relays: list[OurRelay]) -> list[str]:
    """Returns the options that pin a client of ours to these relays."""
    names = zip(("--entry", "--middle", "--exit"), relays, strict=True)
    return [word for option, relay in names for word in (option, relay.fingerprint)]
