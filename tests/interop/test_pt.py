"""Our pluggable transport between a stock tor client and a stock tor bridge."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.disk import FILLER, contents, fill, small_disk
from harness.meddler import ANY, HOLE, LIVES, Fate, Meddler
from harness.seeded import MIB, seeded_bytes
from harness.tools import Background, anabranch
from harness.tornet import Node, TorNetwork, free_ports
from harness.webfiles import FileServer, SiteServer, fetch, post

pytestmark = [pytest.mark.pt, pytest.mark.timeout(600)]

LENGTHS = (1, 514, 100_000, 5 * MIB, 50 * MIB)
#: Lengths for profiles that are slow by design: an answer hides 2 kB in the picture of our tests,
#: and embed keeps the pauses of the captures that it replays.
SLOW_LENGTHS = {"http-image": (1, 514, 20_000), "embed": (*LENGTHS[:-1], 20 * MIB)}
PROFILES = ("nosteg", "nosteg-short", "http-opaque", "http-text-short", "http-image", "embed")
PICTURES = Path(__file__).resolve().parents[2] / "crates/stego/testdata"


@pytest.fixture(scope="module")
def bridges(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[TorNetwork, dict[str, Node]]]:
    """Yields a network with a stock bridge for each profile, which starts our server in front of a
    site.
    """
    with TorNetwork(tmp_path_factory.mktemp("tor")) as network, _site(tmp_path_factory) as site:
        network.start()
        made: dict[str, Node] = {}
        for profile in PROFILES:
            (port,) = free_ports(1)
            made[profile] = network.bridge(
                f"bridge{len(made)}",
                f"ServerTransportPlugin anabranch exec {anabranch()} pt server",
                f"ServerTransportListenAddr anabranch 127.0.0.1:{port}",
                f"ServerTransportOptions anabranch profile={profile} "
                f"site=127.0.0.1:{site.port} pictures={PICTURES}",
            )
        yield network, made


def _site(folders: pytest.TempPathFactory) -> SiteServer:
    folder = folders.mktemp("site")
    (folder / "index.html").write_bytes(seeded_bytes(300_000))
    return SiteServer(folder)


def bridge_line(bridge: Node) -> list[str]:
    """Returns the words of the bridge line that our transport writes for the bridge's operator."""
    text = (bridge.folder / "pt_state/anabranch-bridgeline.txt").read_text()
    words = text.replace("FINGERPRINT", bridge.fingerprint).split()
    assert words[:2] == ["Bridge", "anabranch"], text
    return words


def client(network: TorNetwork, name: str, bridge: Node, port: int = 0) -> Node:
    """Returns a stock client that uses only the bridge, at ``port`` if given."""
    words = bridge_line(bridge)
    if port:
        words[2] = f"127.0.0.1:{port}"
    plugin = f"ClientTransportPlugin anabranch exec {anabranch()} pt client"
    return network.client(name, "UseBridges 1", plugin, " ".join(words), "ConfluxEnabled 0")


def test_a_stock_client_reaches_the_network_by_a_stock_bridge_through_ours(
    bridges: tuple[TorNetwork, dict[str, Node]], tmp_path: Path, results: Results
) -> None:
    """The client uses only the bridge, files of any length arrive, and no tor logs a complaint."""
    network, made = bridges
    with FileServer() as server:
        for number, (profile, bridge) in enumerate(made.items()):
            node = client(network, f"by{number}", bridge)
            for length in SLOW_LENGTHS.get(profile, LENGTHS):
                got = fetch(server.url(length), node.proxy, tmp_path / "got", 300.0)
                assert not got.fault(length), f"{profile}, {length} bytes: {got.fault(length)}"
                results.add("stock tor by our transport", profile=profile, bytes=length,
                            seconds=f"{got.seconds:.2f}")  # fmt: skip
            with node.control() as control:
                guards = {path[0] for path in control.paths()}
            assert guards == {bridge.fingerprint}
            assert f"new bridge descriptor '{bridge.name}'" in "\n".join(node.log())
            node.close()
    # A bridge logs notices about itself that relays do not log.
    assert [line for line in network.complaints() if "[notice]" not in line] == []


@pytest.mark.parametrize("profile", ["nosteg-short", "http-opaque"])
def test_fifty_mebibytes_go_up(
    bridges: tuple[TorNetwork, dict[str, Node]], tmp_path: Path, results: Results, profile: str
) -> None:
    """A 50 MiB upload by a stock client through a stock bridge arrives intact."""
    network, made = bridges
    body = tmp_path / "body"
    body.write_bytes(seeded_bytes(LENGTHS[-1]))
    name = f"up{profile.partition('-')[0]}"
    with FileServer() as server, client(network, name, made[profile]) as node:
        began = time.monotonic()
        said = post(node.proxy, body, server.url(0), 300.0)
        assert said == hashlib.sha256(body.read_bytes()).hexdigest()
        results.add("stock tor up our transport", profile=profile, bytes=LENGTHS[-1],
                    seconds=f"{time.monotonic() - began:.1f}")  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/nothing", "/?token=AAAA"])
def test_a_visitor_of_an_http_bridge_sees_the_site(
    bridges: tuple[TorNetwork, dict[str, Node]], path: str
) -> None:
    """A visitor (curl) gets the same status line, headers and body as from the site itself."""
    _, made = bridges
    answers = []
    torrc = (made["http-opaque"].folder / "torrc").read_text()
    own = torrc.partition("site=127.0.0.1:")[2].split()[0]
    for port in (own, bridge_line(made["http-opaque"])[2].rpartition(":")[2]):
        command = ["curl", "-sS", "-i", "-H", "Host: a", f"http://127.0.0.1:{port}{path}"]
        said = subprocess.run(command, capture_output=True, check=True).stdout
        head, _, body = said.partition(b"\r\n\r\n")
        answers.append(([line for line in head.splitlines() if b"Date" not in line], body))
    assert answers[0] == answers[1]
    assert len(answers[0][0]) > 2
    assert path != "/" or answers[0][1] == seeded_bytes(300_000)


@dataclass(frozen=True)
class Hostile:
    """A case: the fate of a bridge's connections, and the bytes to fetch through it."""

    profile: str
    what: str
    fate: Callable[[int], Fate]
    length: int
    #: Maximum rate as an argument of curl, if the download has to last; empty for no limit.
    rate: str = ""
    #: Whether connections are so short that they end before they would freeze.
    spared: bool = False


def killed_every(seconds: float) -> Callable[[int], Fate]:
    """Returns a fate that kills all live connections every ``seconds``."""
    return lambda _: Fate(ANY, killed=True, every=seconds)


@pytest.mark.parametrize(
    "case",
    [
        Hostile("nosteg", "killed after 100 kB", lambda _: Fate(100_000, killed=True), 3 * MIB),
        Hostile("nosteg", "half are black holes", lambda n: HOLE if n % 2 else LIVES, 3 * MIB),
        # Six frozen connections at a time cost seconds, because this profile is for other
        # networks.
        Hostile("nosteg", "frozen after 15 kB", lambda _: Fate(15_000, killed=False), 100_000),
        Hostile(
            "http-opaque", "killed after 100 kB", lambda _: Fate(100_000, killed=True), 3 * MIB
        ),
        Hostile("http-opaque", "half are black holes", lambda n: HOLE if n % 2 else LIVES, 3 * MIB),
        Hostile(
            "http-text-short", "frozen after 15 kB", lambda _: Fate(15_000, killed=False), MIB,
            spared=True,
        ),
        Hostile(
            "nosteg-short", "frozen after 15 kB", lambda _: Fate(15_000, killed=False), MIB,
            spared=True,
        ),
        # Networks kill connections every 20 s, as in the last case. With one every 2 s, even a
        # download of a quarter of the length is interrupted more often.
        Hostile("http-opaque", "killed every 2 s", killed_every(2.0), 12 * MIB, "1M"),
        Hostile("nosteg-short", "killed every 2 s", killed_every(2.0), 12 * MIB, "1M"),
        Hostile("http-opaque", "killed every 20 s", killed_every(20.0), 50 * MIB, "1M"),
    ],
    ids=lambda case: f"{case.profile} {case.what}",
)  # fmt: skip
def test_no_byte_is_lost_whatever_becomes_of_the_connections(
    bridges: tuple[TorNetwork, dict[str, Node]], tmp_path: Path, results: Results, case: Hostile
) -> None:
    """A hostile network between client and bridge costs time, but no bytes."""
    network, made = bridges
    bridge = made[case.profile]
    to = int(bridge_line(bridge)[2].rpartition(":")[2])
    slowly = ["--limit-rate", case.rate] if case.rate else []
    with ExitStack() as stack:
        server = stack.enter_context(FileServer())
        meddler = stack.enter_context(Meddler(to, case.fate))
        name = f"through{len(network.of('client'))}"
        node = stack.enter_context(client(network, name, bridge, meddler.port))
        before = meddler.struck
        got = fetch(server.url(case.length), node.proxy, tmp_path / "got", 300.0, *slowly)
        fault = got.fault(case.length)
        struck = meddler.struck - before
        assert not fault, f"{fault}; {meddler.struck} of {meddler.came} connections were struck"
        assert case.spared or meddler.struck > 2, "the network was hostile"
        assert not case.rate or struck > 2, "the network was hostile under the download"
        results.add("connections that die", profile=case.profile, what=case.what,
                    bytes=case.length, seconds=f"{got.seconds:.1f}",
                    connections=meddler.came, struck=meddler.struck)  # fmt: skip


def test_the_twin_without_us_loses_the_download(tmp_path: Path) -> None:
    """The control: without our transport, each fate makes a download over one connection fail."""
    with (
        FileServer() as server,
        Meddler(server.port, lambda _: Fate(100_000, killed=True)) as meddler,
    ):
        url = f"http://127.0.0.1:{meddler.port}/bytes/{MIB}"
        done = subprocess.run(["curl", "-sS", "-m", "60", url, "-o", tmp_path / "got"], check=False)
        assert done.returncode != 0
        assert meddler.struck == 1


def started(side: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """Starts our program with the environment that a parent process sets."""
    environment = {**os.environ, "TOR_PT_MANAGED_TRANSPORT_VER": "1"}
    environment |= {"TOR_PT_STATE_LOCATION": str(folder), "TOR_PT_EXIT_ON_STDIN_CLOSE": "1"}
    pipe = partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return pipe([anabranch(), "pt", side], env=environment | variables)


def test_a_parent_that_is_no_tor_hears_what_the_specification_says(tmp_path: Path) -> None:
    """Standard output has only messages of the pt-spec, and the program exits at the end of its
    input.
    """
    cases = [
        (
            "client",
            {"TOR_PT_CLIENT_TRANSPORTS": "anabranch"},
            "CMETHOD anabranch socks5 127.0.0.1:",
        ),
        (
            "server",
            {
                "TOR_PT_SERVER_TRANSPORTS": "anabranch",
                "TOR_PT_SERVER_BINDADDR": "anabranch-127.0.0.1:0",
                "TOR_PT_ORPORT": "127.0.0.1:9",
            },
            "SMETHOD anabranch 127.0.0.1:",
        ),
    ]
    for side, variables, wanted in cases:
        process = started(side, tmp_path, **variables)
        assert process.stdin is not None, "a pipe"
        assert process.stdout is not None, "a pipe"
        lines = [process.stdout.readline().rstrip("\n") for _ in range(3)]
        assert lines[0] == "VERSION 1"
        assert lines[1].startswith(wanted), lines
        assert lines[2] == f"{wanted[0]}METHODS DONE"
        process.stdin.close()
        assert process.wait(10) == 0
        assert process.stdout.read() == ""
    refused = started("client", tmp_path, TOR_PT_CLIENT_TRANSPORTS="obfs4")
    said, _ = refused.communicate(timeout=10)
    assert said.splitlines()[1].startswith("CMETHOD-ERROR obfs4 ")
    assert refused.returncode == 1


def test_a_full_disk_leaves_no_half_of_a_key(tmp_path: Path) -> None:
    """One line reports that a bridge's key cannot be saved; a key saved before still works."""
    with small_disk(tmp_path / "disk", 64) as disk:
        fill(disk)
        command = [anabranch(), "pt", "server", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"]
        command += ["--json", "--key", str(disk / "bridge.key")]
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        assert said.returncode != 0, said.stderr
        assert len(said.stderr.splitlines()) == 1
        assert "No space left" in said.stderr
        assert contents(disk) == {}
        (disk / FILLER).unlink()
        lines = []
        for _ in range(2):
            with Background(command) as server:
                server.wait_until("its line", lambda: '"bridge"' in server.output())
                lines.append(server.output().split(" key=")[1].split()[0])
            fill(disk)
        assert lines[0] == lines[1]
        assert set(contents(disk)) == {"bridge.key"}


@pytest.mark.parametrize("kept", ["nothing", "the key"])
def test_a_full_disk_is_told_to_the_parent(tmp_path: Path, kept: str) -> None:
    """No transport starts whose key or bridge line is lost, and no partial file remains."""
    variables = {
        "TOR_PT_SERVER_TRANSPORTS": "anabranch",
        "TOR_PT_SERVER_BINDADDR": "anabranch-127.0.0.1:0",
        "TOR_PT_ORPORT": "127.0.0.1:9",
    }
    with small_disk(tmp_path / "disk", 64) as disk:
        if kept == "the key":
            first = started("server", disk, **variables)
            # The program exits at the end of its standard input, here at once.
            assert "SMETHOD anabranch " in first.communicate(timeout=10)[0]
            (disk / "anabranch-bridgeline.txt").unlink()
        before = contents(disk)
        assert len(before) == (1 if kept == "the key" else 0)
        fill(disk)
        refused = started("server", disk, **variables)
        said = refused.communicate(timeout=10)[0].splitlines()
        assert said[1].startswith("SMETHOD-ERROR anabranch "), said
        assert "No space left" in said[1]
        assert refused.returncode == 1
        assert contents(disk) == before
