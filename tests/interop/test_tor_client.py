"""Our client in a network of stock tors alone."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import Results
from harness.seeded import MIB
from harness.tools import tool
from harness.tornet import TorNetwork
from harness.torours import OurClient
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(400)]

LENGTHS = (1, 514, 100_000, 5 * MIB, 200 * MIB)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorNetwork]:
    """Three authorities, three relays, two exits."""
    with TorNetwork(tmp_path_factory.mktemp("tor")) as network:
        network.start()
        yield network


@pytest.fixture(scope="module")
def client(network: TorNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurClient]:
    """One client for all tests."""
    with OurClient(network, tmp_path_factory.mktemp("client")) as client:
        client.wait_ready()
        yield client


def test_our_client_carries_files_of_any_length_through_stock_relays(
    network: TorNetwork, client: OurClient, tmp_path: Path, results: Results
) -> None:
    """1 B to 200 MiB arrive with the right hash, and no tor complains of us."""
    with FileServer() as server:
        for length in LENGTHS:
            got = fetch(server.url(length), client.proxy, tmp_path / "got")
            assert not got.fault(length), f"{got.fault(length)}\n{client.process.output()[-3000:]}"
            results.add(
                "our client, stock relays",
                bytes=length,
                seconds=f"{got.seconds:.2f}",
                first_byte_ms=f"{got.first_byte_s * 1000:.0f}",
            )
    assert network.complaints() == []
    assert client.events("violation") == []


def test_http_connect_serves_as_well(client: OurClient, tmp_path: Path) -> None:
    """The same port takes HTTP's CONNECT."""
    with FileServer() as server:
        proxy = f"http://127.0.0.1:{client.socks}"
        got = fetch(server.url(MIB), proxy, tmp_path / "got", 60.0, "--proxytunnel")
        assert not got.fault(MIB), got.fault(MIB)


def test_uploads_arrive(client: OurClient, tmp_path: Path) -> None:
    """What is posted arrives: the other direction's windows and SENDMEs."""
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)) * 80_000)
    with FileServer() as server:
        command = [tool("curl"), "-sS", "--noproxy", "", "--proxy", client.proxy, "-m", "120"]
        command += ["-H", "Expect:", "--data-binary", f"@{body}", server.url(0)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == hashlib.sha256(body.read_bytes()).hexdigest()


def test_many_streams_at_once(client: OurClient, tmp_path: Path) -> None:
    """Thirty downloads side by side, of three users who share no circuit."""
    with FileServer() as server, ThreadPoolExecutor(30) as pool:

        def one(number: int) -> str:
            proxy = f"socks5h://user{number % 3}:x@127.0.0.1:{client.socks}"
            got = fetch(server.url(MIB), proxy, tmp_path / f"got{number}")
            return got.fault(MIB)

        assert [fault for fault in pool.map(one, range(30)) if fault] == []


def test_pinned_relays_are_the_ones_that_are_used(network: TorNetwork, tmp_path: Path) -> None:
    """--entry, --middle and --exit name the path."""
    guard, middle, exit_ = network.of("relay")[0], network.of("relay")[1], network.of("exit")[0]
    pins = ["--entry", guard.fingerprint, "--middle", middle.fingerprint]
    with OurClient(network, tmp_path / "c", *pins, "--exit", exit_.fingerprint) as client:
        client.wait_ready()
        with FileServer() as server:
            got = fetch(server.url(MIB), client.proxy, tmp_path / "got")
            assert not got.fault(MIB), got.fault(MIB)
        assert set(client.paths()) == {(guard.name, middle.name, exit_.name)}


def test_a_second_start_needs_no_download_and_keeps_its_guard(
    network: TorNetwork, tmp_path: Path
) -> None:
    """State on disk: the same guard, and ready at once."""
    guards = []
    for _ in range(2):
        with OurClient(network, tmp_path / "c") as client:
            client.wait_ready()
            guards.append({path[0] for path in client.paths()})
            assert client.process.stop() == 0
    assert guards[0] == guards[1]
    assert len(guards[0]) == 1
