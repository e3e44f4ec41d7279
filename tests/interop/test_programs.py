"""Other programs with the splitter: tests of the statements in `docs/guide/any-program.md`."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import MakeNetwork, Results
from harness import quicktun, singbox
from harness.interface import ECHO_PORT, interface
from harness.net import SERVER, Host, Network, links
from harness.report import shares
from harness.seeded import MIB
from harness.splitter import LISTEN, Splitter, interfaces
from harness.tools import INTEROP, MissingPeer, PeerFailed, wait_for
from harness.transfer import site
from harness.wgquick import amnezia, settings, write_file
from harness.wireguard import DISGUISE, INSIDE_SERVER, PORT, ServerEnd, Tunnel, fetch, make_keys

pytestmark = pytest.mark.programs

LENGTH = 10 * MIB
# Bytes of a download that lasts more than three runs of a second.
LONG = 30 * MIB
SLOW = {"rate": "50mbit", "queue": "125kB"}
ANY = ["--protocol", "any"]


def split(network: Network, port: int, paths: int = 3, *options: str, every: str = "100ms") -> Any:
    """Starts a splitter towards a port of the server."""
    to = f"{SERVER}:{port}"
    return Splitter(network.client, to, interfaces(paths), options=options, every=every)


def asked(host: Host, words: list[str], seconds: float = 60.0) -> dict[str, Any]:
    """Runs a client that prints one line of JSON."""
    said: dict[str, Any] = json.loads(host.run(words, timeout=seconds).stdout)
    return said


def test_boringtun_follows_at_once(
    make_network: MakeNetwork, tmp_path: Path, results: Results
) -> None:
    """Boringtun at both ends: the hash is right, all paths carry both directions, and nothing is
    reported.
    """
    network = make_network(links(3, **SLOW))
    root = site(tmp_path / "site", LENGTH)
    with (
        split(network, PORT) as splitter,
        Tunnel(network.server, network.client, LISTEN, program="boringtun-cli") as tunnel,
    ):
        tunnel.ping()
        with tunnel.server.web(root):
            transfer = tunnel.download(LENGTH, 60)
        carried = shares(network.stats())
        results.add(
            "Programs", program="boringtun", mbits=transfer.goodput_mbits,
            up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
        assert not transfer.fault(LENGTH)
        assert min(carried_down(carried)) > 0.15
        assert splitter.of("session")[-1]["protocol"] == "wireguard"
        assert not splitter.of("skewed")


@pytest.mark.parametrize("options", [[], ["--protocol", "wireguard"]], ids=["auto", "named"])
def test_amneziawg_follows_at_once(
    make_network: MakeNetwork, tmp_path: Path, results: Results, options: list[str]
) -> None:
    """amneziawg-go at both ends with disguised packets: the hash is right, all paths carry both
    directions, and nothing is reported.
    """
    network = make_network(links(3, **SLOW))
    root = site(tmp_path / "site", LENGTH)
    with (
        split(network, PORT, 3, *options) as splitter,
        Tunnel(network.server, network.client, LISTEN, program="amneziawg-go") as tunnel,
    ):
        tunnel.ping()
        with tunnel.server.web(root):
            transfer = tunnel.download(LENGTH, 60)
        carried = shares(network.stats())
        protocol = splitter.of("session")[-1]["protocol"]
        results.add(
            "Programs", program="amneziawg-go", protocol=protocol, mbits=transfer.goodput_mbits,
            up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
        assert not transfer.fault(LENGTH)
        assert min(carried_down(carried)) > 0.15
        assert protocol == ("wireguard" if options else "other")
        assert not splitter.of("skewed")


@pytest.mark.parametrize("options", [[], ["--protocol", "wireguard"]], ids=["auto", "named"])
def test_a_file_of_amneziawg_is_carried_with_its_own_keys(
    make_network: MakeNetwork, tmp_path: Path, results: Results, options: list[str]
) -> None:
    """``split --wg FILE --write COPY`` keeps the obfuscation's keys in the copy, whose MTU leaves
    room for the padding. With this copy amneziawg-go passes pings and a download over all paths,
    with one warning.
    """
    network = make_network(links(3, **SLOW))
    root = site(tmp_path / "site", LENGTH)
    own = make_keys(network.client)
    file, copy = tmp_path / "home.conf", tmp_path / "split.conf"
    keys = "".join(f"{key.title()} = {value}\n" for key, value in DISGUISE.items())
    options = ["--wg", str(file), "--write", str(copy), *options]
    with ServerEnd(network.server, own.public, program="amneziawg-go") as server:
        networks = f"{INSIDE_SERVER}/32"
        write_file(file, own, server.public, f"{SERVER}:{PORT}", interface=keys, networks=networks)
        with (
            Splitter(network.client, None, interfaces(3), listen=None, options=options) as splitter,
            amnezia(network.client, copy),
        ):
            pings = ["ping", "-q", "-i", "0.1", "-c", "20", "-W", "2", INSIDE_SERVER]
            once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]
            wait_for("a ping in the tunnel", lambda: network.client.run(once).returncode == 0)
            assert " 0% packet loss" in network.client.must(pings)
            with server.web(root):
                transfer = fetch(network.client, LENGTH, 60)
            carried = shares(network.stats())
            splitter.stop()
    results.add(
        "Programs", program="amneziawg-go, --wg FILE", protocol="wireguard",
        mbits=transfer.goodput_mbits, up=carried_up(carried), down=carried_down(carried),
    )  # fmt: skip
    assert not transfer.fault(LENGTH)
    assert min(*carried_up(carried), *carried_down(carried)) > 0.15
    given, written = settings(file), settings(copy)
    assert {key: written[key] for key in DISGUISE} == DISGUISE
    assert written["mtu"] == str(1500 - 20 - 8 - 32 - int(DISGUISE["s4"]))
    assert {key for key in written if written[key] != given.get(key)} == {"endpoint", "mtu"}
    assert splitter.of("session")[-1]["protocol"] == "wireguard"
    assert len(splitter.of("numbers_in_clear")) == 1
    assert not splitter.of("skewed")


def _tinc(host: Host, folder: Path, name: str, address: str, connect: str) -> list[str]:
    """Writes the configuration and key of a node, and returns the words that start it."""
    home = folder / name
    (home / "hosts").mkdir(parents=True)
    key = home / "rsa_key.priv"
    host.must(["openssl", "genrsa", "-traditional", "-out", str(key), "2048"])
    public = host.must(["openssl", "rsa", "-in", str(key), "-RSAPublicKey_out"])
    (folder / f"{name}.host").write_text(f"Address = {SERVER}\nSubnet = {address}/32\n{public}")
    (home / "tinc.conf").write_text(f"Name = {name}\nInterface = {name}\n{connect}")
    up = home / "tinc-up"
    lines = ["#!/bin/sh", f"ip address add {address}/24 dev $INTERFACE"]
    up.write_text("\n".join([*lines, "ip link set $INTERFACE up", ""]))
    up.chmod(0o755)
    return ["tincd", "-D", "-c", str(home), f"--pidfile={home}/pid"]


def test_tinc_drops_what_comes_from_other_addresses(
    make_network: MakeNetwork, tmp_path: Path, results: Results
) -> None:
    """With ``--tun``, tinc 1.0's TCP connection is pinned; its UDP is split, and mostly lost."""
    network = make_network(links(3, **SLOW), default_routes=True)
    server = _tinc(network.server, tmp_path, "tincs", "10.13.0.1", "")
    client = _tinc(network.client, tmp_path, "tincc", "10.13.0.2", "ConnectTo = tincs\n")
    for end in ("tincs", "tincc"):
        for other in ("tincs", "tincc"):
            text = (tmp_path / f"{other}.host").read_text()
            (tmp_path / end / "hosts" / other).write_text(text)
    root = site(tmp_path / "site", LENGTH)
    with (
        interface(network.client, interfaces(3), "--udp", "655") as splitter,
        network.server.start(server),
        network.client.start(client),
    ):
        once = ["ping", "-c", "1", "-W", "1", "10.13.0.1"]
        wait_for("a ping", lambda: network.client.run(once).returncode == 0, 30)
        with web(network.server, root, "10.13.0.1"):
            transfer = fetch(network.client, LENGTH, 20.0, "10.13.0.1")
        carried = shares(network.stats())
        reports = [f"{each['path']} {each['state']}" for each in splitter.of("path")]
        results.add(
            "Programs", program="tinc", mbits=transfer.goodput_mbits, reports=", ".join(reports),
            up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
    assert transfer.goodput_mbits < 20


@pytest.mark.parametrize("delay", ["10ms", "70ms"], ids=["alike", "60 ms slower"])
def test_quicktun_follows_at_once_and_drops_what_is_late(
    make_network: MakeNetwork, results: Results, delay: str
) -> None:
    """A thousand pings, 200 a second. Packets have a cleartext time and counter, and the server
    drops packets that arrive out of order.
    """
    first, second = links(2, **SLOW)
    other = type(second)(second.name, delay=delay, rate=second.rate, queue=second.queue)
    network = make_network([first, other])
    with (
        split(network, quicktun.PORT, 2) as splitter,
        quicktun.tunnel(network.server, network.client, LISTEN),
    ):
        pings = ["ping", "-q", "-i", "0.005", "-c", "1000", "-W", "2", quicktun.INSIDE_SERVER]
        back = re.search(r"(\d+) received", network.client.run(pings, timeout=60).stdout)
        answered = int(back[1]) / 1000 if back else 0.0
        carried = shares(network.stats())
        results.add(
            "Programs", program=f"quicktun {delay}", answered=answered,
            up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
        assert not splitter.of("skewed")
        assert splitter.of("numbers_in_clear")
    assert min(*carried_up(carried), *carried_down(carried)) > 0.2
    assert (answered > 0.95) == (delay == "10ms")


@contextlib.contextmanager
def web(server: Host, root: Path, address: str = SERVER) -> Iterator[None]:
    """Serves files over HTTP."""
    words = [sys.executable, "-m", "http.server", "80", "--bind", address]
    with server.start([*words, "--directory", str(root)]) as process:
        process.wait_bound(80, "tcp")
        yield


def by_socks(host: Host, length: int, seconds: int) -> int:
    """Returns the bytes of a download through the SOCKS5 proxy at ``singbox.LOCAL``."""
    url = f"http://{SERVER}/bytes/{length}"
    words = host.command(["curl", "-sS", "-m", str(seconds), "-x"])
    words += [f"socks5h://127.0.0.1:{singbox.LOCAL}", url]
    return len(subprocess.run(words, capture_output=True, check=False).stdout)


@pytest.mark.parametrize("kind", ["hysteria2", "tuic"])
def test_proxies_over_quic_are_split(
    make_network: MakeNetwork, tmp_path: Path, results: Results, kind: str
) -> None:
    """With sing-box, the download is intact, over all paths both ways, and nothing is reported."""
    network = make_network(links(3, **SLOW))
    root = site(tmp_path / "site", LONG)
    with (
        web(network.server, root),
        split(network, singbox.PORT, every="1000ms") as splitter,
        singbox.proxy(kind, network.server, network.client, tmp_path, LISTEN),
    ):
        assert by_socks(network.client, LONG, 60) == LONG
        carried = shares(network.stats())
        results.add("Programs", program=kind, up=carried_up(carried), down=carried_down(carried))
        assert min(carried_up(carried)) > 0.05, carried
        assert not splitter.of("skewed")
        assert splitter.of("released")


@pytest.mark.parametrize("kind", ["shadowsocks", "shadowsocks 2022"])
def test_shadowsocks_has_a_flow_for_each_path_or_answers_by_the_first(
    make_network: MakeNetwork, tmp_path: Path, results: Results, kind: str
) -> None:
    """With AEAD ciphers all echoes return, and the target sees a port for each path. With 2022
    ciphers there is one flow, answered only on the first path, which is reported.
    """
    network = make_network(links(3, **SLOW))
    with (
        network.server.start([sys.executable, "-c", _COUNTING_ECHO, SERVER]) as echo,
        split(network, singbox.PORT, 3, *ANY) as splitter,
        singbox.proxy(kind, network.server, network.client, tmp_path, LISTEN, udp_to=ECHO_PORT),
    ):
        echo.wait_bound(ECHO_PORT)
        words = [sys.executable, "-c", _STREAM, "127.0.0.1", str(singbox.LOCAL), "600"]
        answered = asked(network.client, words)["answered"]
        flows = len(set(echo.output().split()))
        carried = shares(network.stats())
        results.add(
            "Programs", program=kind, answered=answered / 600, flows=flows,
            up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
    assert answered >= 590
    assert flows == (3 if kind == "shadowsocks" else 1)
    assert bool(splitter.of("skewed")) == (kind == "shadowsocks 2022")


@pytest.mark.parametrize("options", [[], ANY], ids=["kept", "any"])
def test_kcp_is_kept_to_one_path_and_split_it_is_answered_by_the_first(
    make_network: MakeNetwork, results: Results, options: list[str]
) -> None:
    """kcp-go's listener makes a session for each address, so packets on the other paths are lost
    until the splitter leaves these paths.
    """
    network = make_network(links(3, **SLOW))
    with (
        network.server.start(["kcp", "-listen", f"{SERVER}:4000"]) as server,
        split(network, 4000, 3, *options) as splitter,
    ):
        server.wait_bound(4000)
        words = ["kcp", "-dial", LISTEN, "-bytes", str(LENGTH), "-timeout", "15s"]
        said = asked(network.client, words)
        carried = shares(network.stats())
        results.add(
            "Programs", program=f"kcp {options}", bytes=said["bytes"], error=said["error"],
            up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
        known = [event["protocol"] for event in splitter.of("session")]
        kept = splitter.of("session")[-1]["one_path"]
    assert said["bytes"] == LENGTH
    assert max(carried_down(carried)) > 0.99
    if options:
        assert min(carried_up(carried)) > 0.1
        assert [e["reason"] for e in splitter.of("path")] == ["never-answered"] * 2
    else:
        assert (known[-1], kept is None) == ("kcp", False)
        assert max(carried_up(carried)) > 0.99


def test_kcp_as_kcptun_sends_it_is_not_recognised_and_answered_by_the_first_path(
    make_network: MakeNetwork, results: Results
) -> None:
    """KCP is encrypted and has error correction here. Packets on other paths are lost until the
    splitter leaves these paths.
    """
    network = make_network(links(3, **SLOW))
    with (
        network.server.start(["kcp", "-listen", f"{SERVER}:4000", "-kcptun"]) as server,
        split(network, 4000) as splitter,
    ):
        server.wait_bound(4000)
        words = ["kcp", "-dial", LISTEN, "-bytes", str(LENGTH), "-timeout", "30s", "-kcptun"]
        said = asked(network.client, words)
        carried = shares(network.stats())
        results.add(
            "Programs", program="kcp as kcptun", bytes=said["bytes"], seconds=said["seconds"],
            error=said["error"], up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
    assert said["bytes"] == LENGTH
    assert splitter.of("session")[-1]["protocol"] == "other"
    assert max(carried_down(carried)) > 0.95
    assert [e["reason"] for e in splitter.of("path")] == ["never-answered"] * 2


@pytest.mark.parametrize("options", [[], ANY], ids=["kept", "any"])
def test_srt_is_kept_to_one_path_and_split_the_first_alone_counts(
    make_network: MakeNetwork, results: Results, options: list[str]
) -> None:
    """srt-live-transmit sends a live stream of 3 Mbit/s up."""
    network = make_network(links(3, **SLOW))
    listener = ["srt-live-transmit", "-q", f"srt://{SERVER}:4000?mode=listener"]
    caller = ["srt-live-transmit", "-q", "udp://127.0.0.1:5000", f"srt://{LISTEN}"]
    with (
        network.server.start([sys.executable, "-c", _COUNT, "5001"]) as counter,
        network.server.start([*listener, "udp://127.0.0.1:5001"]) as server,
        split(network, 4000, 3, *options) as splitter,
    ):
        server.wait_bound(4000)
        with network.client.start(caller) as process:
            process.wait_bound(5000)
            splitter.wait_event("session", 10)
            network.client.must([sys.executable, "-c", _FEED, "5000", "2000"], timeout=30)
        arrived = int((counter.output().split() or ["0"])[-1])
        carried = shares(network.stats())
        kept = splitter.of("session")[-1]["one_path"]
        results.add(
            "Programs", program=f"srt {options}", arrived=arrived / 2000, up=carried_up(carried),
            down=carried_down(carried),
        )  # fmt: skip
    if options:
        assert min(carried_up(carried)) > 0.05
        assert max(carried_down(carried)) > 0.95
    else:
        assert kept is not None
        assert [event["path"] for event in splitter.of("kept")] == ["p0"], "reported after 3 s"
        assert arrived > 1980
        assert max(carried_up(carried)) > 0.99


@pytest.mark.parametrize("options", [[], ANY], ids=["kept", "any"])
def test_enet_is_kept_to_one_path(
    make_network: MakeNetwork, results: Results, options: list[str]
) -> None:
    """Echoes of reliable messages by the ENet library itself, over ctypes."""
    if not list(Path("/usr/lib").glob("*/libenet.so.7")):
        raise MissingPeer("libenet.so.7 is not installed; tests/interop/setup installs it")
    network = make_network(links(3, **SLOW))
    script = [sys.executable, str(INTEROP / "peers/enet/echo.py")]
    with (
        network.server.start([*script, "listen", f"{SERVER}:4000"]) as server,
        split(network, 4000, 3, *options) as splitter,
    ):
        server.wait_bound(4000)
        said = asked(network.client, [*script, "dial", LISTEN, "300"])
        carried = shares(network.stats())
        kept = splitter.of("session")[-1]["one_path"]
        results.add(
            "Programs", program=f"enet {options}", answered=said["answered"] / 300,
            error=said["error"], up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
    if options:
        assert max(carried_down(carried)) > 0.95
    else:
        assert kept is not None
        assert said["answered"] == 300
        assert max(carried_up(carried)) > 0.99


@pytest.mark.parametrize("check", [True, False], ids=["checks addresses", "-c"])
def test_iodine_needs_an_option_of_its_server(
    make_network: MakeNetwork, results: Results, check: bool
) -> None:
    """Without ``-c`` the server refuses packets from other addresses than the login's."""
    network = make_network(links(3, **SLOW))
    own = ["iodined", "-f", "-P", "of-a-test", "-l", SERVER, "-d", "dns-s"]
    own += [*([] if check else ["-c"]), "10.12.0.1/27", "t.example"]
    other = ["iodine", "-f", "-r", "-P", "of-a-test", "-d", "dns-c", "127.0.0.1", "t.example"]
    with (
        network.server.start(own) as server,
        Splitter(network.client, f"{SERVER}:53", interfaces(3), listen="127.0.0.1:53", options=ANY),
    ):
        server.wait_bound(53)
        with network.client.start(other) as client:
            with contextlib.suppress(PeerFailed):
                client.wait_until("login", lambda: "Connection setup" in client.output(), 40)
            words = ["ping", "-q", "-i", "0.2", "-c", "50", "-W", "2", "10.12.0.1"]
            said = network.client.run(words, timeout=60).stdout
            back = re.search(r"(\d+) received", said)
        answered = int(back[1]) / 50 if back else 0.0
        carried = shares(network.stats())
        results.add(
            "Programs", program=f"iodine {'' if check else '-c'}", answered=answered,
            up=carried_up(carried), down=carried_down(carried),
        )  # fmt: skip
    assert (answered < 0.5) == check


@pytest.mark.parametrize("delay", ["10ms", "70ms"], ids=["alike", "60 ms slower"])
@pytest.mark.parametrize("pause", ["5ms", "500us"])
@pytest.mark.parametrize("options", [[], ["--in-order", "60ms"]], ids=["plain", "in order"])
def test_dtls_with_connection_ids_is_split(
    make_network: MakeNetwork, results: Results, delay: str, pause: str, options: list[str]
) -> None:
    """pion: over equal paths (almost) all echoes return. Its replay window of 64 records drops
    packets of a path that is slower by more records.
    """
    count = 1000 if pause == "5ms" else 6000
    first, second = links(2, **SLOW)
    other = type(second)(second.name, delay=delay, rate=second.rate, queue=second.queue)
    network = make_network([first, other])
    with (
        network.server.start(["dtls", "-listen", f"{SERVER}:4000"]) as server,
        split(network, 4000, 2, *options) as splitter,
    ):
        server.wait_bound(4000)
        said = asked(
            network.client, ["dtls", "-dial", LISTEN, "-count", str(count), "-pause", pause]
        )
        carried = shares(network.stats())
        results.add(
            "Programs", program=f"dtls {delay} {pause} {options}",
            answered=said["answered"] / count, down=carried_down(carried),
        )  # fmt: skip
        known = splitter.of("session")[-1]
        assert not splitter.of("skewed")
    assert known["one_path"] is None, known
    assert min(carried_down(carried)) > 0.1, carried
    assert said["answered"] / count > (0.95 if delay == "10ms" or pause == "5ms" else 0.4)


def carried_up(carried: dict[str, tuple[float, float]]) -> list[float]:
    """Returns each path's share of the uplink."""
    return [round(each[0], 2) for each in carried.values()]


def carried_down(carried: dict[str, tuple[float, float]]) -> list[float]:
    """Returns each path's share of the downlink."""
    return [round(each[1], 2) for each in carried.values()]


# A program that prints the number of datagrams received so far.
_COUNT = """\
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("127.0.0.1", int(sys.argv[1])))
    count = 0
    while s.recv(65535):
        count += 1
        print(count, flush=True)
"""

# A program that sends the given number of datagrams of MPEG-TS's size, 300 per second.
_FEED = """\
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for number in range(int(sys.argv[2])):
        s.sendto(bytes([0x47]) * 1316, ("127.0.0.1", int(sys.argv[1])))
        time.sleep(1 / 300)
    time.sleep(1)
"""

# A server that answers UDP datagrams, and prints the source port of each client.
_COUNTING_ECHO = f"""\\
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], {ECHO_PORT}))
    while True:
        data, peer = s.recvfrom(65535)
        print(peer[1], flush=True)
        s.sendto(data, peer)
"""

# A program that sends the given number of datagrams, 100 per second, and prints the number of
# different answers.
_STREAM = """\\
import json, socket, sys, threading, time
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
back = set()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.connect((host, port))
    def read():
        while True:
            try:
                back.add(s.recv(65535)[:4])
            except OSError:
                return
    threading.Thread(target=read, daemon=True).start()
    for number in range(count):
        s.send(number.to_bytes(4, "big") + bytes(300))
        time.sleep(0.01)
    time.sleep(1)
print(json.dumps({"answered": len(back)}))
"""
