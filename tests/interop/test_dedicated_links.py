"""Our relay between stock tors, with a TCP connection for each circuit, and with MPTCP sockets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.losing import LENGTHS, LIMIT, PATIENCE
from harness.tools import wait_for
from harness.tornet import TorNetwork
from harness.torours import OurClient, OurRelay
from harness.webfiles import fetch_all

pytestmark = [pytest.mark.links, pytest.mark.timeout(LIMIT)]

#: Users of the client, each with a separate circuit.
USERS = 12


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TorNetwork, OurRelay]]:
    """Yields a network: three authorities, two relays and an exit of C tor, and our middle."""
    folder = tmp_path_factory.mktemp("tor")
    with TorNetwork(folder, relays=2, exits=1) as network:
        words = ("--link", "tls-per-circuit", "--mptcp", "--threads", "2")
        middle = OurRelay(network, folder / "middle", "middle", *words)
        network.others = {"middle": middle.fingerprint}
        try:
            network.start()
            network.wait_for_all()
            yield network, middle
        finally:
            middle.close()


def series(relay: OurRelay, which: str) -> int:
    """Returns one of a relay's Prometheus metrics."""
    return int(relay.scrape().get(f"anabranch_relay_{which}", 0))


def ended(relay: OurRelay) -> int:
    """Returns the number of the relay's circuits that have ended."""
    return series(relay, "circuits_made_total") - series(relay, "circuits")


def test_a_stock_neighbour_takes_a_connection_for_each_circuit(
    world: tuple[TorNetwork, OurRelay], tmp_path: Path, results: Results
) -> None:
    """All bytes arrive, connections close with their circuits, and no node logs a complaint."""
    network, middle = world
    guard, last = network.of("relay")[0].fingerprint, network.of("exit")[0].fingerprint
    pins = ["--legs", "1", "--entry", guard, "--middle", middle.fingerprint, "--exit", last]
    with OurClient(network, tmp_path / "client", *pins) as client:
        client.wait_ready()
        add = partial(results.add, "a link for each circuit, between stock tors")
        for user in range(USERS):
            proxy = client.proxy.replace("//", f"//user{user}:user{user}@")
            fetch_all(proxy, tmp_path, add, LENGTHS if user == 0 else LENGTHS[:2], PATIENCE)
        links = series(middle, "dedicated_links")
        results.add("a link for each circuit", circuits=USERS, links=links)
        assert links >= USERS
        # C tor uses TCP sockets, so no link is MPTCP.
        assert series(middle, "mptcp_links") == 0
        assert series(middle, "mptcp_fell_back") >= USERS
        before = ended(middle)

    # When a link closes, a stock guard sends DESTROY for one of its circuits at once, and for the
    # others when it has something else to send.
    with OurClient(network, tmp_path / "next", *pins) as client:
        client.wait_ready()
        wait_for("circuits that end", lambda: ended(middle) >= before + USERS, 60)

    # Stock tors also have circuits through it, which stay open.
    def is_each_used() -> bool:
        return 0 < series(middle, "dedicated_links") <= series(middle, "circuits")

    wait_for("links that end with them", is_each_used, 60)
    results.add(
        "a link for each circuit, the client gone",
        circuits=series(middle, "circuits"),
        links=series(middle, "dedicated_links"),
    )
    assert network.complaints() == []
    assert middle.violations() == []
