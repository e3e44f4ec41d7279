"""CPU profile of a middle relay of ours: a flame graph, and shares by kind.

Our client downloads through three relays of ours. ``perf`` samples the middle relay (cpu-clock,
with call graphs from debugging information), and ``inferno`` folds and draws its stacks. Shares
are of samples. A stack counts for the first kind in `KINDS` that matches one of its functions,
from the innermost outwards.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

from downloads import download
from harness.report import table
from harness.seeded import MIB
from harness.tools import tool
from harness.tornet import TorNetwork
from harness.torours import OurClient
from harness.webfiles import FileServer
from threefold import pins, three_relays

# Kinds of work, each with a pattern of functions; inferno marks the kernel's functions.
KINDS = {
    "kernel: sockets, epoll": r"_\[k\]$",
    "copies": r"^(__)?mem(cpy|move|set|cmp)",
    "relay crypto": r"anabranch_onion::crypto|^aes::|^polyval|^sha1",
    "TLS records: AES-GCM": r"aesni_gcm|gcm|aws_lc_.*(aes|ghash|gcm)|vaes",
    "TLS records: all else": r"rustls|anabranch_links",
    "choice of circuits": r"schedule::|ewma|Ewma|btree|BTree",
    "cells, queues, links": r"anabranch_onion|anabranch_router|anabranch_os",
}


def main() -> int:
    """Draws the graph and prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mib", type=int, default=1600, help="MiB to carry (1600)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the relay (1)")
    parser.add_argument("--into", type=Path, required=True, help="SVG file to write")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anabranch-flame-") as name:
        folder = Path(name)
        record(folder, folder / "perf.data", args.mib * MIB, args.threads)
        folded = fold(folder / "perf.data")
    title = f"A middle relay: {args.threads} thread(s), one circuit"
    draw = [tool("inferno-flamegraph"), "--minwidth", "0.4", "--title", title]
    # Removes the comments of inferno's script.
    args.into.write_text(re.sub(r"(?m)^\s*//.*\n", "", piped(draw, folded)))
    print(table(["part", "% of samples"], shares(folded)))
    return 0


def record(folder: Path, into: Path, length: int, threads: int) -> None:
    """Samples the middle relay while it carries `length` bytes."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TorNetwork(folder, relays=2, exits=1))
        ours = three_relays(stack, network, folder, "--threads", str(threads))
        server = stack.enter_context(FileServer())
        network.start()
        client = stack.enter_context(OurClient(network, folder / "client", *pins(ours)))
        client.wait_ready()
        download(server, client.proxy, folder / "got", 20 * MIB)
        command = [tool("perf"), "record", "-q", "-e", "cpu-clock", "-F", "2999"]
        command += ["--call-graph", "dwarf,32768", "-o", str(into)]
        with subprocess.Popen([*command, "-p", str(ours[1].process.pid)]) as perf:
            for _ in range(max(1, length // (200 * MIB))):
                download(server, client.proxy, folder / "got", min(length, 200 * MIB))
            perf.terminate()


def fold(data: Path) -> str:
    """Returns one line for each stack: its functions, and its number of samples."""
    script = [tool("perf"), "script", "--no-inline", "-i", str(data)]
    told = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    return piped([tool("inferno-collapse-perf"), "--kernel"], told)


def shares(folded: str) -> list[list[str]]:
    """Returns the percentage of samples by kind, the largest first."""
    found: Counter[str] = Counter()
    for line in folded.splitlines():
        frames, _, count = line.rpartition(" ")
        found[kind(frames.split(";"))] += int(count)
    whole = sum(found.values())
    return [[name, f"{count / whole * 100:.1f}"] for name, count in found.most_common()]


def kind(frames: list[str]) -> str:
    """Returns the kind (a key of `KINDS`) that a stack of functions counts for."""
    for frame in reversed(frames):
        for name, pattern in KINDS.items():
            if re.search(pattern, frame):
                return name
    return "all else"


def piped(command: list[str], text: str) -> str:
    """Returns the output of `command` for the input `text`."""
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
