"""What a middle relay's CPU costs by QUIC links and by unordered ones, beside TLS links.

Our client downloads by a pinned path of relays of ours with one thread each. Guard and exit have
`--link quic,utls`; the middle relay is one that has TLS links alone, one with `--link quic`, and
one with `--link utls` with each tap and without any: that one was started without the capabilities
for a tap, and shows what records of one size and cells with numbers cost by themselves. No line
loses anything. CPU is time of the middle relay's threads during a download, divided by the bytes of
the file. Runs are interleaved; what counts is the median of the ratios within a round. A line has
Ethernet's MTU: loopback's own would give TCP segments of 64 KiB where QUIC has datagrams of 1,452
bytes on any line.
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
from harness.tools import anabranch, wait_for
from harness.tornet import TorNetwork
from harness.torours import OurAuthority, OurClient, OurRelay
from harness.webfiles import FileServer
from tor import cpu_ms

TLS, QUIC = "by TLS", "by QUIC"
NO_TAP, FILTER, PACKETS = (
    "unordered, no tap",
    "unordered, socket filter",
    "unordered, packets",
)
# What each middle relay is told, and the capabilities that it is started without: a tap is a socket
# filter where BPF is granted, and else takes packets, if that is.
MIDDLES = {
    TLS: ("tls", ""),
    QUIC: ("quic", ""),
    NO_TAP: ("utls", "bpf,sys_admin,net_raw"),
    PACKETS: ("utls", "bpf,sys_admin"),
    FILTER: ("utls", ""),
}
ENDS = ("guard", "exit")
# CPU as a share of that of another in the same round: by what is given; None: it has no target.
TARGETS = {
    (QUIC, TLS): 1.6,
    (NO_TAP, TLS): None,
    (FILTER, NO_TAP): 1.02,
    (PACKETS, NO_TAP): None,
}
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
    rows = [
        [kind, median_and_spread([one[kind] for one in found], 2)] for kind in MIDDLES
    ]
    print(table(["middle relay", "CPU ms/MB"], rows))
    met = [verdict(found, which, of, target) for (which, of), target in TARGETS.items()]
    return int(args.strict and not all(met))


def verdict(
    found: list[dict[str, float]], which: str, of: str, target: float | None
) -> bool:
    """Prints what one costs beside another; whether it met its target, if it has one."""
    ratios = rounds.ratios(found, which, of, float)
    if target is None:
        print(
            f"{which}: {median_and_spread(ratios, 2)} of {of} (median of {len(ratios)})"
        )
        return True
    return rounds.verdict(which, ratios, of, target)


def measure(folder: Path, runs: int, length: int) -> list[dict[str, float]]:
    """CPU ms/MB of each middle relay in each round."""
    with contextlib.ExitStack() as stack:
        authority = stack.enter_context(
            OurAuthority(
                folder / "authority", "--expect", str(len(ENDS) + len(MIDDLES))
            )
        )
        network = stack.enter_context(
            TorNetwork(
                folder, authorities=0, relays=0, exits=0, others=[authority.line]
            )
        )
        relays = {
            name: stack.enter_context(relay(network, number, name))
            for number, name in enumerate((*ENDS, *MIDDLES))
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
        wait_for("QUIC links", partial(has_links, relays[QUIC]), 60)
        for client in clients.values():
            at_once(server, client.proxy, folder, MIB, SPARE)
        cases = {
            middle: partial(
                one_run, server, clients[middle], relays[middle], folder, length
            )
            for middle in MIDDLES
        }
        found = rounds.interleaved(runs, cases)
        for name in MIDDLES:
            series = relays[name].scrape()
            assert (series.get("anabranch_relay_quic_circuits", 0) > 0) == (
                name == QUIC
            ), name
        for name, kind in (
            (NO_TAP, "none"),
            (FILTER, "socket filter"),
            (PACKETS, "packets"),
        ):
            series = relays[name].scrape()
            assert series[f'anabranch_relay_tap{{kind="{kind}"}}'] == 1, series
            assert series["anabranch_relay_unordered_links"] > 1, series
        return found


def relay(network: TorNetwork, number: int, name: str) -> OurRelay:
    """A relay of ours with one thread."""
    folder = network.folder / f"r{number}"
    kind, without = MIDDLES.get(name, ("quic,utls", ""))
    options = ["--exit", "accept *:*"] if name == "exit" else []
    options += ["--threads", "1", "--link", kind]
    return OurRelay(
        network, folder, f"r{number}", *options, program=limited(folder, without)
    )


def limited(folder: Path, without: str) -> str:
    """A program that is ours without these capabilities; empty if it may have all."""
    if not without:
        return ""
    folder.mkdir()
    program = folder / "limited"
    bounds = ",".join(f"-{each}" for each in without.split(","))
    program.write_text(
        f'#!/bin/sh\nexec setpriv --bounding-set={bounds} --inh-caps={bounds} {anabranch()} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


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
