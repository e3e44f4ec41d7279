"""``anabranch up``: a whole network in one process, for our programs and for stock tors."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from conftest import Results
from harness.closing import Closing
from harness.notices import unusual
from harness.seeded import MIB
from harness.tools import Background, anabranch, tool, wait_for
from harness.tornet import free_ports
from harness.torours import events_of
from harness.webfiles import FileServer, fetch, fetch_all

pytestmark = [pytest.mark.tor, pytest.mark.timeout(300)]

# Maximum seconds from an empty folder to the first circuit, including keys.
READY_S = 5.0


class Up(Closing):
    """A network with its keys and state in ``folder``."""

    def __init__(self, folder: Path, *options: str):
        """Starts the network."""
        self.folder = folder
        (self.socks,) = free_ports(1)
        command = [anabranch(), "up", "--json", "--data", str(folder)]
        self.begun = time.monotonic()
        self.process = Background([*command, "--listen", f"127.0.0.1:{self.socks}", *options])

    @property
    def proxy(self) -> str:
        """Proxy URL in curl's notation."""
        return f"socks5h://127.0.0.1:{self.socks}"

    def events(self, kind: str) -> list[dict[str, object]]:
        """Returns its events of one kind so far."""
        return events_of(self.process, kind)

    def ready(self) -> float:
        """Waits for a circuit; returns the seconds since the start."""
        self.process.wait_until("a circuit", lambda: bool(self.events("circuit_built")), 60.0)
        return time.monotonic() - self.begun

    def close(self) -> None:
        """Stops the network."""
        self.process.stop()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Yields a network that started in an empty folder and is ready."""
    with Up(tmp_path_factory.mktemp("up") / "state") as network:
        network.ready()
        yield network


def test_it_is_ready_at_once_from_nothing_and_from_what_was_kept(
    tmp_path: Path, results: Results
) -> None:
    """The network is ready within five seconds, most of which the keys take at the first start."""
    for start in ("from nothing", "again"):
        with Up(tmp_path / "state") as network:
            seconds = network.ready()
        results.add("anabranch up", start=start, seconds=f"{seconds:.1f}")
        assert seconds < READY_S, start


def test_files_of_any_length_come_by_three_relays(up: Up, tmp_path: Path, results: Results) -> None:
    """Files arrive over three relays, each in its own /16, and the last hop is an exit."""
    add = results.add
    fetch_all(up.proxy, tmp_path, lambda **row: add("through anabranch up", **row))
    for event in up.events("circuit_built"):
        path = [str(name) for name in event["path"]]  # type: ignore[attr-defined]
        assert len(set(path)) == 3, path
        assert path[2] in {"relay6", "relay7"}, path
    assert up.events("trouble") == []


def test_exits_reach_this_machine_alone(up: Up) -> None:
    """The exit's policy refuses addresses outside this machine without trying them."""
    command = [tool("curl"), "-sS", "-m", "60", "--proxy", up.proxy, "http://192.0.2.1:80/"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 97: the proxy's handshake failed; 2: it is not allowed.
    assert (done.returncode, done.stderr.count("(2)")) == (97, 1), done.stderr
    (refused,) = up.events("refused")
    assert (refused["port"], refused["why"]) == (80, "policy")
    # One line describes the remedy, and does not contain the destination.
    assert str(refused["what"]).endswith("with --exit RULE to allow more")
    assert "192.0.2.1" not in up.process.output()


def test_a_stock_tor_joins_with_the_lines_that_are_printed(up: Up, tmp_path: Path) -> None:
    """The stock tor builds its own circuits from our authority's consensus, and logs only its
    usual warnings.
    """
    keys = up.folder / "authority" / "keys"
    # The keys are old enough to be rotated, but only a running network may rotate them.
    os.utime(keys / "secret_onion_key", (0, 0))
    os.utime(keys / "secret_onion_key_ntor", (0, 0))
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    command = [anabranch(), "up", "--print-torrc", "--data", str(up.folder)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {path.name: path.read_bytes() for path in keys.iterdir()} == before
    (socks,) = free_ports(1)
    torrc = tmp_path / "torrc"
    own = [f"SocksPort 127.0.0.1:{socks}", f"DataDirectory {tmp_path / 'data'}"]
    torrc.write_text("\n".join([lines, *own, "Log notice stdout"]) + "\n")
    with Background([tool("tor"), "-f", str(torrc)]) as tor, FileServer() as server:
        tor.wait_until("a bootstrap", lambda: "Bootstrapped 100%" in tor.output(), 60.0)
        got = fetch(server.url(5 * MIB), f"socks5h://127.0.0.1:{socks}", tmp_path / "got")
        log = tor.output()
    assert not got.fault(5 * MIB), f"{got.fault(5 * MIB)}\n{log[-3000:]}"
    assert unusual(log.splitlines(), is_client=True) == []
    about_us = ("authority", "relay", "consensus", "protocol", "certificate")
    warnings = [line for line in log.splitlines() if "[warn]" in line or "[err]" in line]
    assert [line for line in warnings if any(word in line for word in about_us)] == []


def test_a_stock_onion_service_is_reached_by_a_stock_client(up: Up, tmp_path: Path) -> None:
    """Descriptor, introduction and rendezvous use only our relays; a page arrives intact."""
    command = [anabranch(), "up", "--print-torrc", "--data", str(up.folder)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (socks,) = free_ports(1)
    service = tmp_path / "service"
    with FileServer() as server, ExitStack() as stack:
        tors = []
        for name, own in (
            (
                "host",
                [f"HiddenServiceDir {service}", f"HiddenServicePort 80 127.0.0.1:{server.port}"],
            ),
            ("client", []),
        ):
            listens = f"SocksPort 127.0.0.1:{socks}" if name == "client" else "SocksPort 0"
            torrc = tmp_path / f"torrc-{name}"
            usual = [listens, f"DataDirectory {tmp_path / name}", "Log notice stdout"]
            torrc.write_text("\n".join([lines, *usual, *own]) + "\n")
            tor = stack.enter_context(Background([tool("tor"), "-f", str(torrc)]))
            tor.wait_until("a bootstrap", partial(_bootstrapped, tor), 60.0)
            tors.append(tor)
        url = f"http://{(service / 'hostname').read_text().strip()}/bytes/"
        proxy = f"socks5h://127.0.0.1:{socks}"
        got = partial(fetch, into=tmp_path / "got", proxy=proxy)
        wait_for("the service", lambda: not got(f"{url}1").fault(1), 120.0)
        fault = got(f"{url}{5 * MIB}").fault(5 * MIB)
        assert not fault, "\n".join([fault, *(tor.output()[-2000:] for tor in tors)])
        for tor in tors:
            about_us = ("relay", "protocol", "circuit", "descriptor")
            warnings = [line for line in tor.output().splitlines() if "[warn]" in line]
            assert [line for line in warnings if any(word in line for word in about_us)] == []


def _bootstrapped(tor: Background) -> bool:
    return "Bootstrapped 100%" in tor.output()


def test_a_second_one_on_the_same_machine_says_what_is_in_its_way(up: Up, tmp_path: Path) -> None:
    """A second network reports the conflict, with the same folder and with another; the first one
    continues.
    """
    for folder, code, word in ((up.folder, 2, "another"), (tmp_path / "other", 1, "127.1.0.1")):
        command = [anabranch(), "up", "--data", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert word in done.stderr
    with FileServer() as server:
        assert not fetch(server.url(MIB), up.proxy, tmp_path / "got").fault(MIB)
