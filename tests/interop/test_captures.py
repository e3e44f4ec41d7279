"""The splitter's own captures and counts, compared with tcpdump's on the same paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet
import pytest

from conftest import MakeNetwork
from harness.capture import Packet, Tcpdump, read_pcapng
from harness.net import SERVER, Network, links
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.transfer import site
from harness.wireguard import PORT, Tunnel

pytestmark = pytest.mark.loops

LENGTH = 5 * MIB
PATHS = 3
# Signed sizes of IP packets (positive to the server), with the number of packets of each size.
Sizes = Counter[int]


def test_trace_and_pcapng_hold_what_tcpdump_saw_on_every_path(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """Each path has the same number of packets of each size and direction, and the same counts."""
    network = make_network(links(PATHS))
    seen = _watched_download(network, tmp_path)
    trace = _sizes_in_trace(tmp_path / "trace.parquet")
    for number in range(PATHS):
        by_tcpdump = _sizes(seen[number])
        assert by_tcpdump.total() > 1000
        written = read_pcapng(network.client, tmp_path / "pcap" / f"p{number}.pcapng")
        assert _sizes(written) == by_tcpdump
        assert trace[number] == by_tcpdump


def _watched_download(network: Network, folder: Path) -> dict[int, list[Packet]]:
    """Runs a download in a tunnel with all captures on; returns tcpdump's packets by path."""
    (folder / "pcap").mkdir()
    files = ["--trace", str(folder / "trace.parquet"), "--pcap", str(folder / "pcap")]
    with ExitStack() as stack:
        captures = [
            stack.enter_context(Tcpdump(network.client, f"p{i}", folder / f"tcpdump{i}.pcap"))
            for i in range(PATHS)
        ]
        to = f"{SERVER}:{PORT}"
        splitter = stack.enter_context(
            Splitter(network.client, to, interfaces(PATHS), every="50ms", options=files)
        )
        with Tunnel(network.server, network.client, LISTEN) as tunnel:
            tunnel.ping()
            with tunnel.server.web(site(folder / "site", LENGTH)):
                assert not tunnel.download(LENGTH).fault(LENGTH)
        splitter.stop()
        seen = {i: capture.stop() for i, capture in enumerate(captures)}
        for i, packets in seen.items():
            counts = splitter.counts()[f"p{i}"]
            assert sum(p.is_to_port(PORT) for p in packets) == counts.up_packets
            assert sum(not p.is_to_port(PORT) for p in packets) == counts.down_packets
        return seen


def _sizes(packets: Iterable[Packet]) -> Sizes:
    return Counter(p.size if p.is_to_port(PORT) else -p.size for p in packets)


def _sizes_in_trace(file: Path) -> dict[int, Sizes]:
    """Returns the sizes in a trace, by number of the path."""
    table = pyarrow.parquet.ParquetFile(file).read(columns=["path", "size"])
    columns = table.to_pydict()
    sizes: dict[int, Sizes] = {number: Counter() for number in range(PATHS)}
    for path, size in zip(columns["path"], columns["size"], strict=True):
        sizes[path][size] += 1
    return sizes
