"""The interface for any program (``--tun``): what is split, what is pinned, and what remains
afterwards.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path

import pyarrow.parquet
import pytest

from conftest import MakeNetwork
from harness import quic
from harness.capture import Tcpdump
from harness.fair import difference
from harness.faults import InterfaceDown
from harness.interface import (
    OURS,
    TUN,
    echo,
    interface,
    names,
    refused,
    tcp,
    tcp_beside,
    udp,
    unchanged,
)
from harness.net import SERVER, SERVER6, Counts, Host, Link, Network, links
from harness.seeded import MIB
from harness.splitter import interfaces
from harness.tools import anabranch, tool
from harness.transfer import site
from harness.wireguard import PORT, Tunnel

pytestmark = pytest.mark.interface

LENGTH = 25 * MIB
PATHS = interfaces(3)
NETNS = OURS


@pytest.fixture
def network(make_network: MakeNetwork) -> Network:
    """Returns a network of three uplinks, each with a default route."""
    return make_network(links(3), default_routes=True)


@pytest.fixture
def inside() -> Host:
    """Returns the namespace that ``--netns`` makes, as a host for programs."""
    return Host("inside", f"/run/netns/{NETNS}")


def test_an_unaltered_quic_client_is_split_over_all_paths(
    network: Network, web_root: Path, tmp_path: Path
) -> None:
    """Neither endpoint is configured for the splitter: the client connects to the server's
    address. Captures and counts show the split.
    """
    trace = tmp_path / "run.parquet"
    with (
        quic.serving("quic-go", network.server, web_root, port=443),
        interface(network.client, PATHS, "--trace", str(trace)) as splitter,
    ):
        before = network.stats()
        end = f"{SERVER}:443"
        transfer = quic.download(network.client, "quic-go", end, LENGTH, seconds=90)
        assert not transfer.fault(LENGTH)
        summary = splitter.stop()
        carried = difference(network.stats(), before)
        _assert_split(carried)
        for path in summary["paths"]:
            assert path["up_packets"] == carried[path["name"]].up_packets
            assert path["down_packets"] == carried[path["name"]].down_packets
        (opened,) = splitter.of("opened")
        assert opened["server"] == f"{SERVER}:443"
        assert not splitter.of("loop")
    rows = pyarrow.parquet.ParquetFile(trace).metadata.num_rows
    assert rows == sum(each.up_packets + each.down_packets for each in carried.values())


def test_an_unaltered_wireguard_tunnel_is_split_over_all_paths(
    network: Network, tmp_path: Path
) -> None:
    """wireguard-go is split with the server's own address as its endpoint."""
    with ExitStack() as stack:
        stack.enter_context(interface(network.client, PATHS))
        before = network.stats()
        endpoint = f"{SERVER}:{PORT}"
        tunnel = stack.enter_context(Tunnel(network.server, network.client, endpoint))
        tunnel.ping()
        stack.enter_context(tunnel.server.web(site(tmp_path, LENGTH)))
        assert not tunnel.download(LENGTH).fault(LENGTH)
        _assert_split(difference(network.stats(), before))


def test_wireguard_on_another_port_is_known_by_its_first_message(
    network: Network, tmp_path: Path
) -> None:
    """The port is not WireGuard's; the splitter recognises the handshake's format."""
    with ExitStack() as stack:
        splitter = stack.enter_context(interface(network.client, PATHS))
        endpoint = f"{SERVER}:{PORT + 7}"
        tunnel = Tunnel(network.server, network.client, endpoint, port=PORT + 7)
        stack.enter_context(tunnel)
        tunnel.ping()
        stack.enter_context(tunnel.server.web(site(tmp_path, MIB)))
        assert not tunnel.download(MIB).fault(MIB)
        *_, session = splitter.of("session")
        assert (session["protocol"], session["confidence"]) == ("wireguard", "certain")


def test_dtls_at_the_port_of_quic_keeps_to_one_path(network: Network, tmp_path: Path) -> None:
    """A DTLS server identifies a client by its address; split, no line would return."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    own = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=dtls"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    network.server.must(["openssl", "req", *own, *files])
    serve = ["gnutls-serv", "--udp", "--port", "443", "--echo"]
    serve += ["--x509keyfile", str(key), "--x509certfile", str(certificate)]
    call = f"{tool('gnutls-cli')} --udp --insecure --port 443 {SERVER}"
    type_ = "for i in $(seq 10); do echo line $i; sleep 0.15; done; sleep 1"
    with (
        network.server.start(serve) as server,
        interface(network.client, PATHS) as splitter,
    ):
        server.wait_bound(443)
        said = network.client.run(["sh", "-c", f"({type_}) | {call}"]).stdout
        assert [line for line in said.splitlines() if line.startswith("line ")] == [
            f"line {i}" for i in range(1, 11)
        ], said
        *_, session = splitter.of("session")
        assert (session["protocol"], session["confidence"]) == ("dtls", "certain")
        assert "address" in session["one_path"]
        used = [path for path in splitter.stop()["paths"] if path["up_packets"]]
        assert len(used) == 1, used


def test_each_tcp_connection_keeps_to_one_path(network: Network, tmp_path: Path) -> None:
    """Nine connections use three paths evenly, each with the address of its path throughout."""
    client = network.client
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        splitter = stack.enter_context(interface(client, PATHS))
        captures = _captures(stack, client, tmp_path / "own", "src 10.77.{}.2")
        strays = _captures(stack, client, tmp_path / "stray", "tcp and not host 10.77.{}.2")
        seen = [tcp(client, SERVER, length=MIB // 8) for _ in range(9)]
        for capture in captures + strays:
            capture.stop()
        pinned = [path["pinned"] for path in splitter.stop()["paths"]]
    assert [each["flows"] for each in pinned] == [3, 3, 3]
    assert all(each["up_bytes"] > 3 * MIB // 8 for each in pinned)
    assert all(each["down_packets"] >= 3 * 3 for each in pinned)
    assert all(count == MIB // 8 for _, count in seen)
    addresses = [address for address, _ in seen]
    assert {addresses.count(f"10.77.{i}.2") for i in range(3)} == {3}
    assert all(capture.captured >= 3 * 5 for capture in captures)
    assert all(capture.captured == 0 for capture in strays)


def _captures(stack: ExitStack, client: Host, folder: Path, which: str) -> list[Tcpdump]:
    """Starts a capture of each path; ``{}`` in the filter stands for the path's number."""
    folder.mkdir()
    return [
        stack.enter_context(Tcpdump(client, f"p{i}", folder / f"{i}.pcap", which.format(i)))
        for i in range(3)
    ]


def test_curl_over_tcp_arrives_whole(network: Network, tmp_path: Path) -> None:
    """A download has the right hash."""
    with ExitStack() as stack:
        folder = site(tmp_path / "site", MIB)
        command = ["python3", "-m", "http.server", "80", "--bind", SERVER]
        server = stack.enter_context(network.server.start([*command, "--directory", str(folder)]))
        server.wait_bound(80, "tcp")
        stack.enter_context(interface(network.client, PATHS))
        before = network.stats()
        url = f"http://{SERVER}/bytes/{MIB}"
        got = network.client.run(["curl", "-sSf", "-o", str(tmp_path / "got"), url])
        assert got.returncode == 0, got
        assert (tmp_path / "got").read_bytes() == (folder / "bytes" / str(MIB)).read_bytes()
        carried = difference(network.stats(), before)
        assert sorted(each.up_packets > 0 for each in carried.values()) == [False, False, True]


def test_names_are_asked_for_by_one_path_and_answered(network: Network, tmp_path: Path) -> None:
    """A DNS query and its response use the same path; each query may use another path."""
    client = network.client
    with ExitStack() as stack:
        stack.enter_context(names(network.server, SERVER))
        stack.enter_context(interface(client, PATHS))
        captures = _captures(stack, client, tmp_path / "names", "port 53")
        query = b"\x12\x34\1\0\0\1\0\0\0\0\0\0\7example\3org\0\0\1\0\1"
        for _ in range(6):
            words = ["python3", "-c", _ASK, SERVER, query.hex()]
            assert client.must(words).strip().endswith("c0000250")
        packets = [capture.stop() for capture in captures]
    for number, seen in enumerate(packets):
        assert len(seen) == 4
        ends = {end for packet in seen for end in (packet.source, packet.destination)}
        ours = {address for address, port in ends if port != 53}
        assert ours == {bytes([10, 77, number, 2])}


_ASK = """\
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(3)
    s.sendto(bytes.fromhex(sys.argv[2]), (sys.argv[1], 53))
    print(s.recv(512).hex())
"""


def test_ipv6_is_split_and_pinned_alike(network: Network) -> None:
    """One client uses IPv4 and IPv6 at the same time."""
    client = network.client
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER6))
        splitter = stack.enter_context(interface(client, PATHS, every="1p"))
        sizes = [100] * 12
        assert udp(client, SERVER6, sizes) == sizes
        seen = [tcp(client, SERVER6)[0] for _ in range(6)]
        assert {seen.count(address) for address in _addresses("fd77:{}::2")} == {2}
        counts = splitter.stop()["paths"]
        assert all(path["up_packets"] >= 4 and path["down_packets"] >= 4 for path in counts)


def test_a_path_without_ipv6_is_left_out_of_ipv6_sessions(network: Network) -> None:
    """p1 loses its IPv6 address and route: sessions to IPv6 servers use the two others."""
    client = network.client
    client.must(["ip", "-6", "route", "flush", "dev", "p1"])
    client.must(["ip", "-6", "address", "flush", "dev", "p1"])
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER6))
        splitter = stack.enter_context(interface(client, PATHS, every="1p"))
        sizes = [100] * 12
        assert udp(client, SERVER6, sizes) == sizes
        assert len({tcp(client, SERVER6)[0] for _ in range(6)}) == 2
        counts = {path["name"]: path for path in splitter.stop()["paths"]}
        assert counts["p1"]["up_packets"] == 0
        assert counts["p0"]["up_packets"] == counts["p2"]["up_packets"] == 6
        assert not splitter.of("path")


@pytest.mark.parametrize("address", ["fd77:1::2", "fd77:1::3"], ids=["same", "other"])
def test_a_live_ipv6_session_leaves_a_path_that_loses_ipv6_and_finds_it_again(
    network: Network, address: str
) -> None:
    """p1 loses only IPv6, and regains it with the same or with another address."""
    client = network.client
    shown = client.must(["ip", "-6", "route", "show", "default", "dev", "p1"])
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER6))
        splitter = stack.enter_context(interface(client, PATHS, every="1p"))
        beside = stack.enter_context(ThreadPoolExecutor(1))
        running = beside.submit(udp, client, SERVER6, [100] * 700)
        time.sleep(1)
        client.must(["ip", "-6", "route", "flush", "dev", "p1"])
        client.must(["ip", "-6", "address", "flush", "dev", "p1"])
        time.sleep(3)
        without = _carried_in(network, 1.5)
        client.must(["ip", "-6", "address", "add", f"{address}/64", "dev", "p1", "nodad"])
        client.must(["ip", "-6", "route", "add", *shown.split(), "dev", "p1"])
        time.sleep(3)
        again = _carried_in(network, 1.5)
        assert running.running(), "the session ended before: it proves nothing"
        # Packets in flight when the address was removed may be lost.
        assert running.result().count(100) >= 698
        assert len(splitter.of("opened")) == 1
    assert without["p1"].up_packets < 4
    assert without["p0"].up_packets > 8
    assert again["p1"].up_packets > 8
    assert again["p1"].down_packets > 8


def _carried_in(network: Network, seconds: float) -> dict[str, Counts]:
    before = network.stats()
    time.sleep(seconds)
    return difference(network.stats(), before)


def test_answers_pass_where_the_machine_checks_where_they_come_from(network: Network) -> None:
    """Responses pass with strict reverse-path filtering, as some distributions set it; no setting
    stays changed.
    """
    client = network.client
    client.must(["sh", "-c", "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 > $f; done"])
    with unchanged(client), echo(network.server, SERVER):
        assert tcp(client, SERVER)[0] == "10.77.0.2"
        with interface(client, PATHS, every="1p"):
            assert udp(client, SERVER, [100] * 6) == [100] * 6
            assert len({tcp(client, SERVER)[0] for _ in range(3)}) == 3
        with interface(client, PATHS, "--netns", NETNS):
            inside = Host("inside", f"/run/netns/{NETNS}")
            assert udp(inside, SERVER, [100] * 6) == [100] * 6
            assert len({tcp(inside, SERVER)[0] for _ in range(3)}) == 3


def test_a_connection_that_began_before_stays_on_its_path(network: Network) -> None:
    """Existing connections, such as logins, survive the start of a splitter."""
    client = network.client
    with (
        echo(network.server, SERVER),
        client.start([sys.executable, "-c", _LONG, SERVER]) as long,
    ):
        long.wait_until("its first answer", lambda: "begun" in long.output())
        with interface(client, PATHS):
            time.sleep(1)
            assert len({tcp(client, SERVER)[0] for _ in range(3)}) == 3
            long.wait_until("its end", lambda: "10.77.0.2 2000" in long.output(), 15)


# A program with a connection that sends data at intervals, for three seconds.
_LONG = """\
import socket, sys, time
with socket.create_connection((sys.argv[1], 60500), timeout=20) as s:
    s.sendall(bytes(1000))
    print("begun", flush=True)
    for _ in range(10):
        time.sleep(0.3)
        s.sendall(bytes(100))
    s.shutdown(socket.SHUT_WR)
    print(s.recv(1000).decode(), flush=True)
    time.sleep(5)
"""


@pytest.mark.parametrize("words", [[], ["--netns", NETNS]], ids=["host", "netns"])
def test_an_idle_session_is_split_when_the_server_speaks_first(
    make_network: MakeNetwork, words: list[str], tmp_path: Path
) -> None:
    """The session stays split although the kernel has forgotten its flow. Nothing leaves over the
    unnamed uplink.
    """
    network = make_network([Link("other"), *links(2)], default_routes=True)
    client = network.client
    with ExitStack() as stack:
        speaker = stack.enter_context(network.server.start([sys.executable, "-c", _SPEAKS, SERVER]))
        speaker.wait_bound(60_500)
        stack.enter_context(interface(client, interfaces(2), *words, every="1p"))
        host = Host("inside", f"/run/netns/{NETNS}") if words else client
        forget = "echo 1 | tee /proc/sys/net/netfilter/nf_conntrack_udp_timeout*"
        host.must(["sh", "-c", forget])
        wanted = f"udp and host {SERVER}"
        stray = stack.enter_context(Tcpdump(client, "other", tmp_path / "other.pcap", wanted))
        before = network.stats()
        said = host.must([sys.executable, "-c", _LISTENS, SERVER], timeout=20)
        assert said.split() == ["idle"] + ["answer"] * 6
        carried = difference(network.stats(), before)
        stray.stop()
        assert stray.captured == 0
        assert min(carried[name].up_packets for name in ("p0", "p1")) >= 3


def test_a_session_that_began_before_is_split_when_the_server_speaks_first(
    network: Network, tmp_path: Path
) -> None:
    """The session is split although connection tracking, which starts with the rules, takes the
    server for the client.
    """
    client = network.client
    with ExitStack() as stack:
        speaker = stack.enter_context(network.server.start([sys.executable, "-c", _SPEAKS, SERVER]))
        speaker.wait_bound(60_500)
        words = [sys.executable, "-c", _LISTENS, SERVER]
        listener = stack.enter_context(client.start(words))
        time.sleep(0.5)
        splitter = stack.enter_context(interface(client, PATHS, every="1p"))
        listener.wait_until("its end", lambda: listener.output().count("answer") == 6, 15)
        counts = {path["name"]: path["up_packets"] for path in splitter.stop()["paths"]}
        assert min(counts.values()) >= 2, counts


# A server that answers every datagram, and answers the first one again after six seconds.
_SPEAKS = """\
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], 60500))
    _, peer = s.recvfrom(100)
    s.sendto(b"first", peer)
    time.sleep(6)
    s.sendto(b"idle", peer)
    while True:
        _, peer = s.recvfrom(100)
        s.sendto(b"answer", peer)
"""

# A client that sends one datagram, waits for two answers of the server, and then sends six more.
_LISTENS = """\
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(10)
    s.connect((sys.argv[1], 60500))
    s.send(b"hello")
    s.recv(100)
    print(s.recv(100).decode(), flush=True)
    for _ in range(6):
        s.send(b"more")
        print(s.recv(100).decode(), flush=True)
"""


@pytest.mark.parametrize("server", [SERVER, SERVER6], ids=["ipv4", "ipv6"])
def test_a_datagram_in_parts_arrives_whole(network: Network, server: str) -> None:
    """A datagram above any MTU is fragmented by the kernel, reassembled by the splitter, and
    fragmented again for the path.
    """
    with echo(network.server, server), interface(network.client, PATHS) as splitter:
        sizes = [4000, 100, 9000, 1473]
        assert udp(network.client, server, sizes) == sizes
        assert sum(path["up_packets"] for path in splitter.stop()["paths"]) == 4


def test_an_error_comes_back_to_the_program_that_caused_it(network: Network) -> None:
    """ICMP errors of a closed port at the server, and of a packet that the interface refuses,
    reach the program.
    """
    client = network.client
    with interface(client, PATHS) as splitter:
        outcomes = udp(client, SERVER, [10, 10], port=60_777)
        assert errno.ECONNREFUSED in outcomes
        assert udp(client, SERVER6, [10, 10], port=60_777).count(errno.ECONNREFUSED) > 0
        # Packets that the kernel itself sends on every interface are not counted.
        assert not any("a route sends" in each["text"] for each in splitter.of("warning"))
        client.must(["ip", "route", "add", "192.0.2.0/24", "dev", TUN])
        outcome = udp(client, "192.0.2.1", [10, 10], port=9)
        assert errno.EHOSTUNREACH in outcome, outcome
        assert any("a route sends" in each["text"] for each in splitter.of("warning"))


def test_the_narrowest_path_sets_the_mtu(make_network: MakeNetwork) -> None:
    """Programs that forbid fragmentation get the path MTU; other datagrams and TCP arrive over
    every path.
    """
    paths = [Link("p0"), Link("p1", mtu=1300), Link("p2")]
    network = make_network(paths, default_routes=True)
    client = network.client
    with echo(network.server, SERVER), interface(client, PATHS, every="1p") as splitter:
        assert "mtu 1300" in client.must(["ip", "link", "show", TUN])
        assert splitter.of("listening")[0]["tun"]["mtu"] == 1300
        assert udp(client, SERVER, [1272] * 6, whole=True) == [1272] * 6
        assert udp(client, SERVER, [1273, 1400], whole=True) == [errno.EMSGSIZE] * 2
        assert udp(client, SERVER, [1400] * 6) == [1400] * 6
        assert [tcp(client, SERVER, length=MIB)[1] for _ in range(6)] == [MIB] * 6


def test_a_path_that_narrows_later_is_told_to_the_program(network: Network) -> None:
    """If the MTU of a path's interface shrinks, a datagram that no longer fits causes an error."""
    client = network.client
    with echo(network.server, SERVER), interface(client, PATHS, "--handshake", "p1"):
        sizes = [1400] * 3
        assert udp(client, SERVER, sizes, whole=True) == sizes
        for number in range(3):
            client.must(["ip", "link", "set", f"p{number}", "mtu", "1300"])
        outcomes = udp(client, SERVER, [1400] * 6, whole=True)
        assert errno.EMSGSIZE in outcomes, outcomes


@pytest.mark.parametrize(
    "paths", [PATHS, ["a=if:p0,addr:10.77.0.2", "b=if:p2,addr:10.77.2.2"], ["r=ports:3"]]
)
def test_our_own_packets_do_not_come_back(network: Network, paths: list[str]) -> None:
    """No packet loops: it leaves over a path once, whatever the paths are bound to."""
    with echo(network.server, SERVER), interface(network.client, paths, every="1p") as splitter:
        before = network.stats()
        sizes = [500] * 50
        assert udp(network.client, SERVER, sizes) == sizes
        carried = difference(network.stats(), before)
        assert sum(each.up_packets for each in carried.values()) == 50
        summary = splitter.stop()
        assert summary["looped"] == 0
        assert not splitter.of("loop")


def test_with_all_paths_down_nothing_leaves_by_any_interface(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """Fails closed: neither sessions nor pinned flows, old or new, use the unnamed uplink."""
    network = make_network([*links(2), Link("other")], default_routes=True)
    client = network.client
    faults = [InterfaceDown(network, name) for name in ("p0", "p1")]
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(echo(network.server, SERVER6))
        stack.enter_context(interface(client, interfaces(2)))
        assert udp(client, SERVER, [100]) == [100]
        stack.enter_context(tcp_beside(client, SERVER, 400 * MIB))
        time.sleep(1)
        wanted = f"host {SERVER} or host {SERVER6}"
        capture = stack.enter_context(Tcpdump(client, "other", tmp_path / "other.pcap", wanted))
        counts = network.stats()
        for path in faults:
            path.cut()
        time.sleep(0.5)
        start = network.stats()["other"]
        outcomes = udp(client, SERVER, [100, 100])
        assert 100 not in outcomes
        assert 100 not in udp(client, SERVER, [100], port=53)
        assert 100 not in udp(client, SERVER6, [100])
        for address in (SERVER, SERVER6):
            failed = client.run(["python3", "-c", _CONNECT, address], timeout=20)
            assert failed.returncode != 0
        end = network.stats()["other"]
        assert (end - start).up_packets == 0
        assert start.up_packets == counts["other"].up_packets
        for path in faults:
            path.restore()
        time.sleep(1.5)
        assert 100 in udp(client, SERVER, [100] * 3)
        assert tcp(client, SERVER)[0] in ("10.77.0.2", "10.77.1.2")
        assert network.stats()["other"].up_packets == counts["other"].up_packets
        capture.stop()
        assert capture.captured == 0


_CONNECT = """\
import socket, sys
socket.create_connection((sys.argv[1], 60500), timeout=3)
"""


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM"])
def test_a_run_that_ends_leaves_nothing(network: Network, end: str) -> None:
    """No link, rule, table, nftables set, namespace, setting or file remains."""
    how = signal.SIGTERM if end == "SIGTERM" else signal.SIGINT
    for words in ([], ["--netns", NETNS, "--dns", SERVER]):
        with unchanged(network.client), interface(network.client, PATHS, *words) as splitter:
            assert splitter.end_by(how) == 0


def test_an_impatient_user_leaves_nothing_either(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing remains after a second Ctrl-C, which a terminal sends to all processes, during a
    slow clean-up.
    """
    slow = tmp_path / "nft"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {tool("nft")} "$@"\n')
    slow.chmod(0o755)
    with unchanged(network.client), monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with interface(network.client, PATHS) as splitter:
            os.killpg(splitter.pid, signal.SIGINT)
            time.sleep(0.4)
            os.killpg(splitter.pid, signal.SIGINT)
            time.sleep(0.2)
            assert splitter.end_by(signal.SIGINT) == 0


def test_an_interface_that_goes_off_comes_back_and_one_removed_ends_the_run(
    network: Network,
) -> None:
    """Meanwhile no packet bypasses the interface, and the splitter does not busy-loop."""
    client = network.client
    with (
        unchanged(client),
        echo(network.server, SERVER),
        interface(client, PATHS, every="1p") as splitter,
    ):
        client.must(["ip", "link", "set", TUN, "down"])
        assert 100 not in udp(client, SERVER, [100])
        client.must(["ip", "link", "set", TUN, "up"])
        time.sleep(1)
        assert udp(client, SERVER, [100] * 6) == [100] * 6
        client.must(["ip", "link", "delete", TUN])
        assert splitter.end_by(signal.SIGCONT) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGABRT])
@pytest.mark.parametrize("words", [[], ["--netns", NETNS, "--dns", SERVER]], ids=["host", "netns"])
def test_a_run_that_was_killed_is_undone_by_the_next(
    network: Network, how: signal.Signals, words: list[str]
) -> None:
    """Until the next run, no packet that was to be split leaves; then all state is restored."""
    client = network.client
    with unchanged(client), echo(network.server, SERVER):
        _kill(client, words, how)
        if not words:
            assert 100 not in udp(client, SERVER, [100])
        with interface(client, PATHS, *words) as splitter:
            told = [each["text"] for each in splitter.of("warning")]
            assert any("that the splitter of process" in text for text in told)
        _kill(client, words, how)
        where = Host("inside", f"/run/netns/{NETNS}") if words else client
        assert 100 not in udp(where, SERVER, [100])
        assert tcp(where, SERVER)[1] == 10, "what is pinned goes on by its path"
        said = client.must([anabranch(), "split", "--restore"])
        assert TUN in said
        again = client.must([anabranch(), "split", "--restore"])
        assert again == "nothing to undo: no killed splitter left changes\n"


def test_two_runs_share_a_machine(network: Network) -> None:
    """Each run has its own namespace and marks; one ends, the other continues."""
    client = network.client
    other = f"{NETNS}-2"
    with (
        echo(network.server, SERVER),
        unchanged(client),
        interface(client, PATHS, "--netns", NETNS) as first,
    ):
        with interface(client, PATHS, "--netns", other):
            assert udp(Host("b", f"/run/netns/{other}"), SERVER, [50]) == [50]
        inside = Host("a", f"/run/netns/{NETNS}")
        assert udp(inside, SERVER, [50]) == [50]
        assert tcp(inside, SERVER)[1] == 10
        first.stop()


def test_a_namespace_has_the_interface_and_the_machine_has_not(
    network: Network, inside: Host, web_root: Path, tmp_path: Path
) -> None:
    """Inside the namespace QUIC is split, TCP pinned, names resolved; outside, nothing changes."""
    client = network.client
    with ExitStack() as stack:
        stack.enter_context(unchanged(client))
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(echo(network.server, SERVER6))
        stack.enter_context(names(network.server, SERVER))
        stack.enter_context(quic.serving("quic-go", network.server, web_root, port=443))
        words = ["--netns", NETNS, "--dns", SERVER]
        splitter = stack.enter_context(interface(client, PATHS, *words))
        before = network.stats()
        transfer = quic.download(inside, "quic-go", f"{SERVER}:443", LENGTH, seconds=90)
        assert not transfer.fault(LENGTH)
        _assert_split(difference(network.stats(), before))
        for server, wanted in ((SERVER, "10.77.{}.2"), (SERVER6, "fd77:{}::2")):
            seen = [tcp(inside, server, length=MIB) for _ in range(6)]
            assert all(count == MIB for _, count in seen)
            assert {[each for each, _ in seen].count(at) for at in _addresses(wanted)} == {2}
        assert udp(inside, SERVER6, [100, 100]) == [100, 100]
        found = client.must(["ip", "netns", "exec", NETNS, "getent", "ahostsv4", "example.org"])
        assert found.startswith("192.0.2.80")
        # Outside, traffic uses the route of the lowest metric, and makes no session.
        sessions = len(splitter.of("opened"))
        assert {tcp(client, SERVER)[0] for _ in range(3)} == {"10.77.0.2"}
        assert udp(client, SERVER, [100]) == [100]
        assert len(splitter.of("opened")) == sessions


def test_with_all_paths_down_a_namespace_reaches_nothing(
    make_network: MakeNetwork, inside: Host, tmp_path: Path
) -> None:
    """Fails closed: the namespace does not use the machine's other uplink."""
    network = make_network([*links(2), Link("other")], default_routes=True)
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(interface(network.client, interfaces(2), "--netns", NETNS))
        assert udp(inside, SERVER, [100]) == [100]
        assert tcp(inside, SERVER)[1] == 10
        before = network.stats()["other"].up_packets
        capture = stack.enter_context(
            Tcpdump(network.client, "other", tmp_path / "other.pcap", f"host {SERVER}")
        )
        for number in range(2):
            InterfaceDown(network, f"p{number}").cut()
        time.sleep(0.5)
        outcomes = [*udp(inside, SERVER, [100]), *udp(inside, SERVER, [100], port=53)]
        assert 100 not in outcomes
        assert inside.run(["python3", "-c", _CONNECT, SERVER], timeout=20).returncode != 0
        assert network.stats()["other"].up_packets == before
        capture.stop()
        assert capture.captured == 0


def test_without_routes_only_the_interface_is_made(network: Network) -> None:
    """The user sets the routes into the interface."""
    client = network.client
    with echo(network.server, SERVER), interface(client, PATHS, route=False):
        assert "anabranch" not in client.must(["nft", "list", "ruleset"])
        assert "0xab" not in client.must(["ip", "rule"])
        assert tcp(client, SERVER)[0] == "10.77.0.2"
        before = network.stats()
        client.must(["ip", "route", "add", f"{SERVER}/32", "dev", TUN])
        assert udp(client, SERVER, [100] * 3) == [100] * 3
        assert difference(network.stats(), before)["p0"].up_packets < 4


def test_the_check_tells_what_would_be_and_changes_nothing(network: Network) -> None:
    """The check also works without the privileges for a run."""
    client = network.client
    words = [anabranch(), "split", "--check", "--tun", TUN, "--route", "--netns", NETNS]
    words += [word for path in PATHS for word in ("--path", path)]
    with unchanged(client):
        said = client.must(words)
        as_nobody = client.must([tool("setpriv"), *_NOBODY, *words])
    for text in ("interface 'any0' in the new namespace", "on one of the interfaces p0, p1, p2",
                 "nftables tables: inet anabranch_0", "forwarding = 1", "MTU 1500"):  # fmt: skip
        assert text in said
    assert as_nobody.splitlines()[0] == said.splitlines()[0]


_NOBODY = ["--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534", "--clear-groups"]


def test_what_cannot_be_had_is_told_in_one_line_and_leaves_nothing(network: Network) -> None:
    """Refused are missing privileges, others' interfaces, namespaces, rules or routes, a missing
    nft, and invalid names.
    """
    client = network.client
    ask = ["--tun", TUN, "--route", *(word for path in PATHS for word in ("--path", path))]
    nobody = [tool("setpriv"), *_NOBODY]
    with unchanged(client):
        said = refused(client, *ask, before=nobody)
        assert "needs root" in said
        assert "--listen 127.0.0.1:PORT" in said
        hidden = f'mount --bind /dev/null {tool("nft")} && exec "$@"'
        said = refused(client, *ask, before=["unshare", "-m", "sh", "-c", hidden, "sh"])
        assert "install the package nftables" in said
        for make, undo, text in _IN_THE_WAY:
            client.must(make)
            assert text in refused(client, *ask, *_words(text)), text
            assert text in refused(client, "--check", *ask, *_words(text)), text
            client.must(undo)
        with interface(client, PATHS):
            assert "already uses this interface" in refused(client, *ask)
        assert "replaces --listen" in refused(client, *ask, "--config", _with_port())
        assert "this option needs an interface" in refused(client, *ask[2:])


def _words(text: str) -> list[str]:
    return ["--netns", NETNS] if "namespace" in text or "cable" in text else []


_IN_THE_WAY = [
    (
        ["ip", "tuntap", "add", TUN, "mode", "tun"],
        ["ip", "link", "delete", TUN],
        "an interface with this name",
    ),
    (
        ["ip", "netns", "add", NETNS],
        ["ip", "netns", "delete", NETNS],
        "a namespace with this name",
    ),
    (
        ["ip", "rule", "add", "fwmark", "7", "lookup", "77", "priority", "1000"],
        ["ip", "rule", "delete", "priority", "1000"],
        "a routing rule of priority 1000 already exists",
    ),
    (
        ["ip", "route", "add", "default", "dev", "p0", "table", "0xab0002"],
        ["ip", "route", "delete", "default", "dev", "p0", "table", "0xab0002"],
        "the routing table 0xab0002 already contains a route",
    ),
    (
        ["ip", "route", "add", "198.18.171.0/24", "dev", "p0"],
        ["ip", "route", "delete", "198.18.171.0/24"],
        "the splitter needs this network for its virtual Ethernet pair",
    ),
]


def _with_port() -> str:
    file = Path(f"/tmp/anabranch-{os.getpid()}.toml")
    file.write_text('listen = "127.0.0.1:1"\n')
    return str(file)


@pytest.fixture(autouse=True)
def _no_files() -> Iterator[None]:
    yield
    Path(f"/tmp/anabranch-{os.getpid()}.toml").unlink(missing_ok=True)


def _kill(client: Host, words: list[str], how: signal.Signals) -> None:
    with interface(client, PATHS, *words) as splitter:
        assert splitter.end_by(how) == -how


def _addresses(pattern: str) -> list[str]:
    """Returns the client's address on each path, as a server prints it."""
    return [str(ip_address(pattern.format(i))) for i in range(3)]


def _assert_split(carried: dict[str, Counts]) -> None:
    """Asserts that each path carried more than copies and probes, in both directions."""
    for name, each in carried.items():
        assert each.up_packets >= 100, (name, carried)
        assert each.down_packets >= 100, (name, carried)
