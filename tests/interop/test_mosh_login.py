"""``anabranch mosh`` with unmodified ssh, mosh-server and mosh-client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import MakeNetwork, Results
from harness.fair import difference, unfair, weighted_bounds
from harness.mosh import PORT, MoshServer, Screen
from harness.net import SERVER, SERVER6, Host, links
from harness.splitter import interfaces
from harness.sshd import Sshd
from harness.tools import anabranch, tool, wait_for

pytestmark = pytest.mark.mosh

SECONDS = 12
# A server whose client never returns must not run forever.
MOSH_SERVER = "env PS1='$ ' MOSH_SERVER_NETWORK_TMOUT=60 mosh-server"
BASH = ["--", "bash", "--norc", "--noprofile"]
PATHS = [word for path in interfaces(3) for word in ("--path", path)]
EVERY = ["--schedule", "round-robin", "--every", "100ms", "--seed", "7"]


@pytest.mark.parametrize(
    ("address", "options"),
    [
        pytest.param(SERVER, [], id="as-mosh-does"),
        pytest.param(SERVER, ["--remote-ip", "remote", "--no-ssh-pty"], id="server-says"),
        pytest.param(SERVER, ["--experimental-remote-ip", "local", "-4"], id="looked-up"),
        pytest.param(SERVER6, ["-6"], id="ipv6"),
    ],
)
def test_a_login_by_ssh_is_split_and_ends_as_mosh_does(
    make_network: MakeNetwork, results: Results, tmp_path: Path, address: str, options: list[str]
) -> None:
    """All output arrives, all paths carry both directions, and the program prints nothing on the
    screen.
    """
    network, log = make_network(links(3)), tmp_path / "log"
    login = ["--ssh", "", "--server", MOSH_SERVER, *options, "--log", str(log), "--json"]
    with Sshd(network.server, tmp_path) as sshd:
        login[1] = sshd.ssh(SERVER, SERVER6)
        with _mosh(network.client, f"{sshd.user}@{address}", [*login, *BASH]) as screen:
            assert screen.wait_text("$ ", 15), screen.text()
            assert "round-robin" not in screen.text(), "the terminal is mosh-client's"
            before = network.stats()
            result = screen.run_for(SECONDS)
            carried = difference(network.stats(), before)
            assert not result.fault(), screen.text()
            assert screen.is_cooked()
            assert "datagrams: p0" in screen.text(), "said when mosh-client has ended"
    results.add("anabranch mosh", login=address, commands=result.commands, slow=result.slowest_s)
    bounds = weighted_bounds(1 / 3, result.commands)
    assert not unfair(carried, dict.fromkeys(carried, bounds))
    events = _events(log)
    (about,) = (event for event in events if event["event"] == "listening")
    assert about["server"].startswith(f"[{address}]:" if ":" in address else f"{address}:")
    assert [each["protocol"] for each in events if each["event"] == "session"] == ["mosh"]
    paths = events[-1]["paths"]
    assert all(min(each["up_packets"], each["down_packets"]) > 10 for each in paths)


def test_a_session_begun_elsewhere_needs_a_port_and_a_key(make_network: MakeNetwork) -> None:
    """Without ssh, the key is given in the environment."""
    network = make_network(links(3))
    with MoshServer(network.server) as server:
        options = ["--port", str(PORT)]
        with _mosh(network.client, SERVER, options, MOSH_KEY=server.key) as screen:
            before = network.stats()
            result = screen.run_for(5)
            carried = difference(network.stats(), before)
    assert not result.fault()
    assert all(min(each.up_packets, each.down_packets) > 5 for each in carried.values())


def test_the_key_is_on_no_command_line(make_network: MakeNetwork) -> None:
    """No command line has the key, neither ours nor mosh-client's, because other users could read
    it there.
    """
    network = make_network(links(2))
    with MoshServer(network.server) as server:
        options = ["--port", str(PORT)]
        with _mosh(network.client, SERVER, options, paths=2, MOSH_KEY=server.key) as screen:
            assert screen.wait_text("$ ", 15)
            (client,) = _children(screen.pid)
            lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (screen.pid, client)]
            assert b"mosh-client" in lines[1]
            assert not any(server.key.encode() in line for line in lines)
            screen.enter("exit\n")
            assert screen.wait_exit(15) == 0


def test_a_killed_client_ends_it_with_the_signals_status_and_a_usable_terminal(
    make_network: MakeNetwork,
) -> None:
    """The terminal is restored although mosh-client, killed, could not do it."""
    network = make_network(links(2))
    with MoshServer(network.server) as server:
        options = ["--port", str(PORT)]
        with _mosh(network.client, SERVER, options, paths=2, MOSH_KEY=server.key) as screen:
            assert screen.wait_text("$ ", 15)
            assert not screen.is_cooked(), "mosh-client reads keys one by one"
            (client,) = _children(screen.pid)
            os.kill(client, signal.SIGKILL)
            assert screen.wait_exit(10) == 128 + signal.SIGKILL
            assert screen.is_cooked()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_lets_the_client_say_goodbye(
    make_network: MakeNetwork, how: signal.Signals
) -> None:
    """The client's goodbye reaches the server through the splitter, so the server does not wait
    for it.
    """
    network = make_network(links(2))
    with MoshServer(network.server) as server:
        options = ["--port", str(PORT)]
        with _mosh(network.client, SERVER, options, paths=2, MOSH_KEY=server.key) as screen:
            assert screen.wait_text("$ ", 15)
            os.kill(screen.pid, how)
            assert screen.wait_exit(10) == 0
            wait_for("mosh-server to end", lambda: not Path(f"/proc/{server.pid}").exists())


def test_a_suspended_client_hands_the_terminal_back_and_goes_on(make_network: MakeNetwork) -> None:
    """Mosh's key (Ctrl-^ Ctrl-Z) stops both programs; continued, the session still works."""
    network = make_network(links(2))
    with MoshServer(network.server) as server:
        command = _command(SERVER, ["--port", str(PORT)], 2)
        shell = network.client.command(["bash", "--norc", "--noprofile", "-i"])
        with Screen(shell, {"MOSH_KEY": server.key, "PS1": "here: "}) as screen:
            assert screen.wait_text("here: ", 5)
            screen.enter(" ".join(command) + "\n")
            assert screen.wait_text("$ ", 15)
            screen.enter("\x1e\x1a")
            assert screen.wait_text("Stopped", 10), screen.text()
            screen.enter("fg\n")
            screen.enter("echo back-$((40+2))\n")
            assert screen.wait_text("back-42", 15), screen.text()
            screen.enter("exit\n")
            assert screen.wait_text("datagrams: p0", 15), screen.text()


def test_a_login_that_is_refused_says_what_ssh_said(
    make_network: MakeNetwork, tmp_path: Path
) -> None:
    """The control: a wrong key is refused with ssh's message."""
    network = make_network(links(2))
    with Sshd(network.server, tmp_path) as sshd:
        other = tmp_path / "other"
        network.client.must(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)])
        ssh = sshd.ssh(SERVER, key="other")
        command = _command(f"{sshd.user}@{SERVER}", ["--ssh", ssh], 2)
        done = network.client.run(command)
    assert done.returncode == 1
    assert "Permission denied" in done.stderr
    assert "before a mosh-server answered" in done.stderr.splitlines()[-1]


def _command(to: str, options: Sequence[str], paths: int) -> list[str]:
    return [anabranch(), "mosh", to, *PATHS[: 2 * paths], *EVERY, *options]


def _mosh(
    host: Host, to: str, options: Sequence[str], paths: int = 3, **environment: str
) -> Screen:
    command = _command(to, options, paths)
    return Screen(host.command(command), environment)


def _children(pid: int) -> list[int]:
    said = subprocess.run(
        [tool("ps"), "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in said.stdout.split()]


def _events(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]
