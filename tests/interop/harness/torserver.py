"""A program that runs a private Tor network with a bridge in the network namespace of its caller.

Usage: ``python -m harness.torserver FOLDER ADDRESS:PORT``

Clients reach the bridge at ``ADDRESS:PORT``. As soon as the bridge is in the network, the program
prints a line of JSON: ``authorities`` are the lines that make a tor part of this network,
``bridge`` is the bridge's fingerprint. It runs until SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from harness.tornet import TorNetwork


def main() -> None:
    """Runs the network."""
    folder, at = Path(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with TorNetwork(folder, authorities=1) as network:
        network.start()
        bridge = network.bridge("bridge", f"ORPort {at} NoAdvertise")
        ready = {"authorities": network.authorities, "bridge": bridge.fingerprint}
        print(json.dumps(ready), flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
