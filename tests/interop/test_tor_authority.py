"""A network whose only authority is ours, with stock relays, exits and clients, and our own.

With ``AUTHORITY_MINUTES=30`` it runs for half an hour of short voting intervals; otherwise for
less than three minutes.
"""

from __future__ import annotations

import gzip
import os
import re
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.seeded import MIB
from harness.tools import PeerFailed, wait_for
from harness.tornet import TorNetwork, free_ports
from harness.torours import OurAuthority, OurClient, OurRelay
from harness.webfiles import FileServer, fetch, fetch_all

MINUTES = float(os.environ.get("AUTHORITY_MINUTES", "1.5"))
INTERVAL = 20
# Seconds until a stopped relay no longer counts as running. A relay's response to a test is valid
# for a minute.
FORGOTTEN_S = 60 + 3 * INTERVAL

pytestmark = [pytest.mark.tor, pytest.mark.timeout(int(900 + 60 * MINUTES))]

CONSENSUS = "/tor/status-vote/current/consensus"
RELAYS, EXITS = 3, 2
# Notices of our relays about themselves.
REACHED = re.compile(r"self-test: a circuit through \w+( and \w+)? has reached this relay")
# Notices of our relays about their authority.
TOOK = "authority ourauth accepted this relay's descriptor"
CUT = re.compile(r"could not fetch [\w ]+: .*; trying again")


@dataclass
class World:
    """The network: our authority, relays, exits and clients."""

    authority: OurAuthority
    network: TorNetwork
    ours: list[OurRelay]

    def listed(self) -> dict[str, set[str]]:
        """Returns the flags of all relays by name, from the current consensus."""
        text = self.authority.ask(f"{CONSENSUS}-microdesc").decode()
        names = re.findall(r"^r (\S+)", text, re.MULTILINE)
        flags = re.findall(r"^s (.*)", text, re.MULTILINE)
        return {name: set(words.split()) for name, words in zip(names, flags, strict=True)}

    def check(self, killed: bool = False) -> None:
        """Asserts that no node logs a complaint about others, and our authority none about itself.

        A relay of ours may have had a request open when the authority was killed; it then retries.
        """
        assert self.network.warnings() == []
        assert self.network.notices() == []
        assert self.authority.events("trouble") == []
        assert self.authority.events("refused") == []
        for relay in self.ours:
            told = [str(event["what"]) for event in relay.events("note")]
            notes = [note for note in told if note != TOOK and not REACHED.fullmatch(note)]
            assert len(notes) <= int(killed), notes
            assert all(CUT.fullmatch(note) for note in notes), notes


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields a network on one machine: three relays and two exits of C tor, a relay and an exit of
    ours.
    """
    folder = tmp_path_factory.mktemp("tor")
    options = ["--expect", str(RELAYS + EXITS + 2), "--ipv6"]
    (port6,) = free_ports(1)
    both = ["--address6", "::1", "--listen", f"[::1]:{port6}"]
    with (
        OurAuthority(folder / "authority", *options, interval=INTERVAL) as authority,
        TorNetwork(
            folder, authorities=0, relays=RELAYS, exits=EXITS, others=[authority.line]
        ) as network,
        OurRelay(network, folder / "ours0", "ours0", *both) as relay,
        OurRelay(network, folder / "ours1", "ours1", "--exit", "accept *:*") as exit_,
    ):
        ours = [relay, exit_]
        network.others = {one.name: one.fingerprint for one in ours}
        network.other_exits = ["ours1"]
        network.start()
        network.wait_for_all()
        yield World(authority, network, ours)


def test_stock_tors_and_ours_are_listed_with_their_flags(world: World) -> None:
    """The consensus lists all running relays with the right flags."""
    listed = world.listed()
    stock = [node.name for node in world.network.nodes if node.role in ("relay", "exit")]
    assert set(listed) == {"ourauth", "ours0", "ours1", *stock}
    usual = {"Fast", "Guard", "Running", "Stable", "V2Dir", "Valid"}
    for name, flags in listed.items():
        if name == "ourauth":
            assert flags >= {"Authority", "Running", "V2Dir", "Valid"}, flags
            assert "Guard" not in flags
            continue
        assert flags >= usual, (name, flags)
        assert ("Exit" in flags) == (name.startswith("exit") or name == "ours1"), (name, flags)
        assert "HSDir" in flags, (name, flags)
    # The relay responded at its IPv6 address, with both of its identities.
    assert b"\na [::1]:" in world.authority.ask(f"{CONSENSUS}-microdesc")
    world.check()


def test_a_stock_client_and_ours_fetch_files(
    world: World, tmp_path: Path, results: Results
) -> None:
    """Files of 1 B to 200 MiB arrive intact, over paths that each client chooses itself."""
    stock = world.network.client("stock")
    fetch_all(stock.proxy, tmp_path, partial(results.add, "our authority", client="stock"))
    stock.close()
    with OurClient(world.network, tmp_path / "c") as client:
        client.wait_ready()
        fetch_all(client.proxy, tmp_path, partial(results.add, "our authority", client="ours"))
        assert client.events("violation") == []
    world.check()


def test_documents_are_the_same_however_they_are_asked_for(world: World) -> None:
    """Documents are equal compressed and uncompressed: both flavours of the consensus, unchanged
    ones, keys, descriptors, microdescriptors.
    """
    ask = world.authority.ask
    identity = world.authority.line.split("v3ident=")[1][:40]
    for flavour in ("", "-microdesc"):
        path = f"{CONSENSUS}{flavour}"
        plain = ask(path)
        packed = [
            zlib.decompress(ask(f"{path}.z")),
            zlib.decompress(ask(f"{path}/{identity}.z", **{"Accept-Encoding": "deflate"})),
            gzip.decompress(ask(path, **{"Accept-Encoding": "gzip"})),
        ]
        # A new consensus may have been made meanwhile.
        assert all(text in (plain, ask(path)) for text in packed)
        assert ask(path, **{"Accept-Encoding": "x-zstd"})[:4] == b"\x28\xb5\x2f\xfd"
    with pytest.raises(PeerFailed, match="304"):
        ask(CONSENSUS, **{"If-Modified-Since": formatdate(time.time() + 60, usegmt=True)})
    with pytest.raises(PeerFailed, match="404"):
        ask(f"{CONSENSUS}/{'A' * 40}")
    certificate = ask("/tor/keys/all")
    signing = re.search(rb"^directory-signature (\S+) (\S+)", ask(CONSENSUS), re.MULTILINE)
    assert signing is not None
    both = "-".join(part.decode() for part in signing.groups())
    for path in (f"fp/{identity}", f"fp-sk/{both}", f"sk/{both[41:]}", "authority"):
        assert ask(f"/tor/keys/{path}") == certificate, path
    assert ask("/tor/server/all").count(b"\nrouter-signature\n") == RELAYS + EXITS + 3
    own = ask("/tor/server/authority")
    assert own.startswith(b"router ourauth 127.0.0.1 ")
    assert ask(f"/tor/server/fp/{world.authority.line.split()[-1]}") == own
    assert ask("/tor/extra/all").count(b"extra-info ") == RELAYS + EXITS + 3
    digests = re.findall(r"^m (\S+)", ask(f"{CONSENSUS}-microdesc").decode(), re.MULTILINE)
    assert ask(f"/tor/micro/d/{'-'.join(digests)}").count(b"onion-key\n") >= len(digests)


def test_stock_tors_know_the_shared_random_value(world: World) -> None:
    """Stock tors have the value of the current run, by which onion services are found."""

    def ours() -> str:
        text = world.authority.ask(f"{CONSENSUS}-microdesc").decode()
        return str(re.findall(r"^shared-rand-current-value 1 (\S{44})$", text, re.MULTILINE)[0])

    def theirs() -> str:
        with world.network.of("relay")[0].control() as control:
            return control.info("sr/current")[0]

    # A shared random run lasts for 24 consensuses, and a relay fetches the next one a little later.
    wait_for("the same value", lambda: ours() == theirs(), 4 * INTERVAL)


def test_stock_relays_are_told_what_is_new_and_make_the_consensus_of_it(
    world: World, results: Results
) -> None:
    """Stock relays apply our consensus diffs, and get the same digest."""
    at = f"127.0.0.1:{world.authority.dirport}"
    applied = re.compile(
        r"Applied consensus diff \(size (\d+)\) from server \S*" + re.escape(at)
        + r"\S*, resulting in a new consensus document \(size (\d+)\)"
    )  # fmt: skip
    stock = world.network.of("relay") + world.network.of("exit")

    def details() -> str:
        return "".join((node.folder / "details").read_text() for node in stock)

    wait_for("a diff", lambda: bool(applied.search(details())), 6 * INTERVAL)
    assert not re.search("(Could not|Refusing to) apply consensus diff", details())
    sizes = [(int(diff), int(whole)) for diff, whole in applied.findall(details())]
    assert all(diff < whole for diff, whole in sizes)
    results.add(
        "diffs of our authority", applied=len(sizes), bytes=sizes[-1][0], whole=sizes[-1][1]
    )


def test_what_is_no_descriptor_is_refused_with_a_reason(world: World) -> None:
    """Refused are other documents, and truncated or changed descriptors; a known descriptor has
    its own response.
    """
    at = f"http://127.0.0.1:{world.authority.dirport}/tor/"
    known = world.authority.ask(f"/tor/server/fp/{world.ours[0].fingerprint}")

    def publish(body: bytes) -> str:
        try:
            with urllib.request.urlopen(at, data=body) as answer:
                return f"{answer.status} {answer.headers['X-Descriptor-Not-New']}"
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.reason}"

    assert publish(known) == "200 Yes"
    for body in (b"x", known[: len(known) // 2], known.replace(b"ours0", b"ours9", 1)):
        answer = publish(body)
        assert answer.startswith("400 "), answer
        assert len(answer) > 10, "with a reason"
    # A separate thread writes log lines, so they may be late.
    wait_for("three lines", lambda: len(world.authority.events("refused")) >= 3)
    refused = world.authority.events("refused")
    assert len(refused) == 3, refused
    world.authority.process.stop()
    world.authority.start()
    assert world.listed(), "a restart serves the consensus of the run before"


def test_it_goes_on_without_a_warning(world: World, tmp_path: Path, results: Results) -> None:
    """An exit stops and is delisted; the authority is killed and restarted; downloads continue.

    A relay of ours whose descriptor the authority has lost publishes it again.
    """
    gone, stock = world.network.of("exit")[0], world.network.client("lasting")
    begun, fetched = time.monotonic(), 0
    gone.close()
    world.network.nodes.remove(gone)
    killed = missed = False
    with FileServer() as server:
        while (spent := time.monotonic() - begun) < max(60 * MINUTES, FORGOTTEN_S):
            got = fetch(server.url(MIB), stock.proxy, tmp_path / "got", 60.0)
            # A client with circuits through the stopped exit may report a failed one.
            assert not got.fault(MIB) or spent < INTERVAL, got.fault(MIB)
            fetched += not got.fault(MIB)
            if not killed and spent > INTERVAL:
                before = world.listed()
                world.authority.kill()
                (world.authority.data / "relays" / world.ours[0].fingerprint).unlink()
                world.authority.start()
                assert world.listed() == before
                killed = True
            missed |= "ours0" not in world.listed()
            time.sleep(2)
    stock.close()
    consensuses = len(world.authority.events("consensus"))
    results.add(
        "our authority, going on", minutes=f"{spent / 60:.1f}", consensuses=consensuses,
        files=fetched,
    )  # fmt: skip
    assert consensuses >= spent / INTERVAL - 4
    assert missed, "what was lost is not listed"
    wait_for("ours0 again", lambda: "ours0" in world.listed(), 6 * INTERVAL)
    listed = world.listed()
    assert gone.name not in listed
    assert set(listed) >= {"ourauth", "ours0", "ours1", "relay0", "relay1", "relay2", "exit1"}
    world.check(killed)
