"""A set with the maximum number of legs, in a network of our relays: a guard and a middle for each
leg.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import Results
from harness.seeded import MIB
from harness.torours import OurClient, network_of_ours
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.conflux, pytest.mark.timeout(600)]

LEGS = 8
#: Seconds until our relays have reported their counters, which they do once a second.
TOLD_S = 1.5
#: Seconds in which a set that is in use gets its legs.
GROWN_S = 8.0
LENGTH = 100 * MIB
#: Minimum data of a leg in use, relative to that of each of eight equal legs.
PART = 0.5
#: Number of further relays. Guards are drawn before middles, and a set uses no relay twice.
SPARE = 6
#: Number of SOCKS users, each with a separate set. A set may find no relays for its last leg.
USERS = 4


def test_a_set_of_eight_legs_carries_by_all_of_them(tmp_path: Path, results: Results) -> None:
    """100 MiB arrive intact, by round robin; eight guards and eight middles each carry a part."""
    with ExitStack() as stack:
        network, relays = network_of_ours(tmp_path, stack, 2 * LEGS + SPARE + 1)
        network.start()
        network.wait_for_all()
        dealing = ["--multipath", "conflux-2013-vegas", "--schedule", "round-robin"]
        client = stack.enter_context(
            OurClient(network, tmp_path / "client", "--legs", str(LEGS), *dealing)
        )
        client.wait_ready()
        server = stack.enter_context(FileServer())
        brought = []
        for user in range(USERS):
            proxy = client.proxy.replace("//", f"//user{user}:x@")
            assert not fetch(server.url(MIB), proxy, tmp_path / "first").fault(MIB)
            time.sleep(GROWN_S)
            before = [relay.number("received") for relay in relays[:-1]]
            got = fetch(server.url(LENGTH), proxy, tmp_path / "got", 120.0)
            assert not got.fault(LENGTH), got.fault(LENGTH)
            time.sleep(TOLD_S)
            after = [relay.number("received") for relay in relays[:-1]]
            carried = [now - then for now, then in zip(after, before, strict=True)]
            brought.append(sorted(carried, reverse=True))
            results.add("a set of many legs, MB/s", rate=LENGTH / got.seconds / 1e6)
            if brought[-1][2 * LEGS - 1] > PART * LENGTH / LEGS:
                break
        else:
            raise AssertionError(brought)
        assert client.events("violation") == []
        for relay in relays:
            assert relay.events("violation") == [], relay.name
