"""What a middle relay's CPU costs by QUIC links, beside TLS links.

Our client downloads by a pinned path of relays of ours with one thread each. Guard and exit have
`--link quic`; the middle relay is now one that has it too, and now one that has TLS links alone.
CPU is time of the middle relay's threads during a download, divided by the bytes of the file. Runs
are interleaved; what counts is the median of the ratios within a round. A line has Ethernet's MTU:
loopback's own would give TCP segments of 64 KiB where QUIC has datagrams of 1,452 bytes on any
line.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

import line
import rounds
from downloads import at_once, download
from harness.report import median_and_spread, table
from harness.seeded import MIB
from harness.tools import wait_for
from harness.tornet import TorNetwork
from harness.torours import OurAuthority, OurClient, OurRelay
from harness.webfiles import FileServer
from tor import cpu_ms

# CPU by QUIC links, as a share of that by TLS links.
TARGET = 1.6
KINDS = {"guard": "quic", "exit": "quic", "by TLS": "tls", "by QUIC": "quic"}
MIDDLES = ("by TLS", "by QUIC")
# More circuits than a client builds ahead, which may be older than a QUIC link.
SPARE = 6


def main() -> int:
    """Prints a line for each download and a table; 1 if the target was missed and is strict."""
    parser = rounds.options(__doc__)
    line.add_option(parser)
    args = parser.parse_args()
    line.enter(args.mtu)
    with rounds.scratch() as folder:
        found = measure(folder, args.runs, rounds.length(args))
    rows = [[kind, median_and_spread([one[kind] for one in found], 2)] for kind in MIDDLES]
    print(table(["middle relay", "CPU ms/MB"], rows))
    ratios = rounds.ratios(found, "by QUIC", "by TLS", float)
    met = rounds.verdict("QUIC links", ratios, "TLS links' CPU", TARGET)
    return int(args.strict and not met)


def measure(folder: Path, runs: int, length: int) -> list[dict[str, float]]:
    """CPU ms/MB of each middle relay in each round."""
    with contextlib.ExitStack() as stack:
        authority = stack.enter_context(
            OurAuthority(folder / "authority", "--expect", str(len(KINDS)))
        )
        network = stack.enter_context(
            TorNetwork(folder, authorities=0, relays=0, exits=0, others=[authority.line])
        )
        relays = {
            name: stack.enter_context(relay(network, f"r{number}", name, kind))
            for number, (name, kind) in enumerate(KINDS.items())
        }
        network.others = {one.name: one.fingerprint for one in relays.values()}
        network.other_exits = [relays["exit"].name]
        network.start()
        server = stack.enter_context(FileServer())
        clients: dict[str, OurClient] = {}
        for middle in MIDDLES:
            path = [relays[hop].fingerprint for hop in ("guard", middle, "exit")]
            pins = [
                word
                for end in zip(("--entry", "--middle", "--exit"), path, strict=True)
                for word in end
            ]
            clients[middle] = stack.enter_context(
                OurClient(network, folder / f"c{len(clients)}", "--legs", "1", *pins)
            )
            clients[middle].wait_ready()
        wait_for("QUIC links", partial(has_links, relays["by QUIC"]), 60)
        for client in clients.values():
            at_once(server, client.proxy, folder, MIB, SPARE)
        cases = {
            middle: partial(one_run, server, clients[middle], relays[middle], folder, length)
            for middle in MIDDLES
        }
        found = rounds.interleaved(runs, cases)
        assert relays["by QUIC"].scrape()["anabranch_relay_quic_circuits"] > 0
        assert "anabranch_relay_quic_circuits" not in relays["by TLS"].scrape()
        return found


def relay(network: TorNetwork, name: str, place: str, kind: str) -> OurRelay:
    """A relay of ours with one thread."""
    options = ["--exit", "accept *:*"] if place == "exit" else []
    return OurRelay(
        network, network.folder / name, name, "--threads", "1", "--link", kind, *options
    )


def has_links(relay: OurRelay) -> bool:
    """Whether it has QUIC links to both of its neighbours."""
    return relay.scrape()["anabranch_relay_quic_links"] > 1


def one_run(
    server: FileServer, client: OurClient, middle: OurRelay, folder: Path, length: int
) -> float:
    """CPU ms/MB of a middle relay during a download by it."""
    before = cpu_ms(middle.process.pid)
    download(server, client.proxy, folder / "got", length, "later")
    found = (cpu_ms(middle.process.pid) - before) / length * 1e6
    print(f"  {middle.name}: {found:.2f} ms/MB", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
