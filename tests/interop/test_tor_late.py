"""A network whose authority is down: clients start even after the last consensus has expired."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.seeded import MIB
from harness.tornet import TorNetwork
from harness.torours import OurAuthority, OurClient, OurRelay
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(600)]

INTERVAL = 10
RELAYS = 4


def ends(folder: Path) -> float:
    """Returns the end of the validity of a client's stored consensus, in seconds since 1970."""
    text = (folder / "state" / "cached-microdesc-consensus").read_text()
    until = re.search(r"^valid-until (.*)$", text, re.MULTILINE)
    assert until is not None
    return datetime.strptime(until[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def test_a_client_starts_on_an_expired_consensus_and_says_so(tmp_path: Path) -> None:
    """The consensus was stored by an earlier run; no relay has a newer one, and the authority is
    down.
    """
    with ExitStack() as stack:
        options = ["--expect", str(RELAYS)]
        authority = stack.enter_context(
            OurAuthority(tmp_path / "authority", *options, interval=INTERVAL)
        )
        network = stack.enter_context(
            TorNetwork(tmp_path, authorities=0, relays=0, exits=0, others=[authority.line])
        )
        for number in range(RELAYS):
            rules = ["--exit", "accept *:*"] if number == 0 else []
            relay = OurRelay(network, tmp_path / f"ours{number}", f"ours{number}", *rules)
            stack.enter_context(relay)
        folder = tmp_path / "c"
        with OurClient(network, folder) as client:
            client.wait_ready()
            assert client.events("trouble") == []
        authority.kill()
        time.sleep(max(ends(folder) - time.time() + 1, 0))
        with OurClient(network, folder) as client, FileServer() as server:
            client.wait_ready(30.0)
            got = fetch(server.url(MIB), client.proxy, tmp_path / "got", 30.0)
            assert not got.fault(MIB), got.fault(MIB)
            told = [str(event["what"]) for event in client.events("trouble")]
            assert any("the consensus expired" in line for line in told), told
