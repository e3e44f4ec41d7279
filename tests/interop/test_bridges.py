"""Bridges with one end ours and the other C tor, over plain links and pluggable transports."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Results
from harness.disk import contents, fill, small_disk
from harness.seeded import MIB
from harness.tools import Background, anabranch, tool, wait_for
from harness.tornet import Node, TorNetwork, free_ports
from harness.torours import OurClient, OurRelay
from harness.transports import WebFront
from harness.webfiles import FileServer, fetch, interrupted

pytestmark = [pytest.mark.pt, pytest.mark.timeout(600)]

LENGTHS = (1, 514, 100_000, 3 * MIB)
LONG = 50 * MIB
#: Transports by which our client reaches a bridge, and the number of programs that each starts.
BY = {
    "plain": 0,
    "obfs4": 1,
    "webtunnel": 1,
    "anabranch": 0,
    "anabranch's program": 1,
}
#: The warning that our client logs, because a set has no second bridge.
ONE_LEG = "each stream gets 1 of 2 circuits"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebFront]:
    """Yields nginx in front of two webtunnel servers: the stock bridge's and ours."""
    with WebFront(tmp_path_factory.mktemp("front") / "nginx", 2) as front:
        yield front


@pytest.fixture(scope="module")
def stock(
    tmp_path_factory: pytest.TempPathFactory, front: WebFront
) -> Iterator[tuple[TorNetwork, Node]]:
    """Yields a network with a stock bridge that accepts plain links, obfs4, webtunnel and our
    transport.
    """
    ports = free_ports(2)
    with TorNetwork(tmp_path_factory.mktemp("tor")) as network:
        network.start()
        bridge = network.bridge(
            "bridge0",
            f"ServerTransportPlugin obfs4 exec {tool('obfs4proxy')}",
            f"ServerTransportListenAddr obfs4 127.0.0.1:{ports[0]}",
            f"ServerTransportPlugin anabranch exec {anabranch()} pt server",
            f"ServerTransportListenAddr anabranch 127.0.0.1:{ports[1]}",
            f"ServerTransportPlugin webtunnel exec {tool('webtunnel-server')}",
            f"ServerTransportListenAddr webtunnel 127.0.0.1:{front.ports[0]}",
            f"ServerTransportOptions webtunnel url={front.url(0)}",
        )
        yield network, bridge


def lines(bridge: Node) -> dict[str, str]:
    """Returns the bridge lines by transport, from the files that the transports write."""
    found = {"plain": f"127.0.0.1:{bridge.orport} {bridge.fingerprint}"}
    files = {"obfs4": "obfs4_bridgeline.txt", "anabranch": "anabranch-bridgeline.txt"}
    for transport, file in files.items():
        text = (bridge.folder / "pt_state" / file).read_text()
        (line,) = [line for line in text.splitlines() if line.startswith("Bridge ")]
        words = line.replace("<IP ADDRESS>:<PORT>", "ADDRESS").split()
        words[2:4] = [f"127.0.0.1:{_listens(bridge, transport)}", bridge.fingerprint]
        found[transport] = " ".join(words[1:])
    return found


def lengths(by: str) -> tuple[int, ...]:
    """Returns the lengths of the files to fetch; over our transport also a long file."""
    return (*LENGTHS, LONG) if by == "anabranch" else LENGTHS


def _listens(bridge: Node, transport: str) -> str:
    word = f"ServerTransportListenAddr {transport} 127.0.0.1:"
    return (bridge.folder / "torrc").read_text().partition(word)[2].split()[0]


def options(bridge: Node, by: str, front: WebFront | None = None) -> list[str]:
    """Returns our client's options for the bridge."""
    if by == "webtunnel":
        assert front is not None, "it is before the bridge"
        # The operator writes this line. WebTunnel uses the URL, and the address is a placeholder.
        line = f"webtunnel 192.0.2.3:1 {bridge.fingerprint} url={front.url(0)} ver=0.0.2"
        return ["--bridge", line, "--pt", f"webtunnel exec {front.client}"]
    transport, _, program = by.partition("'")
    told = ["--bridge", lines(bridge)[transport]]
    if transport == "obfs4":
        told += ["--pt", f"obfs4 exec {tool('obfs4proxy')}"]
    if program:
        told += ["--pt", f"anabranch exec {anabranch()} pt client"]
    return told


@pytest.mark.parametrize("by", BY)
def test_our_client_enters_by_a_stock_bridge_and_asks_nobody_else(
    stock: tuple[TorNetwork, Node], front: WebFront, tmp_path: Path, results: Results, by: str
) -> None:
    """Files of any length arrive; all circuits and directory documents use the bridge."""
    network, bridge = stock
    told = options(bridge, by, front)
    with OurClient(network, tmp_path, *told) as client, FileServer() as server:
        client.wait_ready()
        assert len(_children(client.process.pid)) == BY[by]
        for length in lengths(by):
            got = fetch(server.url(length), client.proxy, tmp_path / "got", 300.0)
            assert not got.fault(length), f"{length} bytes: {got.fault(length)}"
            results.add("our client by a stock bridge", by=by, bytes=length,
                        seconds=f"{got.seconds:.2f}")  # fmt: skip
        assert {path[0] for path in client.paths()} == {bridge.name}
        asked = client.events("directory")
        assert {event["what"] for event in asked} >= {"bridge's descriptor", "consensus"}
        assert all(event["by_circuit"] for event in asked), asked
        told_once = [event for event in client.events("trouble") if ONE_LEG in str(event["what"])]
        assert len(told_once) == 1, client.events("trouble")
    assert [line for line in network.complaints() if "[notice]" not in line] == []


def test_a_transport_that_is_killed_is_started_again_and_streams_go_on(
    stock: tuple[TorNetwork, Node], tmp_path: Path
) -> None:
    """The running download is cut off; the next one arrives through a new process."""
    network, bridge = stock
    told = options(bridge, "obfs4")
    with OurClient(network, tmp_path, *told) as client, FileServer() as server:
        client.wait_ready()

        def kill() -> int:
            (victim,) = _children(client.process.pid)
            os.kill(victim, signal.SIGKILL)
            return victim

        victim, status, _ = interrupted(server, client.proxy, tmp_path / "cut", kill)
        assert status != 0, "it went by the process that is gone"
        got = fetch(server.url(MIB), client.proxy, tmp_path / "got", 120.0)
        assert not got.fault(MIB), got.fault(MIB)
        (heir,) = _children(client.process.pid)
        assert heir != victim
    wait_for("the end of the transport", lambda: not Path(f"/proc/{heir}").exists(), 10.0)


def test_a_bridge_that_is_away_is_left_for_the_next(
    stock: tuple[TorNetwork, Node], tmp_path: Path
) -> None:
    """Nothing listens at the first line's port, and another program at the second's: the client
    uses the third.
    """
    network, bridge = stock
    (nobody,) = free_ports(1)
    stranger = network.of("relay")[0]
    told = ["--bridge", f"127.0.0.1:{nobody} {'A' * 40}"]
    told += ["--bridge", f"127.0.0.1:{stranger.orport} {'B' * 40}"]
    told += options(bridge, "plain")
    with OurClient(network, tmp_path, *told) as client, FileServer() as server:
        client.wait_ready()
        got = fetch(server.url(MIB), client.proxy, tmp_path / "got", 120.0)
        assert not got.fault(MIB), got.fault(MIB)
        assert {path[0] for path in client.paths()} == {bridge.name}


def _children(pid: int) -> list[int]:
    """Returns the child processes of a process."""
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


@pytest.fixture(scope="module")
def ours(
    tmp_path_factory: pytest.TempPathFactory, front: WebFront
) -> Iterator[tuple[TorNetwork, OurRelay]]:
    """Yields a stock network with our bridge: plain port, built-in transport, two transport
    programs.
    """
    folder, ports = tmp_path_factory.mktemp("tor"), free_ports(2)
    with TorNetwork(folder) as network:
        network.start()
        network.wait_for_all()
        told = ["--bridge", "--pt", f"anabranch 127.0.0.1:{ports[0]} profile=nosteg-short"]
        told += ["--pt", f"obfs4 127.0.0.1:{ports[1]} exec {tool('obfs4proxy')}", "--threads", "2"]
        web = f"webtunnel 127.0.0.1:{front.ports[1]} url={front.url(1)}"
        told += ["--pt", f"{web} exec {tool('webtunnel-server')}"]
        with OurRelay(network, folder / "ours", "ourbridge", *told) as bridge:
            wait_for_lines(bridge, 4)
            yield network, bridge


def wait_for_lines(bridge: OurRelay, count: int) -> None:
    """Waits until our bridge has written ``count`` bridge lines."""
    lines = bridge.data / "bridgelines.txt"

    def there() -> bool:
        return lines.exists() and len(lines.read_text().splitlines()) == count

    bridge.process.wait_until("its lines", there, 30.0)


def line_of(bridge: OurRelay, transport: str) -> str:
    """Returns our bridge's line for a transport."""
    wanted = "127.0.0.1" if transport == "plain" else transport
    all_lines = (bridge.data / "bridgelines.txt").read_text().splitlines()
    (line,) = [line for line in all_lines if line.startswith(wanted)]
    return line


@pytest.mark.parametrize("transport", ["plain", "anabranch", "obfs4", "webtunnel"])
def test_a_stock_client_enters_by_our_bridge(
    ours: tuple[TorNetwork, OurRelay],
    front: WebFront,
    tmp_path: Path,
    results: Results,
    transport: str,
) -> None:
    """The stock client uses only the bridge, and files of any length arrive."""
    network, bridge = ours
    programs = {
        "plain": [],
        "anabranch": [f"ClientTransportPlugin anabranch exec {anabranch()} pt client"],
        "obfs4": [f"ClientTransportPlugin obfs4 exec {tool('obfs4proxy')}"],
        "webtunnel": [f"ClientTransportPlugin webtunnel exec {front.client}"],
    }
    told = ["UseBridges 1", f"Bridge {line_of(bridge, transport)}", "ConfluxEnabled 0"]
    node = network.client(f"by{transport}", *told, *programs[transport])
    with FileServer() as server:
        for length in lengths(transport):
            got = fetch(server.url(length), node.proxy, tmp_path / "got", 300.0)
            assert not got.fault(length), f"{length} bytes: {got.fault(length)}"
            results.add("stock client by our bridge", transport=transport, bytes=length,
                        seconds=f"{got.seconds:.2f}")  # fmt: skip
    with node.control() as control:
        assert {path[0] for path in control.paths()} == {bridge.fingerprint}
    assert "new bridge descriptor 'ourbridge'" in "\n".join(node.log())
    node.close()
    assert [line for line in network.complaints() if "[notice]" not in line] == []


def test_our_client_enters_by_our_bridge_of_which_no_authority_hears(
    ours: tuple[TorNetwork, OurRelay], tmp_path: Path
) -> None:
    """The transport is built into both ends; no consensus or authority's log names the bridge."""
    network, bridge = ours
    told = ["--bridge", line_of(bridge, "anabranch")]
    with OurClient(network, tmp_path, *told) as client, FileServer() as server:
        client.wait_ready()
        got = fetch(server.url(MIB), client.proxy, tmp_path / "got", 120.0)
        assert not got.fault(MIB), got.fault(MIB)
        assert {path[0] for path in client.paths()} == {"ourbridge"}
        assert _children(client.process.pid) == []
        consensus = (tmp_path / "state/cached-microdesc-consensus").read_text()
    assert "ourbridge" not in consensus
    for authority in network.of("auth"):
        assert "ourbridge" not in "\n".join(authority.log("details"))


def test_our_own_program_is_managed_at_both_ends_as_a_strangers(
    ours: tuple[TorNetwork, OurRelay], tmp_path: Path
) -> None:
    """Our bridge and client each start the program ``anabranch pt``, which exits with them."""
    network, _ = ours
    (port,) = free_ports(1)
    program = f"exec {anabranch()} pt"
    told = ["--bridge", "--pt", f"anabranch 127.0.0.1:{port} profile=nosteg-short {program} server"]
    with OurRelay(network, tmp_path / "bridge", "managing", *told) as bridge:
        wait_for_lines(bridge, 2)
        own = ["--bridge", line_of(bridge, "anabranch"), "--pt", f"anabranch {program} client"]
        with OurClient(network, tmp_path / "client", *own) as client, FileServer() as server:
            client.wait_ready()
            started = [*_children(bridge.process.pid), *_children(client.process.pid)]
            assert len(started) == 2
            got = fetch(server.url(MIB), client.proxy, tmp_path / "got", 120.0)
            assert not got.fault(MIB), got.fault(MIB)
            assert {path[0] for path in client.paths()} == {"managing"}
    gone = lambda: not any(Path(f"/proc/{pid}").exists() for pid in started)  # noqa: E731
    wait_for("the end of both programs", gone, 10.0)


def test_a_bridge_on_a_full_disk_tells_its_line_and_leaves_no_half_of_it(
    ours: tuple[TorNetwork, OurRelay], tmp_path: Path
) -> None:
    """The bridge reports that the line was not saved; clients can use the line all the same."""
    network, _ = ours
    with (
        small_disk(tmp_path / "disk", 4096) as disk,
        OurRelay(network, disk / "relay", "fullbridge", "--bridge") as bridge,
    ):
        file = bridge.data / "bridgelines.txt"
        bridge.process.wait_until("its line", file.exists, 30.0)
        (line,) = file.read_text().splitlines()
        bridge.close()
        file.unlink()
        fill(disk)
        bridge.start()

        def notes() -> list[str]:
            return [str(event["what"]) for event in bridge.events("note")]

        told = f"bridge line: {line}"
        bridge.process.wait_until("its line", lambda: told in notes(), 30.0)
        (why,) = [note for note in notes() if file.name in note]
        assert "No space left" in why
        assert not file.exists()
        assert [half for half in bridge.data.iterdir() if half.suffix == ".new"] == []
        with OurClient(network, tmp_path / "client", "--bridge", line) as client:
            client.wait_ready()
            with FileServer() as server:
                got = fetch(server.url(MIB), client.proxy, tmp_path / "got", 120.0)
                assert not got.fault(MIB), got.fault(MIB)
            assert {path[0] for path in client.paths()} == {"fullbridge"}


def test_a_bridge_on_a_full_disk_ends_where_its_transports_would_be_lost(tmp_path: Path) -> None:
    """Without a cookie no transport works: the bridge exits with one line of error, and leaves no
    partial file.
    """
    authorities = tmp_path / "authorities"
    nobody = f"127.0.0.1:9 {'B' * 40}"
    authorities.write_text(f"DirAuthority x orport=1 no-v2 v3ident={'A' * 40} {nobody}\n")
    orport, port = free_ports(2)
    with small_disk(tmp_path / "disk", 1024) as disk:
        command = [anabranch(), "relay", "--json", "--nickname", "fullbridge", "--bridge"]
        command += ["--address", "127.0.0.1", "--listen", f"127.0.0.1:{orport}"]
        command += ["--data", str(disk), "--authorities", str(authorities), "--allow-private"]
        command += ["--grace", "0", "--pt", f"anabranch 127.0.0.1:{port}"]
        with Background(command) as first:
            first.wait_until("its lines", (disk / "bridgelines.txt").exists, 30.0)
        before = contents(disk)
        fill(disk)
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert said.returncode == 1
        assert len(said.stderr.splitlines()) == 1
        assert "No space left" in said.stderr
        assert contents(disk) == before
