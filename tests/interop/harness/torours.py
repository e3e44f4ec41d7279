"""Our own client and relays in a private network of stock tors."""

from __future__ import annotations

import http.client
import json
import signal
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path

from harness.closing import Closing
from harness.seeded import MIB
from harness.tools import Background, PeerFailed, anabranch, wait_for
from harness.tornet import Node, TorNetwork, free_ports

# : In a network this small, stock tors also ask each other to extend a circuit back to its origin.
BACK = "a request to extend a circuit in a way that is not allowed"
CELL = 514
# : A rate in bytes a second that is never reached: stock relays are not limited either.
FREELY = "1000000000"
# Seconds between consensuses in networks that live for minutes.
INTERVAL_S = 20
# Time period of onion services: C tor in test networks uses 24 consensus intervals; other programs
# read it from the consensus.
PERIOD_MINUTES = 24 * INTERVAL_S // 60


def events_of(process: Background, kind: str = "") -> list[dict[str, object]]:
    """Returns the events of a process of ours with ``--json``, of one kind or all."""
    # The last line may be incomplete.
    whole, _, _ = process.output().rpartition("\n")
    lines = [line for line in whole.splitlines() if line.startswith("{")]
    told: list[dict[str, object]] = [json.loads(line) for line in lines]
    return [event for event in told if kind in ("", event["event"])]


def http_get(port: int, path: str, **headers: str) -> tuple[int, str, bytes]:
    """Returns a directory port's response: the status, its encoding, and the body as received."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    # Otherwise http.client requests the identity encoding.
    link.putrequest("GET", path, skip_accept_encoding=True)
    for name, value in headers.items():
        link.putheader(name, value)
    link.endheaders()
    answer = link.getresponse()
    body = answer.read()
    link.close()
    return answer.status, answer.getheader("Content-Encoding", "identity"), body


def client_command(
    network: TorNetwork, folder: Path, authorities: Sequence[str] | None = None
) -> tuple[list[str], int]:
    """Returns the command of a client with its state in ``folder``, and its SOCKS port.

    Waits until the authorities' consensus lists all relays. ``authorities`` are ``DirAuthority``
    lines; the network's by default.
    """
    network.wait_for_all()
    folder.mkdir(exist_ok=True)
    lines = network.authorities if authorities is None else authorities
    file = folder / "authorities"
    file.write_text("\n".join(lines) + "\n")
    (port,) = free_ports(1)
    command = [anabranch(), "client", "--listen", f"127.0.0.1:{port}", "--share-subnets"]
    command += ["--data", str(folder / "state"), "--authorities", str(file)]
    return command, port


class OurClient(Closing):
    """``anabranch client`` with its state in ``folder``."""

    def __init__(
        self,
        network: TorNetwork,
        folder: Path,
        *options: str,
        authorities: Sequence[str] | None = None,
    ):
        """Starts the client (:func:`client_command`)."""
        command, self.socks = client_command(network, folder, authorities)
        self.process = Background([*command, "--json", *options])

    @property
    def proxy(self) -> str:
        """Proxy URL in curl's notation."""
        return f"socks5h://127.0.0.1:{self.socks}"

    def events(self, kind: str = "") -> list[dict[str, object]]:
        """Returns its events so far, of one kind or all."""
        return events_of(self.process, kind)

    def wait_ready(self, seconds: float = 120.0) -> None:
        """Waits until it has built a circuit."""
        built = "circuit_built"
        self.process.wait_until("a circuit", lambda: bool(self.events(built)), seconds)

    def paths(self) -> list[tuple[str, ...]]:
        """Returns the relays of all circuits that it built, first hop first."""
        found = []
        for event in self.events("circuit_built"):
            path = event["path"]
            assert isinstance(path, Sequence), "a list of names"
            found.append(tuple(str(name) for name in path))
        return found

    def close(self) -> None:
        """Stops the client."""
        self.process.stop()


class OurAuthority(Closing):
    """``anabranch authority`` with its state in ``folder``, the only authority of its network."""

    def __init__(self, folder: Path, *options: str, interval: int = INTERVAL_S):
        """Starts the authority, with a consensus each ``interval`` seconds."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.data = folder / "state"
        self.orport, self.dirport = free_ports(2)
        self.command = [anabranch(), "authority", "--json", "--nickname", "ourauth"]
        self.command += ["--address", "127.0.0.1", "--listen", f"127.0.0.1:{self.orport}"]
        self.command += ["--listen-dir", f"127.0.0.1:{self.dirport}", "--data", str(self.data)]
        self.command += ["--contact", "ourauth@example.invalid", "--interval", str(interval)]
        self.command += ["--young", "--allow-private", *options]
        self.start()

    def start(self) -> None:
        """Starts the authority, the first time or again."""
        self.process = Background(self.command)
        self.process.wait_until("its ports", lambda: bool(self.events("listening")), 60)

    @property
    def line(self) -> str:
        """Its ``DirAuthority`` line."""
        return str(self.events("authority")[0]["what"])

    def events(self, kind: str = "") -> list[dict[str, object]]:
        """Returns its events so far, of one kind or all."""
        return events_of(self.process, kind)

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        self.process.stop(signal.SIGKILL)

    def ask(self, path: str, **headers: str) -> bytes:
        """Returns its directory port's response to a GET, still encoded.

        Raises:
            PeerFailed: with the status, if that is not 200.
        """
        status, _, body = http_get(self.dirport, path, **headers)
        if status != HTTPStatus.OK:
            raise PeerFailed(f"{status} for {path}")
        return body

    def close(self) -> None:
        """Stops the authority."""
        self.process.stop()


class OurRelay(Closing):
    """``anabranch relay`` with its state in ``folder``; it starts before the network."""

    def __init__(
        self, network: TorNetwork, folder: Path, name: str, *options: str, program: str = ""
    ):
        """Starts the relay, which uploads its descriptor when the authorities run.

        ``program`` is the path of another build than the one under test.
        """
        folder.mkdir(exist_ok=True)
        self.name = name
        self.data = folder / "state"
        authorities = folder / "authorities"
        authorities.write_text("\n".join(network.authorities) + "\n")
        self.orport, self.metrics = free_ports(2)
        self.command = [program or anabranch(), "relay", "--json", "--nickname", name]
        self.command += ["--address", "127.0.0.1", "--listen", f"127.0.0.1:{self.orport}"]
        self.command += ["--data", str(self.data), "--authorities", str(authorities)]
        self.command += ["--allow-private", "--grace", "0"]
        self.command += ["--metrics", f"127.0.0.1:{self.metrics}", *options]
        if "--rate" not in options:
            self.command += ["--rate", FREELY]
        self.start()

    def start(self) -> None:
        """Starts the relay, the first time or again."""
        self.process = Background(self.command)
        self.process.wait_until("its port", lambda: bool(self.events("listening")), 30)

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        self.process.stop(signal.SIGKILL)

    def scrape(self) -> dict[str, float]:
        """Returns its Prometheus metrics, by series."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as answer:
            page: str = answer.read().decode()
        lines = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
        return {series: float(value) for series, value in lines}

    def carried(self) -> int:
        """Returns the approximate number of bytes that it has relayed so far."""
        return self.number("relayed") * CELL

    @property
    def fingerprint(self) -> str:
        """Its RSA identity, upper-case hex."""
        return str(self.events("fingerprint")[0]["what"])

    def events(self, kind: str = "") -> list[dict[str, object]]:
        """Returns its events so far, of one kind or all."""
        return events_of(self.process, kind)

    def violations(self) -> list[str]:
        """Returns protocol violations of its neighbours, each with the neighbour, except for
        :data:`BACK`.
        """
        told = [str(event["what"]) for event in self.events("violation")]
        return [what for what in told if not what.startswith(BACK)]

    def number(self, name: str) -> int:
        """Returns the last value of a counter."""
        numbers = self.events("numbers")
        return int(str(numbers[-1][name])) if numbers else 0

    def close(self) -> None:
        """Stops the relay."""
        self.process.stop()


def network_of_ours(
    folder: Path, stack: ExitStack, count: int
) -> tuple[TorNetwork, list[OurRelay]]:
    """Makes an authority and ``count`` relays, all ours; start the network before its clients."""
    options = ["--expect", str(count), "--param", f"hsdir_interval={PERIOD_MINUTES}"]
    authority = stack.enter_context(OurAuthority(folder / "authority", *options))
    network = stack.enter_context(
        TorNetwork(folder, authorities=0, relays=0, exits=0, others=[authority.line])
    )
    return network, relays_of_ours(network, folder, stack, count)


def relays_of_ours(
    network: TorNetwork, folder: Path, stack: ExitStack, count: int
) -> list[OurRelay]:
    """Starts our relays in a network: the last relay is an exit, the first has two shards."""
    made = []
    for number in range(count):
        more = ["--exit", "accept *:*"] if number == count - 1 else []
        more += ["--threads", "2"] if number == 0 else []
        name = f"ours{number}"
        made.append(stack.enter_context(OurRelay(network, folder / name, name, *more)))
    network.others = {relay.name: relay.fingerprint for relay in made}
    network.other_exits = [made[-1].name] if made else []
    return made


def kill_who_carries(candidates: Sequence[OurRelay | Node]) -> Callable[[], OurRelay | Node]:
    """Returns a function that kills the relay with the most traffic since this call."""
    before = [relay.carried() for relay in candidates]

    def kill() -> OurRelay | Node:
        grown: list[int] = []

        def told() -> bool:
            now = [relay.carried() for relay in candidates]
            grown[:] = [after - then for after, then in zip(now, before, strict=True)]
            return max(grown) > MIB // 2

        wait_for("word of who carries a download", told)
        victim = candidates[grown.index(max(grown))]
        victim.kill()
        return victim

    return kill
