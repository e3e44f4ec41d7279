"""A far end with other programs: QUIC servers, Mosh, two clients, a client that moves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from conftest import MakeNetwork, Results
from harness import farend, quic
from harness.fair import difference, seconds_of, unfair, weighted_bounds
from harness.farend import FarEnd
from harness.mosh import PORT as MOSH_PORT
from harness.mosh import Login, MoshServer
from harness.net import SERVER, Link, Network
from harness.seeded import MIB
from harness.splitter import Splitter, interfaces
from harness.tools import anabranch

pytestmark = pytest.mark.quic

PATHS = [Link("p0", delay="10ms"), Link("p1", delay="17ms"), Link("p2", delay="30ms")]
WAYS = {"10/10/10ms": [Link(f"p{place}", delay="10ms") for place in range(3)], "10/17/30ms": PATHS}
LENGTH = 25 * MIB
LISTEN = "127.0.0.1:51820"
KINDS = ["quic-go", "quinn", "gtlsserver", "s2n-quic", "aioquic"]


@contextmanager
def _ends(
    network: Network, folder: Path, port: int, every: str = "100ms", listen: str = LISTEN
) -> Iterator[tuple[FarEnd, Splitter]]:
    """Yields a far end in front of the server at ``port``, and a splitter at the client."""
    far_key, home_key = farend.make_keys(folder)
    with (
        FarEnd(network.server, f"{SERVER}:{port}", far_key, every=every) as far,
        _splitter(network, home_key, every, listen) as splitter,
    ):
        yield far, splitter


@contextmanager
def _splitter(network: Network, key: Path, every: str, listen: str = LISTEN) -> Iterator[Splitter]:
    splitter = Splitter(
        network.client, f"{SERVER}:{farend.PORT}", interfaces(3), every=every,
        schedule="uniform", listen=listen, options=["--key", str(key)],
    )  # fmt: skip
    with splitter:
        splitter.wait_event("far_end", state="up")
        yield splitter


@pytest.mark.parametrize("case", [f"{kind} {paths}" for kind in KINDS for paths in WAYS])
def test_a_download_behind_a_far_end_is_whole_and_goes_by_all_paths(
    make_network: MakeNetwork,
    web_root: Path,
    tmp_path: Path,
    results: Results,
    case: str,
) -> None:
    """The hash is right and each path carries its share of the downlink, over equal and unequal
    paths.
    """
    kind, paths = case.split()
    network = make_network(WAYS[paths])
    with quic.serving(kind, network.server, web_root):
        unsplit = quic.download(network.client, kind, f"{SERVER}:{quic.PORT}", LENGTH, seconds=90)
        assert not unsplit.fault(LENGTH)
        with _ends(network, tmp_path, quic.PORT) as (_, splitter):
            before = network.stats()
            transfer = quic.download(network.client, kind, LISTEN, LENGTH, seconds=90)
            carried = difference(network.stats(), before)
            assert not transfer.fault(LENGTH)
            bounds = weighted_bounds(1 / 3, transfer.seconds / seconds_of("100ms"))
            assert not unfair(carried, dict.fromkeys(carried, bounds))
            assert not [event for event in splitter.of("path") if event["state"] == "down"]
    results.add(
        "QUIC behind a far end, every 100 ms, 25 MiB, Mbit/s", server=kind, paths=paths,
        unsplit=unsplit.goodput_mbits, split=transfer.goodput_mbits,
    )  # fmt: skip


@pytest.mark.parametrize("loss", [0.01, 0.05])
@pytest.mark.parametrize("kind", KINDS)
def test_a_download_behind_a_far_end_bears_loss(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path, kind: str, loss: float
) -> None:
    """Each path loses packets at random; the server's protocol recovers."""
    network = make_network([Link(path.name, delay=path.delay, loss=loss) for path in PATHS])
    with quic.serving(kind, network.server, web_root), _ends(network, tmp_path, quic.PORT):
        transfer = quic.download(network.client, kind, LISTEN, MIB, seconds=60)
        assert not transfer.fault(MIB)


@pytest.mark.mosh
@pytest.mark.parametrize("every", ["20ms", "100ms"])
def test_a_mosh_login_behind_a_far_end_loses_no_output(
    make_network: MakeNetwork, tmp_path: Path, results: Results, every: str
) -> None:
    """The output of every command appears on the screen, over unequal paths, one of which is cut
    for a while.
    """
    network = make_network(PATHS)
    listen = f"127.0.0.1:{MOSH_PORT}"
    with (
        MoshServer(network.server) as server,
        _ends(network, tmp_path, MOSH_PORT, every, listen) as (far, splitter),
        Login(network.client, "127.0.0.1", MOSH_PORT, server.key) as login,
        ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(login.run_for, 20)
        splitter.wait_event("session")
        network.set("p1", down=True)
        far.wait_event("path", 15, path=1, state="down")
        network.set("p1", down=False)
        result = running.result()
    results.add(
        "Mosh behind a far end, a path cut", every=every, commands=result.commands,
        slowest_s=result.slowest_s,
    )  # fmt: skip
    assert not result.fault()


def test_two_clients_have_a_session_each_and_neither_disturbs_the_other(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path
) -> None:
    """Two splitters, each with a key, download at the same time; one ends, and the other
    continues.
    """
    network = make_network(PATHS)
    far_key, home_key = farend.make_keys(tmp_path)
    second_key = _second(tmp_path, far_key, home_key)
    with ExitStack() as stack:
        stack.enter_context(quic.serving("quic-go", network.server, web_root))
        far = FarEnd(network.server, f"{SERVER}:{quic.PORT}", far_key)
        stack.enter_context(far)
        ends = ["127.0.0.1:51820", "127.0.0.1:51821"]
        first, _ = [
            stack.enter_context(_splitter(network, key, "100ms", listen))
            for key, listen in zip((home_key, second_key), ends, strict=True)
        ]
        with ThreadPoolExecutor(2) as pool:

            def fetch(end: str) -> str:
                transfer = quic.download(network.client, "quic-go", end, LENGTH, seconds=90)
                return transfer.fault(LENGTH)

            assert list(pool.map(fetch, ends)) == ["", ""]
            left = pool.submit(fetch, ends[1])
            first.stop()
            assert left.result() == ""
        assert {event["client"] for event in far.of("began")} == {"home", "second"}
        assert [event["client"] for event in far.of("ended")] == ["home"]


def _second(folder: Path, far_key: Path, home_key: Path) -> Path:
    """Returns the key file of a second client, which the far end also accepts."""
    key = folder / "second.key"

    def run(*words: str) -> str:
        command = [anabranch(), "key", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    public = next(word for word in run(str(key)).split() if len(word) == 44)
    run(str(far_key), "--peer", f"second={public}")
    lines = home_key.read_text().splitlines()
    far_public = next(line.split('"')[1] for line in lines if line.startswith("public"))
    run(str(key), "--peer", f"far={far_public}")
    return key


def test_a_client_that_moves_is_followed(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path
) -> None:
    """A path's address changes during a download; the far end sends to the new address."""
    network = make_network(PATHS)
    with (
        quic.serving("quic-go", network.server, web_root),
        _ends(network, tmp_path, quic.PORT) as (far, _),
        ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(quic.download, network.client, "quic-go", LISTEN, LENGTH, seconds=90)
        network.client.must(["ip", "address", "delete", "10.77.1.2/24", "dev", "p1"])
        network.client.must(["ip", "address", "add", "10.77.1.7/24", "dev", "p1"])
        route = ["ip", "route", "replace", f"{SERVER}/32", "dev", "p1", "metric", "101"]
        network.client.must(route)
        assert not running.result().fault(LENGTH)
        assert not quic.download(network.client, "quic-go", LISTEN, LENGTH, seconds=90).fault(
            LENGTH
        )
        news = [event for event in far.of("path") if event["path"] == 1 and event["from"]]
        assert news[-1]["from"].startswith("10.77.1.7:")
        assert len(far.of("began")) == 1, "it is the same session"


def test_a_path_that_is_dead_in_one_direction_disturbs_no_download(
    make_network: MakeNetwork, web_root: Path, tmp_path: Path
) -> None:
    """A path loses its address, so its packets have another source address: they arrive, but
    responses do not.
    """
    network = make_network(PATHS)
    with (
        quic.serving("quic-go", network.server, web_root),
        _ends(network, tmp_path, quic.PORT) as (_, splitter),
    ):
        network.client.must(["ip", "address", "delete", "10.77.1.2/24", "dev", "p1"])
        # Paths are probed every second while there is traffic.
        quic.download(network.client, "quic-go", LISTEN, LENGTH, seconds=6)
        splitter.wait_event("path", 10, path="p1", state="down")
        time.sleep(1)
        before = network.stats()
        assert not quic.download(network.client, "quic-go", LISTEN, LENGTH, seconds=60).fault(
            LENGTH
        )
        assert difference(network.stats(), before)["p1"].down_packets < 100
