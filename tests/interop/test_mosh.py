"""Mosh: Debian's server and client, with the splitter between them."""

from __future__ import annotations

import pytest

from conftest import MakeNetwork, Results
from harness.fair import unfair, weighted_bounds
from harness.mosh import PORT, Login, MoshServer
from harness.net import SERVER, links
from harness.splitter import Splitter, interfaces

pytestmark = pytest.mark.mosh

SECONDS = 30
LISTEN = f"127.0.0.1:{PORT}"


@pytest.mark.parametrize("every", ["10ms", "100ms"])
def test_a_login_loses_no_output_and_uses_all_paths_both_ways(
    make_network: MakeNetwork, results: Results, every: str
) -> None:
    """The output of every command appears on the screen, and the client exits with status 0."""
    network = make_network(links(3))
    with (
        MoshServer(network.server) as server,
        Splitter(
            network.client, f"{SERVER}:{PORT}", interfaces(3), every=every, listen=LISTEN
        ) as splitter,
        Login(network.client, "127.0.0.1", PORT, server.key) as login,
    ):
        result = login.run_for(SECONDS)
        carried = network.stats()
        splitter.stop()
    results.add("Mosh", every=every, commands=result.commands, slowest_s=result.slowest_s)
    assert not result.fault()
    assert result.commands >= SECONDS
    # The packets of a command are in one or two slices, at times independent of the schedule. A
    # path's share therefore varies as with one draw per command.
    assert not unfair(carried, dict.fromkeys(carried, weighted_bounds(1 / 3, result.commands)))
