"""The warning about the cost of short runs for QUIC: once if the cost is high, otherwise never."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness import quic
from harness.net import SERVER, links
from harness.seeded import MIB
from harness.splitter import Splitter, interfaces

pytestmark = pytest.mark.quic


@pytest.mark.parametrize(
    ("every", "options", "times"),
    [("100ms", [], 1), ("50p", [], 1), ("1s", [], 0), ("100ms", ["--in-order", "30ms"], 0)],
)
def test_short_runs_of_a_quic_session_are_warned_of_once(
    make_network: MakeNetwork, tmp_path: Path, every: str, options: list[str], times: int
) -> None:
    """Two downloads through one splitter, two QUIC sessions, cause one warning."""
    network = make_network(links(3))
    with (
        quic.serving("quic-go", network.server, tmp_path, address=SERVER, port=quic.PORT),
        Splitter(
            network.client, f"{SERVER}:{quic.PORT}", interfaces(3), every=every, options=options
        ) as splitter,
    ):
        for _ in range(2):
            transfer = quic.download(network.client, "quic-go", splitter.listen, MIB, seconds=60)
            assert not transfer.fault(MIB)
        splitter.stop()
        said = [each["text"] for each in splitter.of("warning")]
        prices = [text for text in said if text.startswith(f"QUIC is slow with --every {every}")]
        assert len(prices) == times, said
