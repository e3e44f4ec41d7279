"""Common programs for onion services, with only our relays.

OnionShare adds a service over a stock tor's control port, and admits clients that have its key.
Onionbalance makes and publishes its own descriptors. Onionprobe fetches descriptors and pages.
torsocks connects any program to a service.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from harness.tools import Background, tool, wait_for
from harness.tornet import PATIENT, Node, TorNetwork
from harness.torours import network_of_ours
from harness.webfiles import FileServer, fetch

pytestmark = [pytest.mark.tor, pytest.mark.timeout(600)]

RELAYS = 6
PAGE = 60_000
PUBLISHED_S = 120.0


@dataclass
class World:
    """A network of our relays, a stock client, and the page that a service shows."""

    folder: Path
    network: TorNetwork
    client: Node
    server: FileServer

    def is_found(self, host: str) -> bool:
        """Returns whether the client gets a page of this service."""
        url, into = f"http://{host}/bytes/{PAGE}", self.folder / "page"
        return not fetch(url, self.client.proxy, into).fault(PAGE)

    def service(self, name: str, *options: str) -> str:
        """Starts a stock tor with a service on port 80; returns the service's name."""
        folder = self.folder / f"service-{name}"
        port = f"HiddenServicePort 80 127.0.0.1:{self.server.port}"
        self.network.client(name, PATIENT, f"HiddenServiceDir {folder}", port, *options)
        return (folder / "hostname").read_text().strip()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yields a network of our authority and six relays; the last relay is an exit, the first has
    two shards.
    """
    folder = tmp_path_factory.mktemp("programs")
    with ExitStack() as stack:
        network, _ = network_of_ours(folder, stack, RELAYS)
        network.start()
        client = network.client("client", PATIENT)
        server = stack.enter_context(FileServer())
        yield World(folder, network, client, server)


def run(command: Sequence[str], seconds: float = 120.0, **environment: str) -> str:
    """Runs a program that must succeed; returns its output, including errors."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


def test_onionshare_shares_a_file_with_who_has_its_key(world: World, tmp_path: Path) -> None:
    """The service, made by ADD_ONION, is closed to clients without a key."""
    content = bytes(range(256)) * 400
    (tmp_path / "shared").write_bytes(content)
    settings = {
        "connection_type": "control_port", "control_port_address": "127.0.0.1",
        "control_port_port": world.network.client("sharer", PATIENT).control_port,
        "auth_type": "no_auth",
    }  # fmt: skip
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    command = [tool("onionshare-cli"), "--config", str(tmp_path / "settings.json")]
    command += ["--connect-timeout", "60", "--no-autostop-sharing", str(tmp_path / "shared")]
    with Background(command, {"HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}) as sharer:
        key = re.compile(r"Private key: (\w{52})")
        sharer.wait_until("a key", lambda: key.search(sharer.output()) is not None, PUBLISHED_S)
        said = sharer.output()
        (host,), (secret,) = re.findall(r"http://(\w{56})\.onion", said), key.findall(said)
        get = [tool("curl"), "-sS", "-m", "30", "--proxy", world.client.proxy]
        get += ["-o", str(tmp_path / "got"), f"http://{host}.onion/download"]
        assert subprocess.run(get, check=False, capture_output=True).returncode != 0, "no key"
        # OnionShare prints the key in base32; tor's control port needs base64.
        private = base64.b64encode(base64.b32decode(f"{secret}====")).decode()
        with world.client.control() as control:
            control.ask(f"ONION_CLIENT_AUTH_ADD {host} x25519:{private}")

        def is_got() -> bool:
            return subprocess.run(get, check=False, capture_output=True).returncode == 0

        wait_for("the file", is_got, PUBLISHED_S)
        assert content in (tmp_path / "got").read_bytes()


def test_onionbalance_publishes_descriptors_that_clients_find(world: World, tmp_path: Path) -> None:
    """Onionbalance's descriptor has a backend's introduction points, so its name leads to the
    backend.
    """
    made = tmp_path / "balance"
    run([tool("onionbalance-config"), "--no-interactive", "-n", "1", "--output", str(made)])
    (key,) = made.rglob("*.key")
    master = f"{key.stem}.onion"
    config = world.folder / "service-backend" / "ob_config"
    config.parent.mkdir(mode=0o700)
    config.write_text(f"MasterOnionAddress {master}\n")
    backend = world.service("backend", "HiddenServiceOnionbalanceInstance 1")
    wait_for("the backend", partial(world.is_found, backend), PUBLISHED_S)
    settings = {"services": [{"instances": [{"address": backend}], "key": str(key)}]}
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    port = world.network.client("balancer", PATIENT).control_port
    command = [tool("onionbalance"), "--is-testnet", "-i", "127.0.0.1", "-p", str(port)]
    command += ["-c", str(tmp_path / "config.yaml"), "-v", "info"]
    with Background(command, {"HOME": str(tmp_path)}) as balancer:
        balancer.wait_until("its service", partial(world.is_found, master), 2 * PUBLISHED_S)


def test_onionprobe_finds_descriptor_and_page(world: World, tmp_path: Path) -> None:
    """Onionprobe uses the client's control port and SOCKS port."""
    host = world.service("probed")
    wait_for("the service", partial(world.is_found, host), PUBLISHED_S)
    config = {
        "launch_tor": False, "socks_port": world.client.socks, "tor_address": "127.0.0.1",
        "control_port": world.client.control_port, "loop": False, "log_level": "info",
        "endpoints": {"ours": {"address": host, "protocol": "http", "port": 80, "paths": [
            {"path": "/bytes/1"}]}},
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    said = run([tool("onionprobe"), "-c", str(tmp_path / "config.yaml")], HOME=str(tmp_path))
    assert "Status code is 200" in said


def test_torsocks_brings_a_program_to_a_service(world: World) -> None:
    """The program is Python's HTTP client, without a proxy setting."""
    host = world.service("wrapped")
    wait_for("the service", partial(world.is_found, host), PUBLISHED_S)
    url = f"http://{host}/bytes/{PAGE}"
    program = f"import urllib.request as u; print(len(u.urlopen({url!r}).read()))"
    python = shutil.which("python3", path="/usr/bin") or "python3"
    said = run([tool("torsocks"), "-P", str(world.client.socks), python, "-c", program])
    assert said.split() == [str(PAGE)]
