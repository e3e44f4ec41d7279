"""A bench's line: loopback with Ethernet's MTU, in a network namespace of its own.

With loopback's own MTU of 64 KiB, the 31 cells that a leg set sends in one turn fit into one
segment. C tor leaves Nagle's algorithm on, so each turn waits for an acknowledgement, which Linux
delays by 40 ms. Goodput then depends on this delay and not on the relays: 2 MB/s where two legs
join, 47 MB/s on one circuit. Ethernet's MTU avoids this.
"""

from __future__ import annotations

import argparse
import os
import sys

ETHERNET = 1500
_INSIDE = "ANABRANCH_BENCH_LINE"


def add_option(parser: argparse.ArgumentParser, default: int = ETHERNET) -> None:
    """Adds ``--mtu``."""
    help_ = f"MTU of loopback, in a namespace made for this run ({default}; 0: as it is)"
    parser.add_argument("--mtu", type=int, default=default, help=help_)


def enter(mtu: int) -> None:
    """Restarts this program in a network namespace whose loopback has an MTU of `mtu` bytes.

    With an MTU of 0, the program continues in the current namespace. Without root it does the
    same, with a warning.
    """
    if mtu == 0 or os.environ.get(_INSIDE):
        return
    if os.geteuid() != 0:
        print("bench: not root: over loopback as it is, which C tor is slow on", file=sys.stderr)
        return
    os.environ[_INSIDE] = "1"
    script = 'ip link set lo mtu "$0" up && exec "$@"'
    again = [sys.executable, *sys.argv]
    os.execvp("unshare", ["unshare", "--net", "sh", "-c", script, str(mtu), *again])
