"""Paths that are TCP connections: WireGuard to a far end over third-party proxies and SSH."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
import pytest

from conftest import MakeNetwork, Results
from harness import farend, socks, sshd
from harness.capture import TCP, Packet, Tcpdump, read_pcap, read_pcapng
from harness.fair import difference
from harness.farend import FarEnd
from harness.net import SERVER, Counts, Host, Network, links, namespaces_allowed
from harness.nginx import nginx
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter
from harness.sshd import Sshd
from harness.tools import Background, MissingPeer, wait_for
from harness.transfer import Transfer, site
from harness.wireguard import PORT, Tunnel

pytestmark = pytest.mark.stream_paths

STREAMS = 443
SOCKS, HTTP = 1080, 8888
TLS, BEHIND = 8443, 8080
CAPTURED, LENGTH, LONG = 5 * MIB, 25 * MIB, 200 * MIB
# Minimum share of one of three equally likely paths, as a download of a few seconds has few runs
# of 100 ms.
LEAST_SHARE = 0.1


@dataclass
class World:
    """The network, and all programs that run on it."""

    network: Network
    splitter: Splitter
    tunnel: Tunnel


@contextmanager
def _world(
    network: Network, folder: Path, paths: Sequence[str], more: Sequence[str] = ()
) -> Iterator[World]:
    far_key, home_key = farend.make_keys(folder)
    with ExitStack() as stack:
        listen = ["--listen-tcp", f"{SERVER}:{STREAMS}"]
        server = f"{SERVER}:{PORT}"
        stack.enter_context(FarEnd(network.server, server, far_key, every="~10p", options=listen))
        options = ["--key", str(home_key), "--to-tcp", f"{SERVER}:{STREAMS}", *more]
        to = f"{SERVER}:{farend.PORT}"
        splitter = stack.enter_context(
            Splitter(network.client, to, paths, every="~10p", schedule="uniform", options=options)
        )
        splitter.wait_event("far_end", state="up")
        tunnel = stack.enter_context(Tunnel(network.server, network.client, LISTEN))
        _fit(network, splitter, tunnel)
        yield World(network, splitter, tunnel)


@contextmanager
def _microsocks(host: Host) -> Iterator[Background]:
    """Runs microsocks, a third-party SOCKS5 proxy for TCP."""
    with host.start(["microsocks", "-i", SERVER, "-p", str(SOCKS)]) as proxy:
        proxy.wait_bound(SOCKS, "tcp")
        yield proxy


@contextmanager
def _tinyproxy(host: Host, folder: Path) -> Iterator[Background]:
    """Runs tinyproxy, a third-party HTTP proxy that requires a password and allows CONNECT only to
    the far end's port.
    """
    settings = folder / "tinyproxy.conf"
    settings.write_text(f"""\
Port {HTTP}
Listen {SERVER}
Timeout 600
MaxClients 20
BasicAuth anna secret
ConnectPort {STREAMS}
""")
    with host.start(["tinyproxy", "-d", "-c", str(settings)]) as proxy:
        proxy.wait_bound(HTTP, "tcp")
        yield proxy


def _shares(carried: dict[str, Counts]) -> list[float]:
    """Returns each path's share of the bytes, the smaller share of the two directions."""
    counts = carried.values()
    up, down = (sum(getattr(each, name) for each in counts) for name in ("up_bytes", "down_bytes"))
    return [min(each.up_bytes / up, each.down_bytes / down) for each in counts]


def test_a_tunnel_goes_by_tcp_and_by_both_kinds_of_proxy(
    make_network: MakeNetwork,
    web_root: Path,
    tmp_path: Path,
    results: Results,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hash is right, and every path carries both directions: direct, through microsocks,
    through tinyproxy.
    """
    monkeypatch.setenv("ANABRANCH_SOCKS5_PASSWORD", "secret")
    paths = [
        "t=tcp:,if:p0",
        f"s=socks5-tcp:{SERVER}:{SOCKS},if:p1",
        f"h=http:anna@{SERVER}:{HTTP},if:p2",
    ]
    network = make_network(links(3))
    with (
        _microsocks(network.server),
        _tinyproxy(network.server, tmp_path),
        _world(network, tmp_path, paths) as world,
    ):
        before = network.stats()
        with world.tunnel.server.web(web_root / "site"):
            transfer = world.tunnel.download(LENGTH)
        assert not transfer.fault(LENGTH)
        shares = _shares(difference(network.stats(), before))
        assert min(shares) > LEAST_SHARE, shares
        downs = [path for path in "tsh" if "down" in world.splitter.changes(path)[1:]]
        assert not downs, world.splitter.of("path")
    results.add("WireGuard by TCP paths, Mbit/s", HTTP=transfer.goodput_mbits)


def test_dante_with_a_login_carries_a_path_and_a_wrong_password_is_reported(
    web_root: Path, tmp_path: Path, results: Results
) -> None:
    """With a path through Dante, with a login, and a UDP path, the hash is right and both have
    their share. A wrong password causes one warning, and the UDP path carries all traffic.
    """
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    with (
        Network(socks.proxied_topology(links(1))) as network,
        socks.Dante(network.hosts["proxy"], tmp_path),
    ):
        for password, works in [(socks.PASSWORD, True), ("wrong", False)]:
            folder = tmp_path / password
            folder.mkdir()
            path = socks.path(folder, "s", password, kind="socks5-tcp")
            with _world(network, folder, ["u=if:p0", path]) as world:
                if works:
                    world.splitter.wait_event("path", path="s", state="up")
                with world.tunnel.server.web(web_root / "site"):
                    transfer = world.tunnel.download(LENGTH)
                assert not transfer.fault(LENGTH)
                world.splitter.stop()
                warnings = [str(event["text"]) for event in world.splitter.of("warning")]
                carried = world.splitter.counts()
            if works:
                assert min(_shares(carried)) > LEAST_SHARE, carried
                assert not warnings
                results.add("WireGuard by UDP and Dante, Mbit/s", HTTP=transfer.goodput_mbits)
            else:
                assert carried["s"].down_bytes == 0
                (warning,) = warnings
                assert warning.startswith("path 's' (socks5-tcp): the proxy ")
                assert "refuses the user name" in warning


def test_captures_of_a_tcp_path_hold_the_payload_that_tcpdump_saw(
    make_network: MakeNetwork, tmp_path: Path, results: Results
) -> None:
    """The payload is equal byte for byte, and nearly all segments have the sizes on the line."""
    network = make_network(links(2))
    files = ["--trace", str(tmp_path / "trace.parquet"), "--pcap", str(tmp_path)]
    with (
        Tcpdump(network.client, "p1", tmp_path / "seen.pcap", f"tcp port {STREAMS}") as tcpdump,
        _world(network, tmp_path, ["u=if:p0", "t=tcp:,if:p1"], files) as world,
    ):
        with world.tunnel.server.web(site(tmp_path / "site", CAPTURED)):
            assert not world.tunnel.download(CAPTURED).fault(CAPTURED)
        world.splitter.stop()
        tcpdump.stop()
    seen = [one for one in read_pcap(tmp_path / "seen.pcap", TCP) if one.payload]
    written = read_pcapng(network.client, tmp_path / "t.pcapng", TCP)
    trace = _sizes_in_trace(tmp_path / "trace.parquet", 1)
    for is_up in (True, False):
        on_line, own = (
            [one for one in packets if one.is_to_port(STREAMS) == is_up]
            for packets in (seen, written)
        )
        assert _joined(on_line).startswith(_joined(own))
        sizes = [Counter(one.size for one in each) for each in (on_line, own)]
        alike = (sizes[0] & sizes[1]).total() / sizes[0].total()
        results.add("Segments in --pcap and on the line", up=is_up, line=len(on_line),
                    pcap=len(own), alike=alike)  # fmt: skip
        in_trace = {abs(size): n for size, n in trace.items() if (size > 0) == is_up}
        assert Counter(in_trace) == sizes[1]


def _joined(segments: Sequence[Packet]) -> bytes:
    """Returns the payload of one direction's segments in order, without retransmissions."""
    first = segments[0].sequence
    joined = bytearray()
    for one in segments:
        place = (one.sequence - first) % (1 << 32)
        joined[place : place + len(one.payload)] = one.payload
    return bytes(joined)


def _sizes_in_trace(file: Path, path: int) -> Counter[int]:
    table = pyarrow.parquet.ParquetFile(file).read(columns=["path", "size"]).to_pydict()
    rows = zip(table["path"], table["size"], strict=True)
    return Counter(size for each, size in rows if each == path)


def test_a_proxy_that_is_killed_and_started_again_costs_no_session(
    make_network: MakeNetwork, tmp_path: Path, results: Results
) -> None:
    """A download of 200 MiB over UDP and microsocks survives three seconds without microsocks."""
    network = make_network(links(2))
    paths = ["u=if:p0", f"s=socks5-tcp:{SERVER}:{SOCKS},if:p1"]
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(_microsocks(network.server))
        world = stack.enter_context(_world(network, tmp_path, paths))
        stack.enter_context(world.tunnel.server.web(site(tmp_path / "site", LONG)))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        download = pool.submit(world.tunnel.download, LONG, 200.0)
        time.sleep(2)
        ups = world.splitter.changes("s").count("up")
        first.close()
        world.splitter.wait_event("path", path="s", state="down")
        time.sleep(3)
        stack.enter_context(_microsocks(network.server))
        _wait_up(world.splitter, "s", ups + 1, 40)
        transfer = download.result()
        assert not transfer.fault(LONG)
        assert "down" not in world.splitter.changes("u")[1:], world.splitter.of("path")
    results.add("A SOCKS5 proxy away for 3 s, longest gap, s", gap=transfer.longest_gap_s)


def test_openssh_carries_a_path_and_a_connection_that_it_drops_comes_again(
    make_network: MakeNetwork,
    web_root: Path,
    tmp_path: Path,
    results: Results,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A path over `ssh -W` to an unmodified sshd and a UDP path: the hash is right, and both have
    their share. Killed SSH sessions are reconnected.
    """
    network = make_network(links(2))
    with Sshd(network.server, tmp_path) as server:
        _configure(server.ssh(SERVER), tmp_path, monkeypatch)
        # OpenSSH uses the routing table.
        network.client.must(["ip", "route", "replace", f"{SERVER}/32", "dev", "p1"])
        paths = ["u=if:p0", f"b=ssh:{server.user}@{SERVER}:{sshd.PORT}"]
        with _world(network, tmp_path, paths) as world:
            world.splitter.wait_event("path", path="b", state="up")
            before = network.stats()
            with world.tunnel.server.web(web_root / "site"):
                transfer = world.tunnel.download(LENGTH)
            assert not transfer.fault(LENGTH)
            shares = _shares(difference(network.stats(), before))
            assert min(shares) > LEAST_SHARE, shares
            ups = world.splitter.changes("b").count("up")
            _drop_sessions(network.server)
            _wait_up(world.splitter, "b", ups + 1, 20)
            world.tunnel.ping()
    results.add("WireGuard by UDP and OpenSSH, Mbit/s", HTTP=transfer.goodput_mbits)


def test_strangers_at_the_tls_port_see_nginx_and_the_tunnel_goes_by_it(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, results: Results
) -> None:
    """A UDP path and a path in TLS: the hash is right, and both have their share. At the TLS port,
    curl and openssl get nginx's page.
    """
    network = make_network(links(2))
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("a page of nginx\n")
    http = f"server {{ listen {SERVER}:{BEHIND}; root {page}; }}"
    options = ["--listen-tls", f"{SERVER}:{TLS}", "--behind", f"{SERVER}:{BEHIND}"]
    with network.server.start(nginx(tmp_path, http)) as behind:
        behind.wait_bound(BEHIND, "tcp")
        far_key, home_key = farend.make_keys(tmp_path)
        with FarEnd(
            network.server, f"{SERVER}:{PORT}", far_key, every="~10p", options=options
        ) as far:
            fingerprint = far.of("listening")[0]["tls_fingerprint"]
            paths = ["u=if:p0", f"e=tls:{SERVER}:{TLS},if:p1"]
            ends = ["--key", str(home_key), "--tls-fingerprint", fingerprint]
            with Splitter(
                network.client, f"{SERVER}:{farend.PORT}", paths, every="~10p",
                schedule="uniform", options=ends,
            ) as splitter:  # fmt: skip
                splitter.wait_event("path", path="e", state="up")
                transfer, shares = _carried(network, splitter, web_root)
            url = f"https://{SERVER}:{TLS}/"
            told = network.client.must(["curl", "-skv", "--tlsv1.3", url, "--stderr", "-"])
            assert "a page of nginx" in told, told
            assert "nginx/" in told, told
            # A first message of no known protocol is passed to nginx, which refuses it.
            garbage = "\x7f\x7f".ljust(100, "x") + "\r\n\r\n"
            client = ["openssl", "s_client", "-quiet", "-connect", f"{SERVER}:{TLS}"]
            answer = network.client.run(client, text=garbage).stdout
            assert "400 Bad Request" in answer, answer
            assert far.of("stats")[-1]["streams"]["strangers"] <= 1
    assert not transfer.fault(LENGTH)
    assert min(shares) > LEAST_SHARE, shares
    results.add("WireGuard by UDP and TLS, Mbit/s", HTTP=transfer.goodput_mbits)


def _carried(network: Network, splitter: Splitter, web_root: Path) -> tuple[Transfer, list[float]]:
    """Runs a download through WireGuard and a splitter; also returns each path's share of the
    bytes.
    """
    with Tunnel(network.server, network.client, LISTEN) as tunnel:
        _fit(network, splitter, tunnel)
        before = network.stats()
        with tunnel.server.web(web_root / "site"):
            transfer = tunnel.download(LENGTH)
        return transfer, _shares(difference(network.stats(), before))


def _fit(network: Network, splitter: Splitter, tunnel: Tunnel) -> None:
    """Sets the MTU that the splitter recommends, and waits until the tunnel works."""
    mtu = str(splitter.of("listening")[0]["tunnel_mtu"])
    for host, name in [(network.client, tunnel.name), (network.server, tunnel.server.name)]:
        host.must(["ip", "link", "set", name, "mtu", mtu])
    tunnel.ping()


def _wait_up(splitter: Splitter, path: str, times: int, seconds: float) -> None:
    """Waits until a path was reported up ``times`` times."""

    def is_up() -> bool:
        return splitter.changes(path).count("up") >= times

    wait_for(f"path {path} to come back", is_up, seconds)


def _configure(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts an `ssh` first in PATH that reads the test's configuration instead of the user's."""
    words = shlex.split(command)
    # The path sets the port.
    place = words.index("-p")
    del words[place : place + 2]
    wrapper = folder / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")


def _drop_sessions(host: Host) -> None:
    """Kills the processes of sshd that serve a connection, but not the listening one."""
    listed = host.must(["ss", "-Htnp", "state", "established", f"sport = :{sshd.PORT}"])
    pids = {int(part.split(",")[0]) for part in listed.split("pid=")[1:]}
    assert pids, listed
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
