"""With all named paths down, no packet leaves, although the default route leads to the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.capture import Tcpdump
from harness.faults import FAULTS
from harness.mosh import PORT as MOSH
from harness.mosh import MoshServer, Screen
from harness.net import SERVER, Link, Network, links, namespaces_allowed
from harness.socks import NEAR, Dante, path, proxied_topology
from harness.splitter import LISTEN, Splitter, interfaces
from harness.tools import MissingPeer, anabranch, wait_for
from harness.wgquick import Quick, write_file
from harness.wireguard import INSIDE_SERVER, PORT, ServerEnd, Tunnel, make_keys, unique

# The uplink that no path uses. It is created first, so its default route is the best one.
OTHER = "other"
DARK_S, BACK_S = 5.0, 30.0

# Sends until an answer of the server arrives, or the given number of seconds has passed.
Works = Callable[[float], bool]
Begin = Callable[[ExitStack, Network, Path], Works]


@pytest.fixture
def network() -> Iterator[Network]:
    """Yields a network: an uplink that no path uses, two links, and a proxy's host. All but the
    proxy's link have default routes.
    """
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    with Network(proxied_topology([Link(OTHER), *links(2)], default_routes=True)) as network:
        yield network


def through_a_proxy(stack: ExitStack, network: Network, folder: Path) -> Works:
    """Starts a tunnel over a link and a SOCKS5 proxy."""
    stack.enter_context(Dante(network.hosts["proxy"], folder))
    paths = [*interfaces(1), path(folder)]
    stack.enter_context(Splitter(network.client, f"{SERVER}:{PORT}", paths))
    stack.enter_context(Tunnel(network.server, network.client, LISTEN))
    return _pings(network)


def by_a_written_file(stack: ExitStack, network: Network, folder: Path) -> Works:
    """Starts a full tunnel (``--wg``), whose mark exempts the splitter's packets from wg-quick's
    rule.
    """
    own = make_keys(network.client)
    server = stack.enter_context(ServerEnd(network.server, own.public))
    file, written = folder / "tunnel.conf", folder / f"{unique('wgc')}.conf"
    end = f"{SERVER}:{PORT}"
    write_file(file, own, server.public, end, interface="", networks="0.0.0.0/0")
    options = ["--wg", str(file), "--write", str(written)]
    stack.enter_context(Splitter(network.client, None, interfaces(2), listen=None, options=options))
    stack.enter_context(Quick(network.client, written))
    return _pings(network)


def by_a_login(stack: ExitStack, network: Network, _: Path) -> Works:
    """Starts ``anabranch mosh``; typed text must return as output."""
    server = stack.enter_context(MoshServer(network.server))
    command = [anabranch(), "mosh", SERVER, "--port", str(MOSH), "--every", "100ms"]
    command += [word for each in interfaces(2) for word in ("--path", each)]
    key = {"MOSH_KEY": server.key}
    screen = stack.enter_context(Screen(network.client.command(command), key))
    assert screen.wait_text("$ ", 15), screen.text()
    typed = iter(range(1, 100))

    def works(seconds: float) -> bool:
        number = next(typed)
        screen.enter(f"echo out-$(({number}+1000))-end\n")
        return screen.wait_text(f"out-{number + 1000}-end", seconds)

    return works


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("begin", "named"),
    [
        pytest.param(through_a_proxy, ["p0", NEAR], id="socks5", marks=pytest.mark.proxies),
        pytest.param(by_a_written_file, ["p0", "p1"], id="wg", marks=pytest.mark.wireguard),
        pytest.param(by_a_login, ["p0", "p1"], id="mosh", marks=pytest.mark.mosh),
    ],
)
def test_nothing_leaves_by_the_default_route_when_all_named_paths_are_gone(
    network: Network, tmp_path: Path, begin: Begin, named: list[str], fault: str
) -> None:
    """The session pauses, the uplink that no path names carries nothing, and later the session
    continues.
    """
    faults = [FAULTS[fault](network, name) for name in named]
    with ExitStack() as stack:
        works = begin(stack, network, tmp_path)
        assert works(15)
        _assert_captures_see(network, tmp_path)
        capture = stack.enter_context(Tcpdump(network.client, OTHER, tmp_path / "o.pcap", "ip"))
        for each in faults:
            each.cut()
        assert not works(DARK_S), "something came back by no path"
        for each in faults:
            each.restore()
        assert works(BACK_S)
        capture.stop()
        assert capture.captured == 0


def _assert_captures_see(network: Network, folder: Path) -> None:
    """Asserts that the unnamed uplink leads to the server, and that captures show its packets."""
    (best,) = network.client.must(["ip", "route", "get", SERVER, "mark", "51820"]).splitlines()[:1]
    assert f"dev {OTHER} " in best
    with Tcpdump(network.client, OTHER, folder / "control.pcap", "ip") as control:
        network.client.must(["ping", "-c", "1", "-W", "5", "-I", OTHER, SERVER])
        control.stop()
    assert control.captured == 2


def _pings(network: Network) -> Works:
    """Returns a check that pings pass in the tunnel."""
    once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]

    def works(seconds: float) -> bool:
        try:
            wait_for("a ping", lambda: network.client.run(once).returncode == 0, seconds)
        except TimeoutError:
            return False
        return True

    return works
