"""CPU cost of a middle relay by the kind of its links, and with lossy circuits.

QUIC links and unordered links are compared with TLS links, lossy circuits with QUIC links.

Our client downloads over a pinned path of our relays, with one thread each. Guard and exit have
`--link quic,utls`. The middle relay has only TLS links, or `--link quic`, or `--link utls` with or
without a tap. A tap reads the segments that arrive out of order; each kind of tap is measured. The
relay without a tap is started without the capabilities for one; it shows the cost of numbered
cells in records of one size. A tap that captures packets receives all packets of the machine,
which costs the senders CPU. Its relay is therefore measured later, in a separate network with a
relay without a tap. For lossy circuits the client uses `--design udp-or`, the middle relay
forwards datagrams over its QUIC links, and guard and exit also have `--udp-or`. No packets are
lost.

CPU is the run time of the middle relay's threads during a download, divided by the bytes of the
file. Runs are interleaved; the result is the median of the ratios within a round. The MTU is
Ethernet's: with loopback's own, TCP would have segments of 64 KiB, but QUIC datagrams of 1,452
bytes.
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
from harness.tools import anabranch, tool, wait_for
from harness.tornet import TorNetwork
from harness.torours import OurAuthority, OurClient, OurRelay
from harness.webfiles import FileServer
from tor import cpu_ms

TLS, QUIC, LOSSY = "by TLS", "by QUIC", "lossy cells"
NO_TAP, FILTER, PACKETS = "unordered, no tap", "unordered, socket filter", "unordered, packets"
# Option `--link` of each middle relay, and the capabilities that it is started without. With the
# capability for BPF, a tap is a socket filter; otherwise, with the capability for it, it captures
# packets.
KINDS = {
    TLS: ("tls", ""),
    QUIC: ("quic", ""),
    LOSSY: ("quic", ""),
    NO_TAP: ("utls", "bpf,sys_admin,net_raw"),
    FILTER: ("utls", ""),
    PACKETS: ("utls", "bpf,sys_admin"),
}
TAPS = {NO_TAP: "none", FILTER: "socket filter", PACKETS: "packets"}
ENDS = ("guard", "exit")
# Middle relays that are measured together; and pairs (one, other) whose CPU is compared within a
# round, with a target or None.
PASSES: dict[tuple[str, ...], dict[tuple[str, str], float | None]] = {
    (TLS, QUIC, NO_TAP, FILTER): {(QUIC, TLS): 1.6, (NO_TAP, TLS): None, (FILTER, NO_TAP): 1.02},
    (NO_TAP, PACKETS): {(PACKETS, NO_TAP): None},
    (QUIC, LOSSY): {(LOSSY, QUIC): 1.3},
}
# Circuits to open before the measurement. They are more than a client builds in advance, because
# circuits built in advance may be older than the relay's QUIC links.
SPARE = 6


def main() -> int:
    """Prints a line for each download and a table; returns 1 if a target was missed
    with --strict.
    """
    parser = rounds.options(__doc__)
    line.add_option(parser)
    args = parser.parse_args()
    line.enter(args.mtu)
    met = []
    for middles, targets in PASSES.items():
        with rounds.scratch() as folder:
            found = measure(folder, middles, args.runs, rounds.length(args))
        rows = [[name, median_and_spread([one[name] for one in found], 2)] for name in middles]
        print(table(["middle relay", "CPU ms/MB"], rows))
        for (which, of), target in targets.items():
            ratios = rounds.ratios(found, which, of, float)
            met.append(rounds.verdict(which, ratios, f"the CPU {of}", target))
    return int(args.strict and not all(met))


def measure(
    folder: Path, middles: tuple[str, ...], runs: int, length: int
) -> list[dict[str, float]]:
    """Returns, for each round, the CPU time of each middle relay in ms per MB."""
    with contextlib.ExitStack() as stack:
        authority = stack.enter_context(
            OurAuthority(folder / "authority", "--expect", str(len(ENDS) + len(middles)))
        )
        network = stack.enter_context(
            TorNetwork(folder, authorities=0, relays=0, exits=0, others=[authority.line])
        )
        relays = {
            name: stack.enter_context(relay(network, number, name, middles))
            for number, name in enumerate((*ENDS, *middles))
        }
        network.others = {one.name: one.fingerprint for one in relays.values()}
        network.other_exits = [relays["exit"].name]
        network.start()
        server = stack.enter_context(FileServer())
        clients: dict[str, OurClient] = {}
        for middle in middles:
            path = [relays[hop].fingerprint for hop in ("guard", middle, "exit")]
            pins = [
                word
                for end in zip(("--entry", "--middle", "--exit"), path, strict=True)
                for word in end
            ]
            design = ["--design", "udp-or"] if middle == LOSSY else ["--legs", "1"]
            clients[middle] = stack.enter_context(
                OurClient(network, folder / f"c{len(clients)}", *design, *pins)
            )
            clients[middle].wait_ready()
        for name in middles:
            wait_for(f"{name}: its links", partial(has_links, relays[name], name), 60)
        for client in clients.values():
            at_once(server, client.proxy, folder, MIB, SPARE)
        cases = {
            middle: partial(one_run, server, clients[middle], relays[middle], folder, length)
            for middle in middles
        }
        found = rounds.interleaved(runs, cases)
        for name in middles:
            series = relays[name].scrape()
            circuits = series.get("anabranch_relay_quic_circuits", 0)
            assert (circuits > 0) == (name in (QUIC, LOSSY)), name
            sent = series.get('anabranch_relay_lossy_cells_total{direction="sent"}', 0)
            assert (sent > 0) == (name == LOSSY), name
        return found


def relay(network: TorNetwork, number: int, name: str, middles: tuple[str, ...]) -> OurRelay:
    """Returns one of our relays, with one thread, for a network with these middle relays."""
    folder = network.folder / f"r{number}"
    kind, without = KINDS.get(name, ("quic,utls", ""))
    options = ["--exit", "accept *:*"] if name == "exit" else []
    options += ["--threads", "1", "--link", kind]
    options += ["--udp-or"] if name == LOSSY or (LOSSY in middles and name in ENDS) else []
    return OurRelay(network, folder, f"r{number}", *options, program=limited(folder, without))


def limited(folder: Path, without: str) -> str:
    """Writes a script that runs our program without the capabilities `without`; returns its path.

    Returns an empty string if `without` is empty.
    """
    if not without:
        return ""
    folder.mkdir()
    program = folder / "limited"
    bounds = ",".join(f"-{each}" for each in without.split(","))
    run = f"{tool('setpriv')} --bounding-set={bounds} --inh-caps={bounds} {anabranch()}"
    program.write_text(f'#!/bin/sh\nexec {run} "$@"\n')
    program.chmod(0o755)
    return str(program)


def has_links(relay: OurRelay, name: str) -> bool:
    """Returns whether `relay` has links of its kind to both neighbours, and its tap if any."""
    series = relay.scrape()
    if name in TAPS:
        tapped = series.get(f'anabranch_relay_tap{{kind="{TAPS[name]}"}}', 0) == 1
        return tapped and series["anabranch_relay_unordered_links"] > 1
    return name != QUIC or series["anabranch_relay_quic_links"] > 1


def one_run(
    server: FileServer, client: OurClient, middle: OurRelay, folder: Path, length: int
) -> float:
    """Downloads through a middle relay; returns its CPU time in ms per MB."""
    before = cpu_ms(middle.process.pid)
    download(server, client.proxy, folder / "got", length, "later")
    found = (cpu_ms(middle.process.pid) - before) / length * 1e6
    print(f"  {middle.name}: {found:.2f} ms/MB", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
