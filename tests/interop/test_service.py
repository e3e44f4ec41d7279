"""The program as a service: confined as its systemd unit confines it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness.net import SERVER, links
from harness.seeded import MIB
from harness.service import confined, program
from harness.splitter import Splitter, interfaces
from harness.wireguard import PORT, Tunnel

pytestmark = pytest.mark.operate

LENGTH = 25 * MIB
PATHS = 3


def test_a_tunnel_goes_round_all_interfaces_below_the_units_confinement(
    make_network: MakeNetwork, web_root: Path
) -> None:
    """Nobody's process without a capability, on read-only files, with the unit's system calls."""
    network = make_network(links(PATHS))
    to = f"{SERVER}:{PORT}"
    with (
        confined() as before,
        Splitter(network.client, to, interfaces(PATHS), before=before) as splitter,
        Tunnel(network.server, network.client, splitter.listen) as tunnel,
    ):
        status = Path(f"/proc/{splitter.pid}/status").read_text()
        assert "CapBnd:\t0000000000000000" in status
        assert "Seccomp:\t2" in status
        tunnel.ping()
        with tunnel.server.web(web_root / "site"):
            assert not tunnel.download(LENGTH).fault(LENGTH)
        splitter.stop()
        carried = splitter.counts()
    assert min(each.up_packets for each in carried.values()) > 100
    assert min(each.down_packets for each in carried.values()) > 100


@pytest.mark.parametrize(
    "forbidden",
    [
        "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "import ctypes; exit(ctypes.CDLL(None).unshare(0x40000000) != 0)",
        "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)",
        "open('/var/tmp/anabranch-was-here', 'w')",
        "import os; os.listdir('/root')",
    ],
)
def test_the_confinement_bites(make_network: MakeNetwork, forbidden: str) -> None:
    """The twin: what the unit forbids fails there, and what it does not forbid works."""
    network = make_network(links(1))
    with confined() as before:
        assert Path(program(before)).exists()
        python = [*before, "/usr/bin/python3", "-I", "-c"]
        assert network.client.run([*python, "import socket; socket.socket()"]).returncode == 0
        done = network.client.run([*python, forbidden])
    assert done.returncode == 1, done.stderr
