"""A bench's line: loopback with Ethernet's MTU, in a network namespace of its own.

Loopback's own MTU of 64 KiB makes one segment of a set's output in a turn (31 cells), and C tor
leaves Nagle's algorithm on. Each turn then waits for an acknowledgement that Linux delays by 40 ms,
and goodput reflects that delay, not the relays (2 MB/s where two legs join, 47 MB/s by one
circuit). No line between hosts behaves so.
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
    """Runs this program again in a namespace whose loopback has this MTU, if possible.

    Without root it continues in the current namespace, and prints a warning.
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
