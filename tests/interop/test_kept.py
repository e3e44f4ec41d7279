"""``--tun`` with interference: programs that remove its rules, earlier runs, and simultaneous
runs.

A sender without pauses and a capture of the uplink that no path names show any gap in the rules.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness.capture import Tcpdump
from harness.fair import difference
from harness.interface import (
    ECHO_PORT,
    OURS,
    TUN,
    Sender,
    echo,
    interface,
    tcp,
    tcp_beside,
    udp,
    unchanged,
)
from harness.net import SERVER, SERVER6, Host, Link, Network, links
from harness.seeded import MIB
from harness.splitter import Splitter, interfaces
from harness.tools import anabranch, tool, wait_for

pytestmark = pytest.mark.interface

# A port that is split, and a port that is not.
PORTS = (ECHO_PORT, 53)
MODES = pytest.mark.parametrize("words", [[], ["--netns", OURS]], ids=["host", "netns"])


@pytest.fixture
def network(make_network: MakeNetwork) -> Network:
    """Returns a network of three paths and the uplink with the best default route, which no path
    names.
    """
    return make_network([Link("other"), *links(3)], default_routes=True)


@contextmanager
def _stray(network: Network, uplink: str, folder: Path) -> Iterator[Callable[[], int]]:
    """Yields a function that counts the packets to the server on an uplink from now on."""
    wanted = f"host {SERVER} or host {SERVER6}"
    with Tcpdump(network.client, uplink, folder / f"{uplink}.pcap", wanted) as capture:

        def count() -> int:
            capture.stop()
            return capture.captured

        yield count


def _inside(network: Network, words: list[str]) -> Host:
    return Host("inside", f"/run/netns/{OURS}") if words else network.client


def _restored(splitter: Splitter, text: str, count: int = 1) -> None:
    """Waits until the splitter has reported ``count`` times that it restored something."""

    def said() -> int:
        return sum(text in each["text"] for each in splitter.of("warning"))

    end = time.monotonic() + 5
    while said() < count:
        assert time.monotonic() < end, splitter.of("warning")
        time.sleep(0.02)


@MODES
def test_whoever_flushes_all_rules_opens_nothing(
    network: Network, words: list[str], tmp_path: Path
) -> None:
    """A firewall is reloaded three times, which flushes all rules: sessions and connections
    continue.
    """
    client, host = network.client, _inside(network, words)
    firewall = tmp_path / "firewall"
    firewall.write_text("flush ruleset\ntable inet theirs {}\n")
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(echo(network.server, SERVER6))
        splitter = stack.enter_context(interface(client, interfaces(3), *words))
        host = _inside(network, words)
        count = stack.enter_context(_stray(network, "other", tmp_path))
        long = stack.enter_context(tcp_beside(host, SERVER, 20 * MIB))
        sender = stack.enter_context(Sender(host, (SERVER, SERVER6), PORTS))
        for number in range(3):
            time.sleep(0.5)
            client.must(["nft", "-f", str(firewall)])
            _restored(splitter, "the nftables table inet anabranch_0", number + 1)
        time.sleep(0.5)
        assert sender.stop() > 1000
        assert udp(host, SERVER, [100] * 3) == [100] * 3
        assert tcp(host, SERVER)[0] in {f"10.77.{number}.2" for number in (1, 2, 3)}
        long.wait_until("its end", lambda: f" {20 * MIB}" in long.output(), 30)
        assert count() == 0
        assert "theirs" in client.must(["nft", "list", "ruleset"])


def test_a_guard_that_dies_is_replaced(network: Network) -> None:
    """The guard is a process; another program may kill it."""
    client = network.client
    with interface(client, interfaces(3)) as splitter:

        def guards() -> list[str]:
            processes = f"/proc/{splitter.pid}/task/{splitter.pid}/children"
            return [child for child in Path(processes).read_text().split() if _waits(child)]

        (guard,) = guards()
        os.kill(int(guard), signal.SIGKILL)
        wait_for("another guard", lambda: guards() not in ([], [guard]))
        table = ["nft", "list", "table", "inet", "anabranch_0_guard"]
        wait_for("its table", lambda: client.run(table).returncode == 0)
        assert "drop" in client.must(table)
        assert splitter.of("warning") == []


def _waits(process: str) -> bool:
    """Returns whether a process is an nft that waits for commands, rather than a short one."""
    with contextlib.suppress(OSError):
        return b"-i" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    return False


def test_rules_inside_a_namespace_are_set_again_too(network: Network, tmp_path: Path) -> None:
    """Flushing the rules inside the namespace only delays packets that would be split."""
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        splitter = stack.enter_context(interface(network.client, interfaces(3), "--netns", OURS))
        inside = _inside(network, ["--netns"])
        counts = [stack.enter_context(_stray(network, "other", tmp_path))]
        sender = stack.enter_context(Sender(inside, (SERVER,), (ECHO_PORT,)))
        inside.must(["nft", "flush", "ruleset"])
        _restored(splitter, "the nftables table inet anabranch_0")
        inside.must(["ip", "rule", "del", "priority", "1001"])
        _restored(splitter, "routing rules and routes")
        assert sender.stop() > 0
        assert udp(inside, SERVER, [100] * 3) == [100] * 3
        inside.must(["ip", "link", "set", TUN, "down"])
        assert 100 not in udp(inside, SERVER, [100])
        inside.must(["ip", "link", "set", TUN, "up"])
        time.sleep(1)
        assert udp(inside, SERVER, [100] * 3) == [100] * 3
        assert [count() for count in counts] == [0]


def test_routing_rules_and_tables_that_others_remove_are_set_again(
    network: Network, tmp_path: Path, results: Results
) -> None:
    """As network managers do with foreign ones. What leaves until then is measured."""
    client = network.client
    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        splitter = stack.enter_context(interface(client, interfaces(3)))
        shown = [client.must(["ip", family, "rule"]) for family in ("-4", "-6")]
        for number, (what, words) in enumerate(_TAKEN.items(), 1):
            folder = tmp_path / str(number)
            folder.mkdir()
            with ExitStack() as inner:
                count = inner.enter_context(_stray(network, "other", folder))
                sender = inner.enter_context(Sender(client, (SERVER, SERVER6), PORTS))
                for command in words:
                    client.must(command)
                _restored(splitter, "routing rules and routes", number)
                time.sleep(0.3)
                sender.stop()
                gap = count()
            results.add("What leaves before removed rules are set again", removed=what, packets=gap)
            # Four sockets send one datagram a millisecond each.
            assert gap <= (4 * 100 if what == "all rules" else 0), what
        assert [client.must(["ip", family, "rule"]) for family in ("-4", "-6")] == shown
        assert udp(client, SERVER, [100] * 3) == [100] * 3


_TAKEN = {
    "a rule": [["ip", "rule", "del", "priority", "1001", "table", str(0xAB00FF)]],
    "specific routes' rule": [["ip", "rule", "del", "priority", "1000"]],
    "a path's table": [["ip", "route", "flush", "table", str(0xAB0001)]],
    "the interface's table": [["ip", "route", "flush", "table", str(0xAB00FF)]],
    "all rules": [["sh", "-c", "for f in 4 6; do ip -$f rule flush protocol 171; done"]],
}


def test_rules_that_cannot_be_set_again_end_the_run_with_all_closed(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no packet leaves, one message reports this, and ``--restore`` removes the block."""
    client = network.client
    fickle = tmp_path / "bin" / "nft"
    fickle.parent.mkdir()
    fickle.write_text(f'#!/bin/sh\nexec {tool("nft")} "$@"\n')
    fickle.chmod(0o755)
    with ExitStack() as stack:
        stack.enter_context(unchanged(client))
        stack.enter_context(echo(network.server, SERVER))
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{fickle.parent}", prepend=":")
            splitter = stack.enter_context(interface(client, interfaces(3)))
        count = stack.enter_context(_stray(network, "other", tmp_path))
        sender = stack.enter_context(Sender(client, (SERVER, SERVER6), PORTS))
        time.sleep(0.3)
        fickle.write_text("#!/bin/sh\necho Error: no more >&2\nexit 1\n")
        client.must(["nft", "flush", "ruleset"])
        splitter.wait_end()
        assert splitter.end_by(signal.SIGCONT) == 1
        lines = splitter.errors().splitlines()
        assert len([line for line in lines if "--restore" in line]) == 1, lines
        time.sleep(0.3)
        sender.stop()
        for server in (SERVER, SERVER6):
            assert client.run(["ip", "route", "get", server]).returncode != 0
        assert count() == 0
        client.must([anabranch(), "split", "--restore"])


@MODES
def test_nothing_leaves_between_a_killed_run_and_the_next(
    network: Network, words: list[str], tmp_path: Path
) -> None:
    """The next run has one path fewer: even that path's flows do not leave."""
    client = network.client
    with ExitStack() as stack:
        stack.enter_context(unchanged(client))
        stack.enter_context(echo(network.server, SERVER))
        with interface(client, interfaces(3), *words) as splitter:
            sender = stack.enter_context(
                Sender(_inside(network, words), (SERVER, SERVER6), (*PORTS, 54, 55))
            )
            other = stack.enter_context(_stray(network, "other", tmp_path))
            time.sleep(0.5)
            splitter.end_by(signal.SIGKILL)
        for _ in range(3):
            with interface(client, interfaces(2), *words) as splitter:
                time.sleep(0.3)
                splitter.end_by(signal.SIGKILL)
        with interface(client, interfaces(2), *words):
            gone = stack.enter_context(_stray(network, "p2", tmp_path))
            time.sleep(0.3)
            assert sender.stop() > 100
            assert udp(_inside(network, words), SERVER, [100] * 3) == [100] * 3
            assert gone() == 0
            assert other() == 0


def test_two_runs_in_namespaces_go_on_beside_each_other(network: Network) -> None:
    """Both runs use the same paths; the first to start is the first to end."""
    client = network.client
    second_name = f"{OURS}-2"
    first_host = Host("first", f"/run/netns/{OURS}")
    second_host = Host("second", f"/run/netns/{second_name}")

    def goes_on(host: Host) -> None:
        for server in (SERVER, SERVER6):
            assert udp(host, server, [50] * 3) == [50] * 3
            assert [tcp(host, server, length=MIB)[1] for _ in range(3)] == [MIB] * 3

    with ExitStack() as stack:
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(echo(network.server, SERVER6))
        stack.enter_context(unchanged(client))
        first = stack.enter_context(interface(client, interfaces(3), "--netns", OURS))
        second = stack.enter_context(interface(client, interfaces(3), "--netns", second_name))
        goes_on(first_host)
        goes_on(second_host)
        first.stop()
        goes_on(second_host)
        second.end_by(signal.SIGKILL)
        with interface(client, interfaces(3), "--netns", OURS):
            goes_on(first_host)


def test_a_machine_that_forwards_ipv4_does_not_forward_strangers_ipv6(
    network: Network, tmp_path: Path
) -> None:
    """A neighbour uses the client as its router: only packets that passed before pass now."""
    client, server = network.client, network.server
    with ExitStack() as stack:
        shell = stack.enter_context(client.start(["unshare", "-n", "sleep", "100"]))
        stranger = _stranger(client, shell.pid)
        _set(client, "ipv4/ip_forward", 1)
        server.must(["ip", "route", "add", "10.55.0.2", "via", "10.77.1.2"])
        server.must(["ip", "-6", "route", "add", "fd55::2", "via", "fd77:1::2"])
        stack.enter_context(unchanged(client))
        assert _reaches(server, "10.55.0.2")
        assert not _reaches(server, "fd55::2")
        with interface(client, interfaces(3), "--netns", OURS):
            wanted = "ip6 dst host fd55::2"
            seen = stack.enter_context(Tcpdump(stranger, "s1", tmp_path / "s1.pcap", wanted))
            assert _reaches(server, "10.55.0.2")
            assert not _reaches(server, "fd55::2")
            seen.stop()
            assert seen.captured == 0
            inside = _inside(network, ["--netns"])
            stack.enter_context(echo(server, SERVER6))
            assert tcp(inside, SERVER6)[1] == 10
        # Control: with forwarding, the packet arrives.
        _set(client, "ipv6/conf/all/forwarding", 1)
        assert _reaches(server, "fd55::2")
        _set(client, "ipv6/conf/all/forwarding", 0)


def _set(host: Host, name: str, value: int) -> None:
    host.must(["sh", "-c", f"echo {value} > /proc/sys/net/{name}"])


def _stranger(client: Host, process: int) -> Host:
    """Returns a host behind the client, in the network namespace of a process."""
    stranger = Host("stranger", f"/proc/{process}/ns/net")
    add = ["ip", "link", "add", "s0", "type", "veth", "peer", "name", "s1", "netns", str(process)]
    client.must(add)
    for host, end, last in ((client, "s0", 1), (stranger, "s1", 2)):
        host.must(["ip", "address", "add", f"10.55.0.{last}/24", "dev", end])
        host.must(["ip", "address", "add", f"fd55::{last}/64", "dev", end, "nodad"])
        host.must(["ip", "link", "set", end, "up"])
    stranger.must(["ip", "route", "add", "default", "via", "10.55.0.1"])
    stranger.must(["ip", "-6", "route", "add", "default", "via", "fd55::1"])
    # New interfaces cannot resolve their neighbours at first.
    ping = ["ping", "-c", "1", "-W", "1", "fd55::2"]
    wait_for("the stranger", lambda: client.run(ping).returncode == 0)
    return stranger


def _reaches(host: Host, address: str) -> bool:
    source = SERVER6 if ":" in address else SERVER
    words = ["ping", "-c", "4", "-i", "0.3", "-W", "1", "-I", source, address]
    return host.run(words).returncode == 0


def test_sessions_go_on_when_another_run_ends(network: Network) -> None:
    """When the run in a namespace ends, it does not remove the settings of the machine's run."""
    client = network.client
    strict = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 > $f; done"
    client.must(["sh", "-c", strict])
    with ExitStack() as stack:
        stack.enter_context(unchanged(client))
        stack.enter_context(echo(network.server, SERVER))
        stack.enter_context(interface(client, interfaces(3), every="1p"))
        with interface(client, interfaces(3), "--netns", OURS):
            assert udp(_inside(network, ["--netns"]), SERVER, [50] * 3) == [50] * 3
        before = network.stats()
        assert udp(client, SERVER, [50] * 6) == [50] * 6
        assert len({tcp(client, SERVER)[0] for _ in range(3)}) == 3
        carried = difference(network.stats(), before)
        assert all(carried[name].down_packets > 0 for name in ("p0", "p1", "p2"))
