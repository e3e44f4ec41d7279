"""A private Tor network of stock C tor on loopback: authorities, relays, exits, clients.

Lessons for a small network, learnt by experiment:

* Exits are configured with ``accept *:*``: a microdescriptor's port summary omits ports that are
  accepted for less than the whole address space, and a client would see no exit at all. They bind
  their sockets to 127.0.0.1, so that the kernel refuses any destination that is not loopback.
* The first consensus may lack a node that uploaded its descriptor too late, and a client with that
  consensus is slow to fetch the next: clients start when the authorities' consensus is complete.
* Only stable relays can be guards, and a relay is stable if its uptime is at least the median of
  all relays, to the second. Authorities get a history in which all relays have run for months.
* Exits query a name server of the network's own, which only has :data:`NAMES`.
* A client learns the network before its path is pinned: with every hop pinned from the start, stock
  tor often finds no directory to ask. Pins precede downloads: changing them cuts downloads.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from harness.blame import is_unjust
from harness.closing import Closing
from harness.nameserver import NameServer
from harness.notices import unusual
from harness.tools import Background, PeerFailed, tool
from harness.torcontrol import Control
from harness.torkeys import authority_keys

#: Names that exits can resolve.
NAMES = {"web.example": "127.0.0.1", "other.example": "127.0.0.1"}
FIRST_VOTES_S, VOTE_DELAY_S, LATER_VOTES_S = 10, 2, 120
UP_SECONDS = 200.0
PIN_SECONDS = 90.0
# A run of ``LONG_RUN`` seconds, with a weight of one (C tor's router-stability, format 1).
HISTORY = "format 1\nstored-at {now}\ntracked-since {long_ago}\ndata\n{relays}.\n"
LONG_RUN = 10_000_000
MEASURED_KB = 1000  # a second, of each relay
GUARD = {"Fast", "Guard", "Running", "Stable", "V2Dir", "Valid"}
# Roles that no consensus lists.
UNLISTED = ("bridge", "client")
PINS = ("EntryNodes", "MiddleNodes", "ExitNodes")
# On loopback stock tors learn a circuit timeout of 26 ms, and a busy machine then loses
# connections.
PATIENT = "LearnCircuitBuildTimeout 0"

COMMON = """\
TestingTorNetwork 1
DataDirectory {folder}
Nickname {name}
ShutdownWaitLength 0
ProtocolWarnings 1
SafeLogging 0
LogTimeGranularity 1
Log notice file {folder}/log
Log info [heartbeat,or,circ,handshake,protocol,dir]file {folder}/details
ControlPort 127.0.0.1:{control}
CookieAuthentication 1
KISTSchedRunInterval 1 msec
LogMessageDomains 1
"""
ROUTER = """\
SocksPort 0
ORPort 127.0.0.1:{orport}
Address 127.0.0.1
AssumeReachable 1
ContactInfo {name}@example.invalid
"""
AUTHORITY = f"""\
DirPort 127.0.0.1:{{dirport}}
AuthoritativeDirectory 1
V3AuthoritativeDirectory 1
ExitPolicy reject *:*
TestingV3AuthInitialVotingInterval {FIRST_VOTES_S}
TestingV3AuthInitialVoteDelay {VOTE_DELAY_S}
TestingV3AuthInitialDistDelay {VOTE_DELAY_S}
V3AuthVotingInterval {LATER_VOTES_S}
V3AuthVoteDelay {VOTE_DELAY_S}
V3AuthDistDelay {VOTE_DELAY_S}
V3AuthNIntervalsValid 10
V3BandwidthsFile {{bandwidths}}
TestingDirAuthVoteGuard *
TestingDirAuthVoteHSDir *
TestingMinExitFlagThreshold 0
TestingAuthDirTimeToLearnReachability 0
AuthDirMaxServersPerAddr 0
AuthDirHasIPv6Connectivity 1
"""
RELAY = "ExitRelay 0\nExitPolicy reject *:*\n"
EXIT = """\
ExitRelay 1
ExitPolicyRejectPrivate 0
ExitPolicy accept *:*
OutboundBindAddressExit 127.0.0.1
ServerDNSResolvConfFile {resolv}
ServerDNSDetectHijacking 0
ServerDNSTestAddresses
ServerDNSAllowBrokenConfig 1
"""
BRIDGE = "BridgeRelay 1\nPublishServerDescriptor 0\nExtORPort 127.0.0.1:auto\n"
CLIENT = "SocksPort 127.0.0.1:{socks}\nClientOnly 1\nClientRejectInternalAddresses 0\n"
# Warnings of these domains are about another node, ...
ABOUT_OTHERS = re.compile(
    r"\[(?:warn|err)\] \{[^}]*"
    r"(?:PROTOCOL|OR|CIRC|CHANNEL|HANDSHAKE|CRYPTO|NET|EDGE|EXIT|BUG)[^}]*\}"
)
# ... except for these, which any stock network on loopback logs during start-up.
USUAL = re.compile(
    "|".join((
        r"Received http status code 404",
        r"No available nodes when trying to choose node",
        r"Bw Weight Failure",
        r"Failed to choose an exit server",
        r"We just marked ourself as down",
        r"Could not find a node that matches the configured _HSLayer",
        r"Tried to establish rendezvous|Unable to add signatures|consensus",
        r"[Nn]ameserver|Couldn't set up any working",
        # In a network this small, tor builds A-B-A where A is a pinned or the only fitting node.
        r"Client asked me to extend back to the previous hop",
        r"connection_edge_process_relay_cell \(away from origin\) failed",
    ))
)  # fmt: skip

WARNING = re.compile(r"\[(?:warn|err)\]")
# About its own configuration and the small network; not about an authority.
OF_ITSELF = re.compile(
    "|".join((
        r"You have used DirAuthority",
        r"TestingTorNetwork is set",
        r"you disabled SafeLogging",
        r"You are running Tor as root",
        r"[Nn]ameserver|Couldn't set up any working",
        r"Client asked me to extend back to the previous hop",
        r"connection_edge_process_relay_cell \(away from origin\) failed",
        r"Your log may contain",
        r"Your application \(using socks5",
        r"No available nodes when trying to choose node",
        r"Failed to choose an exit server",
    ))
)  # fmt: skip


@dataclass
class Node(Closing):
    """One stock tor."""

    name: str
    role: str
    folder: Path
    orport: int
    dirport: int
    socks: int
    control_port: int
    options: Sequence[str] = ()
    process: Background | None = field(default=None, repr=False)

    def start(self, empty: Path) -> None:
        """Starts tor with the torrc in its folder."""
        command = [tool("tor"), "-f", str(self.folder / "torrc"), "--defaults-torrc", str(empty)]
        self.process = Background([*command, "--quiet"])

    def control(self) -> Control:
        """Returns a connection to its control port."""
        return Control(self.control_port, self.folder / "control_auth_cookie")

    def log(self, name: str = "log") -> list[str]:
        """Returns the lines of its log."""
        file = self.folder / name
        return file.read_text(errors="replace").splitlines() if file.exists() else []

    def bootstrapped(self) -> bool:
        """Returns whether it can build circuits."""
        return any("Bootstrapped 100%" in line for line in self.log())

    @property
    def fingerprint(self) -> str:
        """Returns its RSA identity in upper-case hex."""
        return (self.folder / "fingerprint").read_text().split()[1]

    @property
    def proxy(self) -> str:
        """URL of a client's SOCKS port in curl's notation."""
        return f"socks5h://127.0.0.1:{self.socks}"

    def cpu_ticks(self) -> int:
        """Returns its user and system time so far, in clock ticks."""
        assert self.process is not None, "it runs"
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(stat[11]) + int(stat[12])

    def carried(self) -> int:
        """Returns the bytes that it has read from the network so far."""
        with self.control() as control:
            return int(control.info("traffic/read")[0])

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        assert self.process is not None, "it runs"
        self.process.stop(signal.SIGKILL)
        self.process = None

    def close(self) -> None:
        """Stops it."""
        if self.process is not None:
            self.process.stop()
            self.process = None


class TorNetwork(Closing):
    """Stock authorities, relays, exits and clients; others join by :attr:`authorities`."""

    def __init__(
        self,
        folder: Path,
        *,
        authorities: int = 3,
        relays: int = 3,
        exits: int = 2,
        others: Sequence[str] = (),
        params: str = "",
    ):
        """Makes keys and configurations; nothing runs before :meth:`start`.

        ``others`` are ``DirAuthority`` lines of authorities that start elsewhere, ``params`` the
        consensus parameters.
        """
        self.folder = folder
        self._params = [f"ConsensusParams {params}"] if params else []
        self.nodes: list[Node] = []
        self._lines: list[str] = []
        #: Relays that start elsewhere, but must be in the consensus: fingerprints by name.
        self.others: dict[str, str] = {}
        #: The exits among them.
        self.other_exits: list[str] = []
        self._empty = folder / "empty"
        self._empty.touch()
        self.names = NameServer(NAMES)
        (folder / "resolv.conf").write_text(f"nameserver 127.0.0.1:{self.names.port}\n")
        for role, count in (("auth", authorities), ("relay", relays), ("exit", exits)):
            self.nodes += [self._node(f"{role}{number}", role) for number in range(count)]
        with ThreadPoolExecutor(2) as pool:
            auths = [node for node in self.nodes if node.role == "auth"]
            self._lines = [*others, *pool.map(self._authority, range(len(auths)), auths)]

    @property
    def authorities(self) -> list[str]:
        """The ``DirAuthority`` lines that make a tor part of this network."""
        return list(self._lines)

    def of(self, role: str) -> list[Node]:
        """Returns all nodes of a role: auth, relay, exit, bridge, client."""
        return [node for node in self.nodes if node.role == role]

    def start(self) -> None:
        """Starts the nodes that do not run yet."""
        self._write_history()
        for node in self.nodes:
            if node.process is None:
                self._write(node)
                node.start(self._empty)

    def restart(self, node: Node) -> None:
        """Restarts a node with its saved state."""
        node.start(self._empty)

    def client(self, name: str, *options: str, path: Sequence[str] = ()) -> Node:
        """Starts a client with more lines in its torrc, and waits until it can build circuits.

        ``path`` are fingerprints, first hop first: the client then builds circuits over these
        relays only.
        """
        self.wait_for_all()
        node = self._node(name, "client", options)
        self.nodes.append(node)
        self._write(node)
        node.start(self._empty)
        self.wait(node)
        if path:
            pin(node, path)
        return node

    def bridge(self, name: str, *options: str) -> Node:
        """Starts a bridge with more lines in its torrc, and waits until it has a consensus.

        It does not publish its descriptor: clients find it by its line and fingerprint.
        """
        self.wait_for_all()
        node = self._node(name, "bridge", options)
        self._fingerprint(node)
        self.nodes.append(node)
        self._write(node)
        node.start(self._empty)
        self.wait(node)
        return node

    def wait(self, node: Node, seconds: float = UP_SECONDS) -> None:
        """Waits until ``node`` can build circuits.

        Raises:
            PeerFailed: if it cannot in time; the message contains the end of its log.
        """
        assert node.process is not None, "it runs"
        try:
            node.process.wait_until("Bootstrapped 100%", node.bootstrapped, seconds)
        except PeerFailed as error:
            raise PeerFailed("\n".join([str(error), *node.log()[-15:]])) from error

    def wait_for_all(self) -> None:
        """Waits until every node's consensus lists all relays."""
        own = [node.name for node in self.nodes if node.role not in UNLISTED]
        self.wait_for_consensus(*own, *self.others)

    def wait_for_consensus(self, *names: str, seconds: float = UP_SECONDS) -> None:
        """Waits until each node's consensus lists these relays as running, and exits as exits.

        An exit refuses streams from unknown relays, so that the authorities' consensus is not
        enough.
        """
        exits = {node.name for node in self.of("exit")} | set(self.other_exits)

        wanted = {name: {"Running", "Exit"} if name in exits else {"Running"} for name in names}
        for node in self.nodes:
            if node.role in UNLISTED:
                continue
            assert node.process is not None, "it runs"
            cookie = node.folder / "control_auth_cookie"
            node.process.wait_until("its control port", cookie.exists, seconds)
            node.process.wait_bound(node.control_port, "tcp")
            what = f"a consensus with {', '.join(names)}"
            node.process.wait_until(what, partial(_lists, node, wanted), seconds)

    def warnings(self) -> list[str]:
        """Returns the warnings of all nodes, except about their own configuration and network."""
        return [
            f"{node.name}: {line}"
            for node in self.nodes
            for line in node.log()
            if WARNING.search(line)
            and not OF_ITSELF.search(line)
            and not is_unjust(line, partial(node.log, "details"))
        ]

    def complaints(self) -> list[str]:
        """Returns the complaints of all nodes about other nodes, without the usual complaints in
        networks of C tor.
        """
        warnings = [
            f"{node.name}: {line}"
            for node in self.nodes
            for line in node.log()
            if ABOUT_OTHERS.search(line) and not _is_usual(node, line)
        ]
        return warnings + self.notices()

    def notices(self) -> list[str]:
        """Returns the notices of all nodes that do not occur in networks of C tor only."""
        return [
            f"{node.name}: {line}"
            for node in self.nodes
            for line in unusual(node.log(), is_client=node.role == "client")
        ]

    def close(self) -> None:
        """Stops all nodes."""
        for node in self.nodes:
            node.close()
        self.names.close()

    def _node(self, name: str, role: str, options: Sequence[str] = ()) -> Node:
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        orport, dirport, socks, control = free_ports(4)
        return Node(name, role, folder, orport, dirport, socks, control, options)

    def _write_history(self) -> None:
        """Gives the authorities a history in which all relays have run for long and are equally
        fast.

        Otherwise clients would soon choose only the exit that carried a test's bytes.
        """
        stock = [node for node in self.nodes if node.role in ("relay", "exit")]
        with ThreadPoolExecutor(2) as pool:
            known = [*pool.map(self._fingerprint, stock), *self.others.values()]
        clock = datetime.now(UTC)
        text = HISTORY.format(
            now=f"{clock:%Y-%m-%d %H:%M:%S}",
            long_ago=f"{clock - timedelta(seconds=LONG_RUN):%Y-%m-%d %H:%M:%S}",
            relays="".join(f"{fingerprint} {LONG_RUN} 1.0\n" for fingerprint in known),
        )
        for node in self.of("auth"):
            (node.folder / "router-stability").write_text(text)
        measured = [f"node_id=${fingerprint} bw={MEASURED_KB}" for fingerprint in known]
        lines = [str(int(clock.timestamp())), *measured, ""]
        (self.folder / "bandwidths").write_text("\n".join(lines))

    def _authority(self, number: int, node: Node) -> str:
        v3 = authority_keys(number, node.folder / "keys")
        fingerprint = self._fingerprint(node)
        at = f"127.0.0.1:{node.dirport} {fingerprint}"
        return f"DirAuthority {node.name} orport={node.orport} no-v2 v3ident={v3} {at}"

    def _fingerprint(self, node: Node) -> str:
        """Has tor make the node's keys, and returns the fingerprint of its RSA identity."""
        # In a private network tor makes keys only if its configuration has an authority's line.
        some = f"x orport=1 v3ident={'A' * 40} 127.0.0.1:1 {'A' * 40}"
        command = [tool("tor"), "-f", str(self._empty), "--defaults-torrc", str(self._empty)]
        command += ["--list-fingerprint", "--quiet", "--DataDirectory", str(node.folder)]
        command += ["--ORPort", f"127.0.0.1:{node.orport}", "--Address", "127.0.0.1"]
        command += ["--Nickname", node.name, "--DirAuthority", some]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return "".join(done.stdout.split()[-10:])

    def _write(self, node: Node) -> None:
        parts = {
            "auth": [ROUTER, AUTHORITY],
            "relay": [ROUTER, RELAY],
            "exit": [ROUTER, EXIT],
            "bridge": [ROUTER, RELAY, BRIDGE],
            "client": [CLIENT],
        }[node.role]
        filled = "".join([COMMON, *parts]).format(
            folder=node.folder, name=node.name, control=node.control_port, orport=node.orport,
            dirport=node.dirport, socks=node.socks, resolv=self.folder / "resolv.conf",
            bandwidths=self.folder / "bandwidths",
        )  # fmt: skip
        params = self._params if node.role == "auth" else []
        lines = "\n".join([*self._lines, *params, *node.options])
        (node.folder / "torrc").write_text(f"{filled}{lines}\n")


def _is_usual(node: Node, line: str) -> bool:
    return bool(USUAL.search(line) or is_unjust(line, partial(node.log, "details")))


def _lists(node: Node, wanted: dict[str, set[str]]) -> bool:
    """Returns whether the node's consensus gives all the flags that are wanted."""
    with node.control() as control:
        known = dict(control.routers().values())
    return all(flags <= known.get(name, set()) for name, flags in wanted.items())


def pin(node: Node, path: Sequence[str]) -> None:
    """Pins a client to this path, and waits until it has such circuits and no others."""
    pins = " ".join(f"{option}={hop}" for option, hop in zip(PINS, path, strict=True))

    def follows() -> bool:
        with node.control() as control:
            return control.paths() == {tuple(path)}

    with node.control() as control:
        name, flags = control.routers()[path[0]]
        if not flags >= GUARD:
            raise PeerFailed(f"{name} can be nobody's guard, it lacks {', '.join(GUARD - flags)}")
        control.ask(f"SETCONF {pins}")
    assert node.process is not None, "it runs"
    node.process.wait_until(f"circuits of {node.name} by its pinned path", follows, PIN_SECONDS)


def free_ports(count: int) -> list[int]:
    """Returns free TCP ports of 127.0.0.1."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
