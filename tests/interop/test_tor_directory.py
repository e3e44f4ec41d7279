"""Our relays as directory caches, for clients that need more than microdescriptors.

A stock client with ``UseMicrodescriptors 0`` uses the consensus of flavour ns and server
descriptors. stem downloads every kind of document over a relay's ORPort, and validates it.
"""

from __future__ import annotations

import copyreg
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stem
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from stem.descriptor import DocumentHandler
from stem.descriptor.remote import Query

from harness.seeded import MIB
from harness.tools import Background, anabranch, tool, wait_for
from harness.tornet import TorNetwork, free_ports
from harness.torours import OurAuthority, OurRelay, events_of, http_get
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(600)]

CONSENSUS = "/tor/status-vote/current/consensus"
LINKS = [4, 5]
# stem's default version of the link protocol, which has circuit IDs of two bytes.
OLD_LINKS = [3]
OLD_STYLE = "UseMicrodescriptors 0"

# stem copies its cipher before each cell, to roll back if the cell cannot be sent. Ciphers of
# recent versions of `cryptography` cannot be copied, so "copies" are the same cipher, which is
# right as long as all cells are sent.
CIPHER = type(Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor())
copyreg.pickle(CIPHER, lambda cipher: "cipher")


def download(
    port: int, path: str, host: str = "127.0.0.1", links: Sequence[int] = LINKS
) -> list[Any]:
    """Returns the documents that stem gets over an ORPort, parsed and validated, including
    signatures.
    """
    endpoint = stem.ORPort(host, port, list(links))
    query = Query(path, endpoints=[endpoint], validate=True, timeout=60)
    return list(query.run())


def consensus(port: int, path: str, host: str = "127.0.0.1") -> Any:
    """Returns a consensus that stem gets over an ORPort; for flavour ns, checks its signatures.

    stem rejects an empty list of recommended versions, which authorities without recommendations
    write; therefore lines that are not used are not validated. stem also lacks the SHA-256 of a
    consensus.
    """
    endpoint = stem.ORPort(host, port, LINKS)
    handler = DocumentHandler.DOCUMENT
    query = Query(path, endpoints=[endpoint], timeout=60, document_handler=handler)
    (document,) = query.run()
    if path == CONSENSUS:
        document.validate_signatures(download(port, "/tor/keys/all", host))
    return document


def everything(port: int, host: str = "127.0.0.1") -> dict[str, dict[str, str]]:
    """Returns all documents that a relay serves over its ORPort: texts by kind and by relay."""
    plain = consensus(port, CONSENSUS, host)
    micro = consensus(port, f"{CONSENSUS}-microdesc", host)
    digests = [str(router.microdescriptor_digest) for router in micro.routers.values()]
    found = {
        "server": download(port, "/tor/server/all", host),
        "extra": download(port, "/tor/extra/all", host),
    }
    texts = {
        kind: {one.fingerprint: str(one) for one in documents} for kind, documents in found.items()
    }
    assert set(plain.routers) == set(micro.routers)
    # The consensus names descriptors by digest, and these name their extra-info documents.
    servers = {one.digest(): one for one in found["server"]}
    extras = {one.digest(): one for one in found["extra"]}
    for router in plain.routers.values():
        server = servers[router.digest]
        assert server.fingerprint == router.fingerprint
        if server.extra_info_digest is not None:
            assert extras[server.extra_info_digest].fingerprint == router.fingerprint
    named = download(port, f"/tor/micro/d/{'-'.join(digests)}", host)
    texts["microdesc"] = {one.digest(): str(one) for one in named}
    assert set(texts["microdesc"]) == set(digests)
    return texts


@dataclass
class World:
    """A network of stock authorities and our relays."""

    network: TorNetwork
    ours: list[OurRelay]

    def whole(self, relay: OurRelay) -> bool:
        """Returns whether a relay has fetched all documents of the authorities."""
        try:
            return set(everything(relay.orport)["extra"]) >= set(self.network.others.values())
        except (AssertionError, KeyError, ValueError, OSError, stem.ControllerError):
            return False


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields a network: three authorities of C tor, three relays and two exits of ours."""
    folder = tmp_path_factory.mktemp("tor")
    exit_ = ["--exit", "accept *:*"]
    options: list[Sequence[str]] = [[], [], [], exit_, exit_]
    with TorNetwork(folder, relays=0, exits=0) as network:
        ours: list[OurRelay] = []
        try:
            for number, more in enumerate(options):
                name = f"ours{number}"
                ours.append(OurRelay(network, folder / name, name, *more))
            network.others = {relay.name: relay.fingerprint for relay in ours}
            network.other_exits = ["ours3", "ours4"]
            network.start()
            network.wait_for_all()
            yield World(network, ours)
        finally:
            for relay in ours:
                relay.close()


def test_stem_downloads_every_document_by_orport(world: World) -> None:
    """Downloads of both flavours of the consensus, descriptors, extra-info and microdescriptors
    are valid.
    """
    relay = world.ours[0]
    wait_for("all documents", lambda: world.whole(relay), 60)
    texts = everything(relay.orport)
    fingerprints = {node.fingerprint for node in world.network.of("auth")}
    assert set(texts["server"]) == fingerprints | set(world.network.others.values())
    assert set(texts["extra"]) == set(texts["server"]), "the authorities' as well"
    told = [str(event["what"]) for event in relay.events("note")]
    # Requests before the first consensus fail.
    early = ("no server answered", "before its first consensus", "404")
    refused = [note for note in told if "could not fetch" in note]
    assert all(any(why in note for why in early) for note in refused), told
    for own in world.ours:
        extra = texts["extra"][own.fingerprint]
        assert extra.startswith(f"extra-info {own.name} {own.fingerprint}\nidentity-ed25519\n")
        (by_name,) = download(relay.orport, f"/tor/extra/fp/{own.fingerprint}")
        assert str(by_name) == extra
        (own_server,) = download(own.orport, "/tor/server/authority")
        assert own_server.fingerprint == own.fingerprint
    (by_old_link,) = download(relay.orport, "/tor/server/authority", links=OLD_LINKS)
    assert by_old_link.fingerprint == relay.fingerprint
    certificates = download(relay.orport, "/tor/keys/all")
    assert len(certificates) == len(world.network.of("auth"))


def test_stock_authorities_keep_our_extra_info(world: World) -> None:
    """Authorities and our relays serve the same extra-info documents, byte for byte."""
    authority = world.network.of("auth")[0]
    for relay in world.ours:
        (theirs,) = download(authority.orport, f"/tor/extra/fp/{relay.fingerprint}")
        (ours,) = download(relay.orport, "/tor/extra/authority")
        assert str(theirs) == str(ours)


@pytest.mark.parametrize("options", [(OLD_STYLE,), ()], ids=["ns", "microdesc"])
def test_a_stock_client_fetches_by_relays_of_ours_alone(
    world: World, tmp_path: Path, options: Sequence[str]
) -> None:
    """With descriptors and with microdescriptors, downloads arrive intact, and no tor logs a
    complaint.
    """
    client = world.network.client(f"client{len(options)}", *options)
    with FileServer() as server:
        got = fetch(server.url(5 * MIB), client.proxy, tmp_path / "got")
    assert not got.fault(5 * MIB), "\n".join(client.log()[-20:])
    kept = {path.name for path in client.folder.iterdir()}
    own = "cached-consensus" if options else "cached-microdesc-consensus"
    assert own in kept, kept
    client.close()
    assert world.network.complaints() == []
    for relay in world.ours:
        assert relay.events("violation") == []


def test_it_is_packed_as_stock_caches_pack_it(world: World, tmp_path: Path) -> None:
    """For each suffix and header, our relay responds with a stock authority's encoding."""
    with OurAuthority(tmp_path / "authority") as ours:
        stock = world.network.of("auth")[0].dirport
        wait_for("a consensus", lambda: bool(ours.events("consensus")), 150)
        for path in (f"{CONSENSUS}-microdesc", CONSENSUS, "/tor/keys/all", "/tor/server/all"):
            for suffix in ("", ".z"):
                for accepted in ("", "identity", "deflate", "gzip, identity", "x-zstd, deflate"):
                    headers = {"Accept-Encoding": accepted} if accepted else {}
                    answers = [
                        http_get(port, f"{path}{suffix}", **headers)
                        for port in (stock, ours.dirport)
                    ]
                    theirs, ours_is = [(status, told) for status, told, _ in answers]
                    # A stock relay sends a deflated consensus to clients that accept only gzip.
                    if accepted.startswith("gzip") and theirs[1] == "deflate" and not suffix:
                        theirs = (theirs[0], "gzip")
                    assert theirs == ours_is, (path, suffix, accepted)
        packed = http_get(ours.dirport, "/tor/keys/all.z", **{"Accept-Encoding": "identity"})[2]
        assert zlib.decompress(packed) == http_get(ours.dirport, "/tor/keys/all")[2]
        for path in ("/tor/keys/nothing", "/tor/server/nothing", "/tor/extra/fp/AA", "/tor/x"):
            told = [http_get(port, path)[0] for port in (stock, ours.dirport)]
            assert told[0] == told[1], path


def test_a_stock_client_without_microdescriptors_lives_in_up(tmp_path: Path) -> None:
    """With the authority and relays of ``anabranch up``, the client bootstraps and a file arrives
    intact; stem gets all documents.
    """
    (socks,) = free_ports(1)
    state = tmp_path / "up"
    command = [anabranch(), "up", "--json", "--data", str(state)]
    with Background([*command, "--listen", f"127.0.0.1:{socks}"]) as network:
        network.wait_until("it", lambda: bool(events_of(network, "circuit_built")), 60)
        print_torrc = [anabranch(), "up", "--print-torrc", "--data", str(state)]
        with Background(print_torrc) as printer:
            wait_for("the lines", lambda: "DirAuthority" in printer.output(), 30)
            lines = printer.output()
        (own,) = free_ports(1)
        torrc = tmp_path / "torrc"
        more = [f"SocksPort 127.0.0.1:{own}", f"DataDirectory {tmp_path / 'data'}", OLD_STYLE]
        torrc.write_text("\n".join([lines, *more, "Log notice stdout"]) + "\n")
        with Background([tool("tor"), "-f", str(torrc)]) as tor, FileServer() as server:
            tor.wait_until("a bootstrap", lambda: "Bootstrapped 100%" in tor.output(), 90)
            got = fetch(server.url(5 * MIB), f"socks5h://127.0.0.1:{own}", tmp_path / "got")
            log = tor.output()
        assert not got.fault(5 * MIB), f"{got.fault(5 * MIB)}\n{log[-3000:]}"
        for host in ("127.1.0.1", "127.2.0.1"):
            texts = everything(9001, host)
            assert set(texts["server"]) == set(texts["extra"]), host
        assert events_of(network, "trouble") == []


def test_new_relays_test_themselves_and_claim_what_they_carried(world: World) -> None:
    """New relays test their bandwidth over circuits through others to themselves, as stock relays
    do: 1,000 cells in ten seconds.

    A relay that has already carried enough for others' tests needs no test of its own.
    """

    def claims_enough(relay: OurRelay) -> bool:
        (published,) = download(relay.orport, "/tor/server/authority")
        return bool(published.observed_bandwidth >= 51_200)

    for relay in world.ours:
        wait_for("a claim", partial(claims_enough, relay), 120)
    notes = [str(event["what"]) for relay in world.ours for event in relay.events("note")]
    tests = [note for note in notes if note.startswith("self-test:")]
    assert any("has reached this relay" in test for test in tests), tests
    assert not [test for test in tests if "has reached this relay" not in test]
    assert world.network.complaints() == []


def test_histories_and_what_was_observed_survive_a_restart(world: World) -> None:
    """After a restart, a relay at once reports the bandwidth that it carried on earlier days, and
    no more.
    """
    relay = world.ours[1]
    (before,) = download(relay.orport, "/tor/server/authority")
    assert before.observed_bandwidth < 10_000_000, "not what its rate is"
    relay.close()
    kept = relay_history(relay)
    state = json.loads(kept.read_text())
    state["past"] = [{"carried": [5_000_000, 6_000_000], "most": [7_770_000, 8_880_000]}]
    kept.write_text(json.dumps(state))
    relay.start()

    def published() -> bool:
        try:
            (after,) = download(relay.orport, "/tor/server/authority")
        except (ValueError, OSError, stem.ControllerError):
            return False
        return bool(after.observed_bandwidth == 7_770_000)

    wait_for("what was observed", published, 60)
    (extra,) = download(relay.orport, "/tor/extra/authority")
    assert (extra.read_history_interval, extra.write_history_interval) == (86_400, 86_400)
    assert (extra.read_history_values, extra.write_history_values) == ([4_999_168], [5_999_616])
    assert world.network.complaints() == []


def relay_history(relay: OurRelay) -> Path:
    """Returns the file in which a relay stores its bandwidth history."""
    data = relay.command[relay.command.index("--data") + 1]
    return Path(data) / "bandwidth.json"
