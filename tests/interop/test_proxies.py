"""A third-party SOCKS5 proxy (Dante) as one of three paths: it carries, is killed, and returns."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import Results
from harness import quic
from harness.fair import difference, round_robin_bounds, unfair
from harness.interface import ECHO_PORT, WithNames, echo, names, udp
from harness.net import SERVER, Counts, Host, Network, links, namespaces_allowed
from harness.seeded import MIB
from harness.socks import (
    FAR,
    NEAR,
    PORT,
    PROXY,
    PUBLIC,
    USER,
    Dante,
    path,
    proxied_topology,
    translated_proxy,
    translated_topology,
)
from harness.splitter import LISTEN, Splitter, interfaces
from harness.tools import MissingPeer, PeerFailed, wait_for
from harness.transfer import Transfer, site
from harness.wireguard import INSIDE_SERVER, Tunnel
from harness.wireguard import PORT as WIREGUARD

pytestmark = pytest.mark.proxies

LENGTH, LONG = 25 * MIB, 120 * MIB
# Bytes of IPv4 and UDP headers, and of SOCKS5's UDP header (RFC 1928, section 7).
HEADERS, SOCKS5 = 28, 10
# Maximum difference of counts: datagrams in flight when the two sides are read, and packets of the
# proxy's TCP connections.
IN_FLIGHT = 120
IPERF_SECONDS = 5


@pytest.fixture
def network() -> Iterator[Network]:
    """Yields a network of two direct links, and one over the proxy's host."""
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    with Network(proxied_topology(links(2))) as network:
        yield network


@pytest.fixture
def dante(network: Network, tmp_path: Path) -> Iterator[Dante]:
    """Yields the running proxy."""
    with Dante(network.hosts["proxy"], tmp_path) as dante:
        yield dante


def paths(folder: Path) -> list[str]:
    """Returns the paths: both links, and the proxy."""
    return [*interfaces(2), path(folder)]


@pytest.mark.usefixtures("dante")
def test_a_tunnel_goes_through_the_proxy_in_both_directions(
    network: Network, web_root: Path, tmp_path: Path, results: Results
) -> None:
    """WireGuard: the hash is right, shares are equal, and counts agree with the links' and include
    all headers.
    """
    with ExitStack() as stack:
        splitter = stack.enter_context(
            Splitter(network.client, f"{SERVER}:{WIREGUARD}", paths(tmp_path))
        )
        about = splitter.of("listening")[0]
        assert about["udp_payload"] == 1500 - HEADERS - SOCKS5
        assert about["tunnel_mtu"] == 1500 - HEADERS - SOCKS5 - 32
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        tunnel.ping()
        with tunnel.server.web(web_root / "site"):
            transfer = tunnel.download(LENGTH)
        assert not transfer.fault(LENGTH)
        before = network.stats()
        tunnel.iperf(IPERF_SECONDS)
        carried = difference(network.stats(), before)
        _fair(carried)
        _agree(network, splitter)
    results.add("Through Dante, Mbit/s", protocol="WireGuard", HTTP=transfer.goodput_mbits)


@pytest.mark.usefixtures("dante")
def test_a_quic_connection_goes_through_the_proxy_in_both_directions(
    network: Network, web_root: Path, tmp_path: Path, results: Results
) -> None:
    """QUIC: the hash is right, and every path carries both directions."""
    with (
        quic.serving("quic-go", network.server, web_root),
        Splitter(network.client, f"{SERVER}:{quic.PORT}", paths(tmp_path)) as splitter,
    ):
        transfer = quic.download(network.client, "quic-go", LISTEN, LENGTH)
        assert not transfer.fault(LENGTH)
        assert splitter.changes("prx") == []
        splitter.stop()
        for name, counts in splitter.counts().items():
            assert counts.up_packets > 100, name
            assert counts.down_packets > 500, name
        _agree(network, splitter)
    results.add("Through Dante, Mbit/s", protocol="QUIC", HTTP=transfer.goodput_mbits)


@pytest.mark.parametrize("protocol", ["wireguard", "quic"])
def test_a_session_outlives_the_proxy(
    network: Network,
    dante: Dante,
    tmp_path: Path,
    results: Results,
    protocol: str,
) -> None:
    """When the proxy is killed during a transfer, its path goes down; when it runs again, the path
    is used again.
    """
    with ExitStack() as stack:
        port = WIREGUARD if protocol == "wireguard" else quic.PORT
        splitter = stack.enter_context(
            Splitter(network.client, f"{SERVER}:{port}", paths(tmp_path))
        )
        beside = stack.enter_context(ThreadPoolExecutor(1))
        running = _begin(stack, network, tmp_path, beside, protocol)
        time.sleep(1.5)
        dante.kill()
        start = time.monotonic()
        splitter.wait_event("path", 2, path="prx", state="down", reason="proxy")
        noticed = time.monotonic() - start
        time.sleep(0.5)
        still = network.stats()
        time.sleep(1.0)
        silent = difference(network.stats(), still)[FAR]
        assert silent.up_packets == 0, "somebody still relays"
        dante.start()
        splitter.wait_event("path", 20, path="prx", state="up")
        before = network.stats()
        time.sleep(2)
        assert running.running(), "the session ended before the path was back: it proves nothing"
        after = difference(network.stats(), before)[FAR]
        transfer = running.result()
    assert not transfer.fault(LONG)
    assert after.up_packets >= 200
    assert after.down_packets >= 200
    warnings = [event["text"] for event in splitter.of("warning")]
    told = f"the proxy {PROXY}:{PORT} does not listen at this address"
    assert any(told in text for text in warnings)
    results.add(
        "A proxy killed and started again",
        protocol=protocol, noticed_s=noticed, longest_gap_s=transfer.longest_gap_s,
    )  # fmt: skip


def test_a_proxy_that_names_its_private_address_loses_nothing() -> None:
    """The proxy advertises a private relay address; the splitter uses its public address, and
    every datagram returns.
    """
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    sizes, listen_port = [100 + number for number in range(300)], int(LISTEN.split(":")[1])
    with ExitStack() as stack:
        network = stack.enter_context(Network(translated_topology(links(2))))
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(translated_proxy(network.hosts["proxy"]))
        proxy = f"prx=socks5:{PUBLIC}:{PORT},if:{NEAR}"
        splitter = stack.enter_context(
            Splitter(network.client, f"{SERVER}:{ECHO_PORT}", [*interfaces(2), proxy], every="1p")
        )
        assert udp(network.client, "127.0.0.1", sizes, port=listen_port) == sizes
        assert splitter.changes("prx") == []
        splitter.stop()
        counts = splitter.counts()
        assert [counts[name].down_packets for name in ("p0", "p1", "prx")] == [100, 100, 100]


@pytest.mark.usefixtures("dante")
def test_a_wrong_password_is_refused_at_the_start(network: Network, tmp_path: Path) -> None:
    """The splitter exits with code 2 and one line of error, without the password."""
    message = _refusal(network.client, path(tmp_path, password="wrong horse"))
    assert f"the proxy {PROXY}:{PORT} refuses the user name or the password" in message
    assert "horse" not in message


def test_a_proxy_that_does_not_run_is_refused_at_the_start(
    network: Network, tmp_path: Path
) -> None:
    """The splitter exits in the same way if nothing listens at the proxy's address."""
    message = _refusal(network.client, path(tmp_path))
    assert f"the proxy {PROXY}:{PORT} does not listen at this address" in message
    assert USER not in message


def _begin(
    stack: ExitStack, network: Network, folder: Path, beside: ThreadPoolExecutor, protocol: str
) -> Future[Transfer]:
    """Starts a transfer that outlasts the fault."""
    if protocol == "quic":
        stack.enter_context(quic.serving("quic-go", network.server, folder))
        return beside.submit(quic.download, network.client, "quic-go", LISTEN, LONG, seconds=120)
    tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
    tunnel.ping()
    stack.enter_context(tunnel.server.web(site(folder, LONG)))
    # A second flow, as is usual in a tunnel: a lone download may stall until its path works again.
    stack.enter_context(network.client.start(["ping", "-q", "-i", "0.1", INSIDE_SERVER]))
    return beside.submit(tunnel.download, LONG, 120)


def _refusal(host: Host, proxy: str) -> str:
    """Returns the line with which the splitter refuses this path."""
    with pytest.raises(PeerFailed) as refused:
        Splitter(host, f"{SERVER}:{WIREGUARD}", [proxy])
    ended, message = str(refused.value).split("\n", 1)
    assert ended == "split ended with 2:"
    assert len(message.strip().splitlines()) == 1
    return message


def _fair(carried: dict[str, Counts]) -> None:
    """Asserts that each path has its share; the two links of the proxy are one path."""
    shares = {name: carried[name] for name in ("p0", "p1", NEAR)}
    bounds = round_robin_bounds(3, IPERF_SECONDS, 0.1)
    assert not unfair(shares, dict.fromkeys(shares, bounds))


def _agree(network: Network, splitter: Splitter) -> None:
    """Asserts that the splitter's counts equal the links', plus SOCKS5's header before the proxy.

    On a busy machine Dante does not read every datagram in time, and its kernel drops some. The
    counts after Dante may be lower by this number.
    """
    _settle(network)
    dropped = {name: _dropped(network.hosts[name]) for name in ("client", "proxy")}
    splitter.stop()
    said, true = splitter.counts(), network.stats()
    pairs = [("p0", "p0", 0), ("p1", "p1", 0), ("prx", NEAR, SOCKS5), ("prx", FAR, 0)]
    for name, link, header in pairs:
        ours, theirs = said[name], true[link]
        most = IN_FLIGHT + dropped["client"] + (dropped["proxy"] if link == FAR else 0)
        more, told = HEADERS + header, f"{link}: {ours}, {theirs}, dropped: {dropped}"
        assert -IN_FLIGHT <= ours.up_packets - theirs.up_packets <= most, told
        assert -IN_FLIGHT <= theirs.down_packets - ours.down_packets <= most, told
        up = ours.up_bytes + more * ours.up_packets - theirs.up_bytes
        down = theirs.down_bytes - ours.down_bytes - more * ours.down_packets
        assert -IN_FLIGHT * 1500 <= up <= most * 1500, told
        assert -IN_FLIGHT * 1500 <= down <= most * 1500, told


def _settle(network: Network) -> None:
    """Waits until no packets are in flight: half a second in which links carry only pings."""

    def is_quiet() -> bool:
        before = network.stats()
        time.sleep(0.5)
        carried = difference(network.stats(), before).values()
        return sum(each.up_packets + each.down_packets for each in carried) < 10

    wait_for("an end of the traffic", is_quiet, 20)


def _dropped(host: Host) -> int:
    """Returns how many datagrams a host's kernel dropped, unread or from a full queue."""
    snmp = host.must(["cat", "/proc/net/snmp"]).splitlines()
    names, counts = (line.split() for line in snmp if line.startswith("Udp:"))
    udp_counts = dict(zip(names, counts, strict=True))
    # After two header lines, the twelfth count of an interface is the packets dropped by its
    # queue.
    devices = host.must(["cat", "/proc/net/dev"]).splitlines()[2:]
    queues = sum(int(line.partition(":")[2].split()[11]) for line in devices)
    return int(udp_counts["RcvbufErrors"]) + int(udp_counts["SndbufErrors"]) + queues


@pytest.mark.usefixtures("dante")
def test_a_new_proxys_name_is_looked_up_while_sessions_go_on(
    network: Network, tmp_path: Path
) -> None:
    """After SIGHUP, the lookup of the proxy's name takes seconds, and no datagram waits for it."""
    (tmp_path / "resolv.conf").write_text(f"nameserver {SERVER}\noptions timeout:10\n")
    file = tmp_path / "split.toml"
    direct = "".join(f'[[path]]\nname = "{p}"\ninterface = "{p}"\n' for p in ("p0", "p1"))
    file.write_text(direct)
    path(tmp_path)  # writes the password's file
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(names(network.server, SERVER, PROXY, delay=1.5))
        host = WithNames(network.client.name, network.client.netns, tmp_path / "resolv.conf")
        splitter = stack.enter_context(
            Splitter(host, f"{SERVER}:{ECHO_PORT}", [], every="1p", options=[str(file)])
        )
        pinger = stack.enter_context(network.client.start([sys.executable, "-c", _PINGER, LISTEN]))
        pinger.wait_until("an answer", lambda: "begun" in pinger.output())
        proxied = f'socks5 = "proxy.example:{PORT}"\nuser = "{USER}"\n'
        proxied += f'password-file = "{tmp_path}/password"\ninterface = "{NEAR}"\n'
        file.write_text(direct + '[[path]]\nname = "prx"\n' + proxied)
        begun = time.monotonic()
        splitter.send(signal.SIGHUP)
        about = splitter.wait_event("reloaded")
        assert time.monotonic() - begun > 1.4, "the name server was not asked"
        assert [path["name"] for path in about["paths"]] == ["p0", "p1", "prx"]
        pinger.wait_until("its end", lambda: "longest" in pinger.output())
        longest = float(pinger.output().split("longest")[1])
        assert longest < 1, f"{longest} s without an answer"
        assert splitter.counts()["prx"].down_packets > 0


# A client that requests an echo every 20 ms for six seconds, and prints the longest time without
# an answer.
_PINGER = """\
import socket, sys, time
host, port = sys.argv[1].split(":")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.connect((host, int(port)))
    s.settimeout(0.02)
    begun = last = time.monotonic()
    longest = 0
    while last - begun < 6:
        s.send(b"ping")
        try:
            s.recv(10)
            if longest == 0:
                print("begun", flush=True)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            time.sleep(0.02)
        except OSError:
            if time.monotonic() - begun > 12:
                break
    print("longest", longest, flush=True)
    time.sleep(5)
"""
