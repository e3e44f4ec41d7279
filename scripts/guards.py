#!/usr/bin/env python3
"""Guards: checks of the design's invariants that no compiler makes.

Prints every breach; with any breach, exits with status 1.

Each guard is a function of the repository that yields breaches, so that scripts/test_guards.py can
test it with a bad sample. To add a guard, write it, name it in GUARDS, and add its sample.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

sys.dont_write_bytecode = True
import language  # noqa: E402
import python_circles  # noqa: E402
import screen  # noqa: E402
from import_circles import circles  # noqa: E402
from rust_source import blank, functions, lines_without_tests, without_tests  # noqa: E402
from to_add import STUBS, breaches, rows  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent

# Crates that do no I/O.
CORES = (
    "multipath", "netem", "tcp", "more", "comps", "links", "onion", "tunnel", "proxy", "pt",
    "stego", "anonymity", "sim",
)  # fmt: skip
# Banned crates that a core may link all the same. `links`: its TLS library draws its own
# randomness. `onion`: its tor-* crates link entropy and sockets for functions that the core does
# not call; the core gets its generators as arguments, and its clippy.toml forbids other sources.
# `anonymity` and `sim` depend on `onion`.
# `more`: its Sphinx library draws secrets in functions that the core does not call.
EXEMPT_CRATES = {
    "more": {"getrandom", "libc", "rand/sys_rng", "rand/thread_rng"},
    "links": {"getrandom", "libc", "rand/sys_rng", "rand/thread_rng"},
    "onion": {"getrandom", "libc", "mio", "rand/sys_rng", "rand/thread_rng", "socket2"},
    "anonymity": {"getrandom", "libc", "mio", "rand/sys_rng", "rand/thread_rng", "socket2"},
    "sim": {"getrandom", "libc", "mio", "rand/sys_rng", "rand/thread_rng", "socket2"},
}
FENCED_METHODS = {
    "std::time::Instant::now", "std::time::SystemTime::now", "std::thread::sleep",
    "std::thread::spawn",
}  # fmt: skip
FENCED_TYPES = {
    "std::time::Instant", "std::collections::HashMap", "std::collections::HashSet",
    "std::net::UdpSocket", "std::net::TcpStream", "std::net::TcpListener", "std::fs::File",
}  # fmt: skip
# Sockets, runtimes and sources of entropy: no core may depend on these, directly or indirectly.
BANNED_CRATES = {
    "socket2", "rustix", "libc", "nix", "mio", "tokio", "async-std", "smol", "getrandom",
    "fastrand",
}  # fmt: skip
# Cores that may depend only on these other workspace crates.
OWN_CRATES = {"stego": {"multipath"}, "tcp": {"multipath"}, "more": {"multipath", "tcp"}}
# Crates, each with the dependencies that its graph must not contain.
LEAN = {
    "splitter": {
        "anabranch-onion", "anabranch-router", "async-std", "hickory-resolver", "mio", "rustls",
        "smol", "tokio",
    },
}  # fmt: skip
# The only files that import tor-* crates.
WIRE = re.compile(r"crates/onion/src/wire(\.rs|/.+\.rs)")
# Parsers, each with the fuzz target that reaches it. A folder stands for every file in it.
PARSERS = {
    "crates/anonymity/src/consensus.rs": "consensuses",
    "crates/comps/src/protocol/mod.rs": "recognise",
    "crates/comps/src/protocol/quic.rs": "quic_packets",
    "crates/comps/src/protocol/dns.rs": "dns_wireguard_mosh",
    "crates/comps/src/protocol/dtls.rs": "recognise",
    "crates/comps/src/protocol/stun.rs": "recognise",
    "crates/comps/src/protocol/enet.rs": "recognise",
    "crates/comps/src/protocol/kcp.rs": "recognise",
    "crates/comps/src/protocol/nebula.rs": "recognise",
    "crates/comps/src/protocol/numbers.rs": "recognise",
    "crates/comps/src/protocol/openvpn.rs": "recognise",
    "crates/comps/src/protocol/recogniser.rs": "recognise",
    "crates/comps/src/protocol/srt.rs": "recognise",
    "crates/comps/src/protocol/wireguard.rs": "dns_wireguard_mosh",
    "crates/comps/src/protocol/mosh.rs": "dns_wireguard_mosh",
    "crates/comps/src/core.rs": "core_driver",
    "crates/capture/src/read.rs": "trace_reader",
    "crates/emulator/src/censor/hello.rs": "censor",
    "crates/emulator/src/censor/initial.rs": "censor",
    "crates/emulator/src/censor/pieces.rs": "censor",
    "crates/emulator/src/topology/reader.rs": "topology",
    "crates/router/src/onion/authorities.rs": "texts",
    "crates/os/src/packet/read.rs": "ip_packets",
    "crates/os/src/packet/fragments.rs": "ip_packets",
    "crates/os/src/packet/complaint.rs": "ip_packets",
    "crates/splitter/src/steer/ports.rs": "texts",
    "crates/os/src/toml_keys.rs": "toml_keys",
    "crates/splitter/src/paths/spec.rs": "texts",
    "crates/splitter/src/paths/stream.rs": "texts",
    "crates/splitter/src/mosh/answer.rs": "mosh_login",
    "crates/splitter/src/mosh/words.rs": "mosh_login",
    "crates/splitter/src/wg_quick/parse.rs": "wg_quick",
    "crates/splitter/src/wg_quick/choice.rs": "wg_quick",
    "crates/os/src/target.rs": "texts",
    "crates/splitter/src/socks/proxy.rs": "texts",
    "crates/splitter/src/socks/dialogue.rs": "socks",
    "crates/splitter/src/socks/packet.rs": "socks",
    "crates/os/src/netlink/prefix.rs": "texts",
    "crates/links/src/quic/endpoint.rs": "quic_cells",
    "crates/links/src/quic/cells.rs": "quic_cells",
    "crates/links/src/tls/library.rs": "tls_link",
    "crates/links/src/tls/messages.rs": "tls_records",
    "crates/links/src/tls/mod.rs": "tls_link",
    "crates/links/src/tls/opener.rs": "tls_records",
    "crates/links/src/tls/records.rs": "tls_records",
    "crates/links/src/utls/reassembler.rs": "unordered",
    "crates/links/src/utls/record_layer.rs": "unordered",
    "crates/onion/src/authority.rs": "uploads",
    "crates/onion/src/channels/detour.rs": "quic_moves",
    "crates/onion/src/authority/documents.rs": "uploads",
    "crates/onion/src/authority/entry.rs": "uploads",
    "crates/onion/src/authority/measured.rs": "uploads",
    "crates/onion/src/authority/parsed.rs": "uploads",
    "crates/onion/src/authority/shared.rs": "uploads",
    "crates/onion/src/authority/summary.rs": "uploads",
    "crates/onion/src/conflux/counted.rs": "conflux",
    "crates/onion/src/conflux/ends.rs": "conflux",
    "crates/onion/src/conflux/explicit.rs": "conflux",
    "crates/onion/src/directory/cache.rs": "directory",
    "crates/onion/src/directory/cache/flavour.rs": "directory",
    "crates/onion/src/directory/cache/document_store.rs": "directory",
    "crates/onion/src/directory/civil.rs": "uploads",
    "crates/onion/src/directory/descriptor.rs": "uploads",
    "crates/onion/src/directory/diff.rs": "uploads",
    "crates/onion/src/directory/extra.rs": "directory",
    "crates/onion/src/directory/hsdir.rs": "onion_services",
    "crates/onion/src/directory/http.rs": "documents",
    "crates/onion/src/directory/mirror.rs": "directory",
    "crates/onion/src/directory/policy.rs": "documents",
    "crates/onion/src/directory/reply.rs": "documents",
    "crates/onion/src/wire/family.rs": "documents",
    "crates/onion/src/wire/keys.rs": "documents",
    "crates/onion/src/node/detour.rs": "quic_moves",
    "crates/onion/src/wire/netdoc.rs": "documents",
    "crates/more/src/layer.rs": "more_packets",
    "crates/more/src/node.rs": "more_packets",
    "crates/more/src/sphinx.rs": "more_packets",
    "crates/more/src/wire.rs": "more_packets",
    "crates/tcp/src/connection/arrival.rs": "tcp_segments",
    "crates/tcp/src/connection/handshake.rs": "tcp_segments",
    "crates/tcp/src/options.rs": "tcp_segments",
    "crates/tcp/src/receiver.rs": "tcp_segments",
    "crates/tcp/src/segment.rs": "tcp_segments",
    "crates/tcp/src/sender/ack.rs": "tcp_segments",
    "crates/tunnel/src/carrier/queue.rs": "carrier",
    "crates/tunnel/src/carrier/unframer.rs": "carrier",
    "crates/tunnel/src/disguise.rs": "tunnel",
    "crates/tunnel/src/epoch.rs": "tunnel",
    "crates/tunnel/src/far.rs": "tunnel",
    "crates/tunnel/src/frame.rs": "tunnel",
    "crates/tunnel/src/hello.rs": "tunnel",
    "crates/tunnel/src/near.rs": "tunnel",
    "crates/tunnel/src/session.rs": "tunnel",
    "crates/onion/src/wire/netdoc/plain.rs": "directory",
    "crates/multipath/src/schedule/mod.rs": "texts",
    "crates/multipath/src/boundary.rs": "texts",
    "crates/router/src/crawl/capture.rs": "covers",
    "crates/router/src/crawl/covers.rs": "covers",
    "crates/router/src/crawl/flows.rs": "covers",
    "crates/router/src/crawl/har.rs": "covers",
    "crates/router/src/crawl/html.rs": "covers",
    "crates/router/src/crawl/judge.rs": "covers",
    "crates/onion/src/handshake/extension.rs": "onion_messages",
    "crates/onion/src/handshake/fast.rs": "onion_messages",
    "crates/onion/src/handshake/ntor.rs": "onion_messages",
    "crates/onion/src/handshake/ntor_v3.rs": "onion_messages",
    "crates/onion/src/crypto/lossy.rs": "lossy_cells",
    "crates/onion/src/wire/cell.rs": "onion_cells",
    "crates/onion/src/wire/ancestors.rs": "conflux",
    "crates/onion/src/wire/conflux.rs": "conflux",
    "crates/onion/src/wire/dirkeys.rs": "uploads",
    "crates/onion/src/wire/extend.rs": "onion_messages",
    "crates/onion/src/wire/hsdesc.rs": "onion_services",
    "crates/onion/src/wire/rend.rs": "onion_services",
    "crates/onion/src/wire/resilient.rs": "conflux",
    "crates/onion/src/wire/link.rs": "onion_messages",
    "crates/onion/src/wire/lossy.rs": "onion_messages",
    "crates/onion/src/wire/message.rs": "onion_messages",
    "crates/onion/src/wire/relay_command.rs": "onion_relay",
    "crates/onion/src/wire/tag.rs": "onion_messages",
    "crates/onion/src/wire/text.rs": "uploads",
    "crates/onion/src/wire/x509.rs": "onion_messages",
    "crates/proxy/src/client/http.rs": "proxy_clients",
    "crates/proxy/src/client/socks.rs": "proxy_clients",
    "crates/proxy/src/dialogue.rs": "proxy_requests",
    "crates/proxy/src/socks5.rs": "proxy_clients",
    "crates/pt/src/args.rs": "pluggable",
    "crates/pt/src/bridge.rs": "pluggable",
    "crates/pt/src/environment.rs": "pluggable",
    "crates/pt/src/ext_or.rs": "pluggable",
    "crates/pt/src/line.rs": "pluggable",
    "crates/pt/src/manager.rs": "pluggable",
    "crates/pt/src/offer.rs": "pluggable",
    "crates/pt/src/plugin.rs": "pluggable",
    "crates/pt/src/socks.rs": "pluggable",
    "crates/stego/src/block.rs": "camouflage",
    "crates/stego/src/client/exchanges.rs": "camouflage",
    "crates/stego/src/client/handshake.rs": "camouflage",
    "crates/stego/src/frame.rs": "camouflage",
    "crates/stego/src/handshake.rs": "camouflage",
    "crates/stego/src/keys.rs": "camouflage",
    "crates/stego/src/link/receive.rs": "camouflage",
    "crates/stego/src/server/connections.rs": "camouflage",
    "crates/stego/src/slot/embed/mod.rs": "camouflage",
    "crates/stego/src/slot/embed/shape.rs": "camouflage",
    "crates/stego/src/slot/http/answers.rs": "camouflage",
    "crates/stego/src/slot/http/body.rs": "camouflage",
    "crates/stego/src/slot/http/head.rs": "camouflage",
    "crates/stego/src/slot/http/mod.rs": "camouflage",
    "crates/stego/src/slot/http/jpeg.rs": "camouflage",
    "crates/stego/src/slot/http/names.rs": "camouflage",
    "crates/stego/src/slot/http/pictures.rs": "camouflage",
    "crates/stego/src/slot/http/site/finder.rs": "covers",
    "crates/stego/src/slot/http/site/mod.rs": "covers",
    "crates/stego/src/slot/http/site/notes.rs": "camouflage",
    "crates/stego/src/slot/nosteg.rs": "camouflage",
    "crates/stego/src/slot/profile.rs": "camouflage",
    "crates/stego/src/slot/rr.rs": "camouflage",
    "crates/stego/src/token.rs": "camouflage",
}
# Folders in which every file is a parser with a fuzz target, or is listed below with its purpose.
PARSER_FOLDERS = (
    "crates/comps/src/protocol/",
    "crates/onion/src/authority/",
    "crates/onion/src/directory/",
    "crates/onion/src/handshake/",
    "crates/onion/src/wire/",
    "crates/pt/src/",
    "crates/stego/src/",
)
NO_PARSERS = {
    "crates/onion/src/authority/sybil.rs": "limits by address",
    "crates/onion/src/authority/flags.rs": "judges numbers",
    "crates/onion/src/authority/history.rs": "uptimes",
    "crates/onion/src/authority/pins.rs": "pairs of identities",
    "crates/onion/src/authority/reachability.rs": "opens links; channel.rs reads what comes",
    "crates/onion/src/authority/refusal.rs": "words",
    "crates/onion/src/authority/routerlist.rs": "keeps what entry.rs has read",
    "crates/onion/src/authority/rules.rs": "what the operator decided",
    "crates/onion/src/authority/probe_queue.rs": "an order of probes",
    "crates/onion/src/authority/weights.rs": "arithmetic",
    "crates/onion/src/directory/bandwidth.rs": "arithmetic",
    "crates/onion/src/directory/bridges.rs": "asks; netdoc.rs reads what comes",
    "crates/onion/src/directory/fetch.rs": "asks; http.rs and netdoc.rs read what comes",
    "crates/onion/src/directory/mod.rs": "names of modules",
    "crates/onion/src/directory/network.rs": "relays that netdoc.rs has read",
    "crates/onion/src/directory/network/listing.rs": "relays that netdoc.rs has read",
    "crates/onion/src/directory/network/possible.rs": "relays that netdoc.rs has read",
    "crates/onion/src/directory/network/tables.rs": "arithmetic",
    "crates/onion/src/directory/params.rs": "bounds of numbers",
    "crates/onion/src/directory/timeouts.rs": "arithmetic",
    "crates/onion/src/wire/crypto.rs": "keys of known length",
    "crates/onion/src/wire/key_error.rs": "words",
    "crates/pt/src/lib.rs": "names of modules",
    "crates/stego/src/budget.rs": "arithmetic",
    "crates/stego/src/client.rs": "calls; exchanges.rs and handshake.rs read what arrives",
    "crates/stego/src/client/connections.rs": "opens and closes connections",
    "crates/stego/src/cover.rs": "hands on what slots have read",
    "crates/stego/src/elligator.rs": "32 bytes, of which all stand for a key",
    "crates/stego/src/inbox.rs": "chunks that frame.rs has read",
    "crates/stego/src/lib.rs": "names of modules",
    "crates/stego/src/link/acks.rs": "times and lengths",
    "crates/stego/src/link/chunks.rs": "schedules",
    "crates/stego/src/link/connections.rs": "state of connections",
    "crates/stego/src/link/mod.rs": "calls; receive.rs reads what arrives",
    "crates/stego/src/link/send.rs": "seals blocks",
    "crates/stego/src/outbox.rs": "numbers that frame.rs has read",
    "crates/stego/src/recovery.rs": "times and counts",
    "crates/stego/src/secrets.rs": "keys of known length",
    "crates/stego/src/server.rs": "calls; connections.rs reads what arrives",
    "crates/stego/src/slot/http/date.rs": "writes dates",
    "crates/stego/src/slot/family.rs": "properties of profiles",
    "crates/stego/src/slot/mod.rs": "names of modules, and what a slot is",
}
# Brackets in the patterns keep this file from matching them.
FORBIDDEN = {
    r"(?<![\w.])/(?:[w]ork|[r]oot|[h]ome/\w+)/": "a path of a developer's machine",
    r"(?i)[a]rtifactory|[p]ypi\.org/simple|[i]ndex\.crates\.io|[p]roxy\.golang": "a package host",
}
UNFINISHED = {
    r"\b[T]ODO\b|\b[F]IXME\b|\b[X]XX\b|\b[t]odo!|\b[u]nimplemented!": "unfinished",
    r"#\[[i]gnore\]": "a test ignored without a reason",
}
# Crates and folders of the onion network that print texts for users.
SPEAKERS = ("crates/onion/src/", "crates/router/src/onion/", "crates/cli/src/onion/")
LONGEST_FILE, LONGEST_FUNCTION, LONGEST_IN_CORES = 1000, 100, 60


@dataclass(frozen=True)
class Repository:
    """The files under ``root`` that git tracks, or that `git add` would add."""

    root: Path

    @cached_property
    def files(self) -> dict[str, str]:
        """Text files by their path within the repository."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=self.root, capture_output=True, check=True).stdout
        names = sorted(name for name in listed.decode().split("\0") if name)
        texts = {name: _text(self.root / name) for name in names}
        return {name: text for name, text in texts.items() if text is not None}

    def of(self, ending: str, under: str = "") -> Iterator[tuple[str, str]]:
        """Yields the files with this ending below a folder."""
        for name, text in self.files.items():
            if name.endswith(ending) and name.startswith(under):
                yield name, text

    @property
    def cores(self) -> list[str]:
        """The existing core crates."""
        return [core for core in CORES if f"crates/{core}/Cargo.toml" in self.files]


Guard = Callable[[Repository], Iterator[str]]


def fences(repository: Repository) -> Iterator[str]:
    """Each core's clippy.toml forbids the disallowed items, each with its reason."""
    for core in repository.cores:
        name = f"crates/{core}/clippy.toml"
        fence = tomllib.loads(repository.files.get(name, ""))
        for key, wanted in (("methods", FENCED_METHODS), ("types", FENCED_TYPES)):
            entries = fence.get(f"disallowed-{key}", [])
            reasoned = {entry["path"] for entry in entries if entry.get("reason")}
            yield from (f"{name}: add {path} with its reason" for path in sorted(wanted - reasoned))


def _tree(repository: Repository, crate: str) -> subprocess.CompletedProcess[str]:
    manifest = repository.root / "crates" / crate / "Cargo.toml"
    command = ["cargo", "tree", "--locked", "--manifest-path", str(manifest)]
    # Build-time dependencies are left out.
    command += ["-e", "normal,no-proc-macro", "--prefix", "none", "-f", "{p} {f}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def lean_graphs(repository: Repository) -> Iterator[str]:
    """The dependency graphs of the crates in LEAN lack the crates listed there."""
    for crate, unwanted in LEAN.items():
        if f"crates/{crate}/Cargo.toml" not in repository.files:
            continue
        tree = _tree(repository, crate)
        if tree.returncode:
            yield f"crates/{crate}: cargo tree failed: {tree.stderr.strip()}"
        for name in sorted(heavy(tree.stdout, unwanted)):
            yield f"crates/{crate}: depends on {name}, which LEAN in guards.py excludes"


def heavy(tree: str, unwanted: set[str]) -> set[str]:
    """Returns the crates of ``unwanted`` in the output of ``cargo tree``."""
    return unwanted & {line.split()[0] for line in tree.splitlines() if line.strip()}


def core_dependencies(repository: Repository) -> Iterator[str]:
    """No core depends on sockets, runtimes, entropy or other crates of ours than allowed."""
    for core in repository.cores:
        tree = _tree(repository, core)
        if tree.returncode:
            yield f"crates/{core}: cargo tree failed: {tree.stderr.strip()}"
        exempt = EXEMPT_CRATES.get(core, set())
        breaches = (line for line in banned(tree.stdout) if line.split()[-1] not in exempt)
        yield from (f"crates/{core}: {breach}" for breach in breaches)
        if core in OWN_CRATES:
            more = own_crates(tree.stdout) - OWN_CRATES[core] - {core}
            yield from (f"crates/{core}: depends on crates/{name}" for name in sorted(more))


def own_crates(tree: str) -> set[str]:
    """Returns the workspace crates in the output of ``cargo tree``."""
    return set(re.findall(r"(?m)^anabranch-(\w+) ", tree))


def banned(tree: str) -> list[str]:
    """Returns the lines of ``cargo tree`` that are forbidden to cores."""
    crates = {tuple(line.replace("(*)", "").split()) for line in tree.splitlines() if line.strip()}
    found = [crate[0] for crate in crates if crate[0] in BANNED_CRATES]
    features = {crate[0]: crate[-1].split(",") for crate in crates if crate[0] == "rand"}
    drawn = {"thread_rng", "os_rng", "sys_rng"} & set(features.get("rand", []))
    return sorted(f"depends on {name}" for name in [*found, *(f"rand/{f}" for f in drawn)])


_TEST_FEATURE = re.compile(r"^\s*#!?\[cfg.*\bfeature = \"(test\w*)\"", re.MULTILINE)


def test_features(repository: Repository) -> Iterator[str]:
    """No feature is only for tests: test code is in crates/testkit, and uses public interfaces."""
    for name, text in repository.of("Cargo.toml"):
        for feature in tomllib.loads(text).get("features", {}):
            if feature.startswith("test"):
                yield f"{name}: move the feature {feature!r} for tests to crates/testkit"
    for name, text in repository.of(".rs"):
        for feature in _TEST_FEATURE.findall(text):
            yield f"{name}: move the code behind the feature {feature!r} to crates/testkit"


# Maximum share of all crates' lines, tests included, that one crate has; exempt is `onion`, which
# is the whole Tor protocol in one crate.
LARGEST_SHARE, LARGE = 0.16, {"onion"}


def crate_shares(repository: Repository) -> Iterator[str]:
    """No crate is much larger than the others; such a crate should be split."""
    lines: Counter[str] = Counter()
    for name, text in repository.of(".rs", "crates/"):
        lines[name.split("/")[1]] += text.count("\n")
    for crate, count in lines.items():
        share = count / lines.total()
        if len(lines) * LARGEST_SHARE > 1 and share > LARGEST_SHARE and crate not in LARGE:
            yield f"crates/{crate}: {share:.1%} of the lines (at most {LARGEST_SHARE:.0%})"


def unsafe_code(repository: Repository) -> Iterator[str]:
    """`unsafe` is in crates/os only, and each block has a SAFETY comment."""
    for name, text in repository.of(".rs"):
        lines = blank(text, keep_comments=True).split("\n")
        code = blank(text).split("\n")
        for number, line in enumerate(code):
            if not re.search(r"\bunsafe\b(?!_)", line):
                continue
            if not name.startswith("crates/os/"):
                yield f"{name}:{number + 1}: unsafe outside crates/os"
            elif "{" in line and not _has_safety(lines, number):
                yield f"{name}:{number + 1}: unsafe without a SAFETY comment"


def tor_crates(repository: Repository) -> Iterator[str]:
    """tor-* crates are imported in one module only."""
    for name, text in repository.of(".rs"):
        if not WIRE.fullmatch(name) and re.search(r"\btor_\w+::", blank(text)):
            yield f"{name}: imports a tor-* crate; only crates/onion/src/wire may"
    for name, text in repository.of("Cargo.toml"):
        if name not in ("Cargo.toml", "crates/onion/Cargo.toml") and re.search(r"(?m)^tor-", text):
            yield f"{name}: depends on a tor-* crate; only crates/onion may"


# : Files of cores that may name what the fence forbids: quinn-proto uses `Instant`.
UNFENCED = {"crates/links/src/quic/epoch.rs"}


def hash_maps(repository: Repository) -> Iterator[str]:
    """Cores have no container of random order, and disable no lint of the fence."""
    for core in repository.cores:
        for name, text in repository.of(".rs", f"crates/{core}/src/"):
            code = blank(text)
            if re.search(r"\bHash(Map|Set)\b", code):
                yield f"{name}: a core must use BTreeMap or BTreeSet, whose order is fixed"
            if name not in UNFENCED and re.search(r"\b(allow|expect)\([^)]*disallowed_", code):
                yield f"{name}: disables a lint that clippy.toml prescribes for cores"


_FENCE = re.compile(r"^\s*//[/!] ?```(.*)$", re.MULTILINE)
_RUN = {"", "rust", "no_run", "should_panic", "compile_fail"}


def doctests(repository: Repository) -> Iterator[str]:
    """A crate with `doctest = false` has no doctests: they would not run."""
    for manifest, about in repository.of("Cargo.toml"):
        if tomllib.loads(about).get("lib", {}).get("doctest", True):
            continue
        folder = f"{manifest.removesuffix('Cargo.toml')}src/"
        for name, text in repository.of(".rs", folder):
            # Every second fence closes a block.
            opened = _FENCE.findall(text)[::2]
            if any(word.split(",")[0].strip() in _RUN for word in opened):
                yield f"{name}: a doctest that never runs: {manifest} has doctest = false"


def stubs(repository: Repository) -> Iterator[str]:
    """Each anchor line of a `make to-add` stub is in its file once, and its row is complete."""
    architecture = repository.files.get("ARCHITECTURE.md")
    table = rows(architecture) if architecture else None
    for stub in STUBS:
        if table is not None:
            yield from breaches(stub, table.get(stub.what, []))
        for name, anchor, _ in stub.lines:
            found = repository.files.get(name, "").count(anchor)
            if found != 1:
                where = f"scripts/to_add.py inserts code at {anchor.strip()!r}"
                yield f"{name}: {where}, which must occur once, not {found} times"


def import_circles(repository: Repository) -> Iterator[str]:
    """No files of a crate import each other in a circle, except for a facade and its parts."""
    crates = {name.split("/")[1] for name, _ in repository.of("/Cargo.toml", "crates/")}
    for crate in sorted(crates):
        source = f"crates/{crate}/src/"
        files = {name.removeprefix(source): text for name, text in repository.of(".rs", source)}
        for circle in circles(files):
            yield f"crates/{crate}: {', '.join(circle)} import each other in a circle"


def python_imports(repository: Repository) -> Iterator[str]:
    """No modules of the lab import each other in a circle, except for a facade and its parts."""
    files = {name.removeprefix("lab/src/"): text for name, text in repository.of(".py", "lab/src/")}
    for circle in python_circles.circles(files):
        yield f"lab/src: {', '.join(circle)} import each other in a circle"


def sizes(repository: Repository) -> Iterator[str]:
    """Files and functions are short enough for one reader."""
    for name, text in repository.of(".rs"):
        if (lines := lines_without_tests(text)) > LONGEST_FILE:
            yield f"{name}: {lines} lines without tests (at most {LONGEST_FILE})"
        in_core = name.startswith(tuple(f"crates/{core}/src/" for core in CORES))
        longest = LONGEST_IN_CORES if in_core else LONGEST_FUNCTION
        for function in functions(text):
            if function.lines > longest:
                said = f"{function.name} has {function.lines} lines (at most {longest})"
                yield f"{name}:{function.line}: {said}"
    for name, text in repository.of(".py"):
        if text.count("\n") > LONGEST_FILE:
            yield f"{name}: {text.count(chr(10))} lines (at most {LONGEST_FILE})"
        for node, lines in python_functions(text):
            if lines > LONGEST_FUNCTION:
                said = f"{node.name} has {lines} lines (at most {LONGEST_FUNCTION})"
                yield f"{name}:{node.lineno}: {said}"


def fuzz_targets(repository: Repository) -> Iterator[str]:
    """Every parser has a fuzz target with a binary and a corpus."""
    manifest = tomllib.loads(repository.files.get("fuzz/Cargo.toml", ""))
    binaries = {binary["name"] for binary in manifest.get("bin", [])}
    for parser, target in PARSERS.items():
        corpus = repository.root / "fuzz/corpus" / target
        if parser not in repository.files:
            yield f"{parser}: does not exist: remove it from PARSERS in guards.py"
        if target not in binaries or f"fuzz/fuzz_targets/{target}.rs" not in repository.files:
            yield f"{parser}: has no fuzz target {target}"
        if not corpus.is_dir() or not any(corpus.iterdir()):
            yield f"fuzz/corpus/{target}: has no seed: add an example of the input"
    for folder in PARSER_FOLDERS:
        for name, _ in repository.of(".rs", folder):
            if name not in PARSERS | NO_PARSERS and not name.endswith("/tests.rs"):
                yield f"{name}: add this file to PARSERS or NO_PARSERS in guards.py"
    for name in NO_PARSERS:
        if name in PARSERS or name not in repository.files:
            yield f"{name}: remove it from NO_PARSERS: it is in PARSERS, or does not exist"


def forbidden_words(repository: Repository) -> Iterator[str]:
    """No path of a developer's machine, no package host, nothing unfinished."""
    for name, text in repository.files.items():
        if name.endswith((".lock", "go.sum")) or name.startswith("fuzz/corpus/"):
            continue
        words = FORBIDDEN if name.endswith(".md") else FORBIDDEN | UNFINISHED
        for number, line in enumerate(text.split("\n"), 1):
            for pattern, what in words.items():
                if found := re.search(pattern, line):
                    yield f"{name}:{number}: {what}: {found.group()}"


def plain_words(repository: Repository) -> Iterator[str]:
    """Messages of the onion network's programs contain no Debug form of a value."""
    for folder in SPEAKERS:
        for name, text in repository.of(".rs", folder):
            if name.endswith("tests.rs"):
                continue
            for number, line in enumerate(without_tests(text).split("\n"), 1):
                if re.search(r"\{\w*:#?\?\}", line):
                    yield f"{name}:{number}: a message uses Debug ({{:?}}) instead of Display"


# Maximum number of types of one name that is not reported.
MANY = 3
# Maximum width of a comment, as for code in rustfmt.
COMMENT_WIDTH = 100


def comment_width(repository: Repository) -> Iterator[str]:
    """Comments are no wider than code, except for examples in them."""
    for name, text in repository.of(".rs"):
        fenced = False
        for number, line in enumerate(text.split("\n"), 1):
            comment = line.lstrip()
            if not comment.startswith("//"):
                fenced = False
                continue
            if comment.lstrip("/! ").startswith("```"):
                fenced = not fenced
            if len(line) > COMMENT_WIDTH and not fenced:
                yield f"{name}:{number}: {len(line)} columns: wrap the comment"


# Minimum number of digits and backticks per 1,000 words of doc comments, over all crates (more is
# more concrete).
CONCRETE = 65


def plain_comments(repository: Repository) -> Iterator[str]:
    """No marker of hard English becomes more frequent in a crate's doc comments."""
    recorded = json.loads(repository.files.get(language.RECORD, "{}"))
    found = language.by_crate(repository.files)
    for crate, counts in found.items():
        most = recorded.get(crate, [0] * len(language.MARKERS))
        for marker, count, limit in zip(language.MARKERS, counts.markers, most, strict=True):
            if count > limit:
                yield (
                    f"crates/{crate}: '{marker}' {count} times in doc comments (at most {limit}); "
                    f"scripts/language.py {crate} lists them: rewrite some"
                )
    total = sum(found.values(), language.Counts())
    if total.words and total.rates[-1] < CONCRETE:
        yield (
            f"doc comments have {total.rates[-1]:.0f} digits and backticks per 1,000 words "
            f"(at least {CONCRETE}): name more values and identifiers"
        )


# Documents that a newcomer reads first: maximum words, and the document where further text
# belongs.
LONGEST_DOCUMENTS = {
    "README.md": (700, "docs/guide"),
    "ARCHITECTURE.md": (2500, "docs/design"),
}


def short_documents(repository: Repository) -> Iterator[str]:
    """The documents that a newcomer reads first are short."""
    for name, (most, elsewhere) in LONGEST_DOCUMENTS.items():
        words = len(repository.files.get(name, "").split())
        if words > most:
            yield f"{name}: {words} words, at most {most}: move some to {elsewhere}"


# Reference in docs/invariants.md to a file or a function: `FILE` or `FILE::NAME`.
HOLDER = re.compile(r"`([\w./-]+/[\w.-]+)(?:::(\w+))?`")


def invariants(repository: Repository) -> Iterator[str]:
    """Each entry of docs/invariants.md names the code that enforces it, and this code exists."""
    text = repository.files.get("docs/invariants.md", "")
    for part in re.split(r"\n(?=\* )", text)[1:]:
        entry = " ".join(part.split("\n##")[0].split())
        headline, _, holders = entry.removeprefix("* ").partition(" Tested by: ")
        found = HOLDER.findall(holders)
        if not found:
            yield f"docs/invariants.md: {headline!r} names no test: add one"
        for file, function in found:
            named = (name for name in repository.files if f"/{name}".endswith(f"/{file}"))
            own = [repository.files[name] for name in named]
            if not own:
                yield f"docs/invariants.md: no file is called {file}"
            elif function and not any(re.search(rf"\b(fn|def) {function}\b", each) for each in own):
                yield f"docs/invariants.md: {file} has no {function}"


def screenshot(repository: Repository) -> Iterator[str]:
    """README's screenshot shows the live view of its golden file."""
    golden = repository.files.get(screen.SOURCE, "")
    if repository.files.get(screen.TARGET) != screen.drawing(golden):
        yield f"{screen.TARGET}: does not show {screen.SOURCE}: run scripts/screen.py"


def document_width(repository: Repository) -> Iterator[str]:
    """Prose in documents is no wider than code; tables, examples and links may be wider.

    Result pages are skipped, because programs write parts of them.
    """
    for name, text in repository.of(".md"):
        if name.startswith("docs/results/"):
            continue
        fenced = False
        for number, line in enumerate(text.split("\n"), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            kept = fenced or re.match(r"\s*\||    |\[[^]]+\]:|<", line)
            may_break = " " in re.sub(r"^\s*(?:[*+-]|\d+\.)\s+|`[^`]*`", "", line).strip()
            if len(line) > COMMENT_WIDTH and may_break and not kept:
                yield f"{name}:{number}: {len(line)} columns: wrap the line"


def code_blocks(repository: Repository) -> Iterator[str]:
    """Each code block of a document is closed, and its opening fence has at most a language.

    This finds blocks that were re-wrapped as prose: their whole text is after the opening fence.
    """
    for name, text in repository.of(".md"):
        opened = 0
        for number, line in enumerate(text.split("\n"), 1):
            if not line.lstrip().startswith("```"):
                continue
            info = line.strip().strip("`")
            if info and (opened or " " in info.strip()):
                yield f"{name}:{number}: a code block with text after its fence"
                break
            opened = 0 if opened else number
        else:
            if opened:
                yield f"{name}:{opened}: a code block that is not closed"


# Host names in a form that a user could type, and the reserved ones of RFC 2606 and 6761.
HOST = re.compile(r"(?<![\w@.-])(?:[a-z0-9-]+\.)+(?:com|net|org|io|dev|de)\b(?![\w.-]*\()")
EXAMPLE_HOST = re.compile(r"(^|\.)example\.(com|net|org)$")


def host_names(repository: Repository) -> Iterator[str]:
    """Users' documents name no host of a third party in commands or settings to paste."""
    for name, text in [*repository.of(".md"), *repository.of(".toml")]:
        if not name.startswith(("README.md", "docs/guide/", "docs/emulator.md", "examples/")):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for host in HOST.findall(line):
                if not EXAMPLE_HOST.search(host):
                    yield f"{name}:{number}: {host} belongs to others: use example.net"


def _named_places(repository: Repository) -> set[str]:
    """Returns every suffix of the paths of files and folders, without `crates/`, `src/`
    and `.rs`.
    """
    names = {name.removeprefix("crates/").replace("/src/", "/") for name in repository.files}
    names |= {
        "/".join(name.split("/")[:n]) for name in names for n in range(1, name.count("/") + 1)
    }
    names |= {name.removesuffix(".rs").removesuffix("/mod") for name in names}
    places = set()
    for name in names:
        parts = name.split("/")
        places |= {"/".join(parts[n:]) for n in range(len(parts))}
    return places


def named_places(repository: Repository) -> Iterator[str]:
    """Files, folders, tests and fuzz targets that design documents name exist."""
    places = _named_places(repository)
    rust = "\n".join(text for _, text in repository.of(".rs"))
    for document, text in repository.of(".md"):
        if not document.startswith(("ARCHITECTURE.md", "docs/design/", "docs/invariants.md")):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            missing = _missing_places(line, repository, places, rust)
            yield from (f"{document}:{number}: {what}" for what in missing)


def _missing_places(
    line: str, repository: Repository, places: set[str], rust: str
) -> Iterator[str]:
    for quoted in re.findall(r"`([^`]+)`", line):
        words = quoted.split()
        if words[:2] == ["cargo", "test"] and not re.search(rf"fn \w*{words[-1]}", rust):
            yield f"no test is called {words[-1]}"
        if not re.fullmatch(r"[\w.-]+(?:/[\w.-]*)+", quoted) or "NAME" in quoted:
            continue
        place = quoted.strip("/").removeprefix("crates/").replace("/src/", "/")
        if place.removesuffix("/src") not in places:
            yield f"{quoted} does not exist"
    for target in re.findall(r"fuzz targets? `(\w+)`", line):
        if f"fuzz/fuzz_targets/{target}.rs" not in repository.files:
            yield f"no fuzz target is called {target}"


def one_scheduler(repository: Repository) -> Iterator[str]:
    """Python uses the schedulers of `multipath` and has none of its own."""
    for name, text in repository.of(".py", "lab/"):
        if "schedul" in Path(name).name.lower():
            yield f"{name}: a scheduler in Python"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name.lower().endswith("scheduler"):
                yield f"{name}:{node.lineno}: {node.name}: a scheduler in Python"


def relay_crypto(repository: Repository) -> Iterator[str]:
    """Circuits without cryptography are for simulations: only `sim` requests them."""
    for name, text in repository.of(".rs"):
        if name.startswith(("crates/sim/", "crates/onion/")):
            continue
        for number, line in enumerate(blank(text).split("\n"), 1):
            if re.search(r"\belide_crypto\b|\bNull(Relay|Client)\b|\bKeys::Null\b", line):
                yield f"{name}:{number}: circuits without cryptography outside crates/sim"
    for name, text in repository.of("Cargo.toml"):
        dependencies = tomllib.loads(text).get("dependencies", {})
        onion = dependencies.get("anabranch-onion", {})
        features = onion.get("features", []) if isinstance(onion, dict) else []
        if "elide" in features and name != "crates/sim/Cargo.toml":
            yield f"{name}: the feature elide of onion outside crates/sim"
    keys = repository.files.get("crates/onion/src/crypto.rs", "")
    if keys and blank(keys).count("Keys::Null { cgo: ") != 1:
        yield "crates/onion/src/crypto.rs: only Keys::elided may create Keys::Null"


# Files that state the default schedule and its run length, each with its wording.
DEFAULTS = {
    "README.md": "The default, `{schedule}` every {time}",
    "examples/tunnel.toml": 'schedule = "{schedule}"\nevery = "{every}"',
    "examples/interface.toml": 'schedule = "{schedule}"',
    "docs/guide/paths.md": "**Why `{schedule}` every {time}:**",
}


def default_schedule(repository: Repository) -> Iterator[str]:
    """Program, examples and documents have one default schedule; the lab has the binding's."""
    core = repository.files.get("crates/comps/src/config.rs", "")
    found = dict(re.findall(r'pub const (SCHEDULE|EVERY): &str = "([^"]+)";', core))
    if len(found) != 2:
        yield "crates/comps/src/config.rs: the constants SCHEDULE and EVERY are missing"
        return
    every = found["EVERY"]
    time = re.sub(r"(?<=\d)(?=[a-z])", " ", every)
    for name, words in DEFAULTS.items():
        wanted = words.format(schedule=found["SCHEDULE"], every=every, time=time)
        if wanted not in repository.files.get(name, ""):
            yield f"{name}: must state the default schedule with the words {wanted!r}"


# Files that state the version, each with the format; Cargo.toml is first.
VERSIONS = {
    "Cargo.toml": r'^version = "(.+)"$',
    "lab/pyproject.toml": r'^version = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"^## ([0-9][^ ,]*)",
}


def one_version(repository: Repository) -> Iterator[str]:
    """Program, lab, citation and the changelog's latest section have the same version."""
    found = {}
    for name, form in VERSIONS.items():
        match = re.search(form, repository.files.get(name, ""), re.MULTILINE)
        found[name] = match and match.group(1)
    wanted = found["Cargo.toml"]
    for name, version in found.items():
        if version is None or version != wanted:
            yield f"{name}: version {version or 'missing'}, Cargo.toml: {wanted or 'missing'}"


# Names of types that several crates may export, by the reason.
SHARED_REASONS = {
    "every core and loop has its own; a user names its module": (
        "Client Config Core Event Flags Input Limits Message Metered Outcome Output Ports Server "
        "Settings Side State Stats"
    ),
    "an experiment's own, used in its folder and in its pages": (
        "Cell CellDelays Claim Congestion Design Kind Listing Mode Origin Page Probe Programs "
        "Row Site Spread Stream Summary Verdict"
    ),
    "the loop's settings or news of what its core calls so": (
        "Answer Authority Bridge Changes Names News Offer Reread Running Snapshot"
    ),
    "one word of the field for things of different layers": (
        "Arrival Batch Change ConnId Credentials Datagram Drops Ending Failure Family Fault "
        "Fate Flow Job Line Link LinkId Moment Network Peer Protocol "
        "Received Request Role Route RoundRobin Mark Session Silence Tap Target "
        "Transport"
    ),
    "an error of its own module": "KeyError Refusal SetupError SpecError TraceError",
    "a file of keys: Tor's, and a tunnel's": "KeyFile",
}
SHARED_NAMES = {name: why for why, names in SHARED_REASONS.items() for name in names.split()}
_TYPE = re.compile(r"^pub (?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)


def type_names(repository: Repository) -> Iterator[str]:
    """No two crates export types of the same name without a listed reason."""
    owners: dict[str, set[str]] = {}
    for name, text in repository.of(".rs", "crates/"):
        if (parts := name.split("/"))[2] == "src":
            for found in _TYPE.findall(without_tests(blank(text))):
                owners.setdefault(found, set()).add(parts[1])
    for found, crates in sorted(owners.items()):
        if len(crates) > 1 and found not in SHARED_NAMES:
            yield f"{found}: rename a type: {', '.join(sorted(crates))} export one of this name"
    for found in sorted(SHARED_NAMES):
        if len(owners.get(found, set())) < 2:
            yield f"{found}: remove it from SHARED_NAMES: fewer than two crates export it"


GUARDS: tuple[Guard, ...] = (
    fences, core_dependencies, lean_graphs, test_features, crate_shares, unsafe_code, tor_crates,
    hash_maps, doctests, import_circles, python_imports, sizes, stubs, fuzz_targets,
    forbidden_words, plain_words, comment_width, plain_comments, document_width, code_blocks,
    short_documents, invariants, screenshot,
    named_places, one_scheduler, relay_crypto, default_schedule, one_version, type_names,
    host_names,
)  # fmt: skip


def python_functions(
    text: str,
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Yields the functions of a Python file with their lengths in lines, without docstrings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            if ast.get_docstring(node) and len(node.body) > 1:
                first = node.body[1]
            yield node, (node.end_lineno or node.lineno) - first.lineno + 2


def main() -> int:
    """Runs every guard on this repository."""
    repository = Repository(ROOT)
    breaches = 0
    for guard in GUARDS:
        found = list(guard(repository))
        breaches += len(found)
        print(f"guard {guard.__name__}: {f'{len(found)} breaches' if found else 'holds'}")
        for breach in found:
            print(f"  {breach}")
    print(_lengths(repository))
    print(_names(repository))
    return 1 if breaches else 0


def _lengths(repository: Repository) -> str:
    """Returns the lengths of functions: all, and without tests."""
    own = [text for name, text in repository.of(".rs") if "/tests" not in name]
    found = [function for text in own for function in functions(text)]
    lengths = sorted(function.lines for function in found if not function.in_tests)
    if len(lengths) < 2:
        return "no functions to measure"
    high = quantiles(lengths, n=20)[-1]
    return (
        f"{len(lengths)} Rust functions without tests: median {median(lengths):g} lines, "
        f"95th percentile {high:g}, longest {lengths[-1]}"
    )


def _names(repository: Repository) -> str:
    """Returns the most common type names, which readers can understand only in context."""
    kinds = re.compile(r"^(?:pub(?:\([a-z ]+\))? )?(?:struct|enum|trait|type) (\w+)", re.MULTILINE)
    own = [text for name, text in repository.of(".rs") if "/tests" not in name]
    counts = Counter(name for text in own for name in kinds.findall(without_tests(text)))
    shared = [f"{name} {count}" for name, count in counts.most_common() if count > MANY]
    return f"type names defined more than {MANY} times: {', '.join(shared) or 'none'}"


def _has_safety(lines: list[str], number: int) -> bool:
    """Returns whether a SAFETY comment is on the line, or directly above its statement."""
    above = number
    while above > 0 and number - above < 8 and "SAFETY" not in lines[above]:
        above -= 1
        if lines[above].strip().endswith((";", "}")) and "//" not in lines[above]:
            break
    return "SAFETY" in lines[above] or "# Safety" in lines[above]


def _text(path: Path) -> str | None:
    """Returns the content of a text file; None if it is binary or does not exist."""
    try:
        return path.read_text() if path.is_file() and os.access(path, os.R_OK) else None
    except UnicodeDecodeError:
        return None


if __name__ == "__main__":
    sys.exit(main())
