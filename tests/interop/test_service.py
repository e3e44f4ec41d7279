"""The program as a service: confined as its systemd unit confines it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import MakeNetwork
from harness.net import SERVER, links
from harness.seeded import MIB
from harness.service import PACKAGING, RELAY, confined, program, state
from harness.splitter import Splitter, interfaces
from harness.tools import Background, wait_for
from harness.tornet import free_ports
from harness.torours import events_of
from harness.wireguard import PORT, Tunnel

pytestmark = pytest.mark.operate

LENGTH = 25 * MIB
PATHS = 3
DROP_INS = PACKAGING / "drop-ins"
NONE = (
    ", because neither CAP_BPF nor CAP_NET_RAW is granted; after a loss, later data waits for the"
    " lost segment"
)
PACKETS = " (with the capability CAP_BPF the kernel would copy less data)"
KEPT = (
    "; this process still has the capability, because the system refuses to remove it (capset(2))"
)
# Bits of the capabilities (capability.h).
CAP_NET_RAW, CAP_BPF = 1 << 13, 1 << 39


def test_a_tunnel_goes_round_all_interfaces_below_the_units_confinement(
    make_network: MakeNetwork, web_root: Path
) -> None:
    """The splitter runs as the unit's user without capabilities, on read-only files, with the
    unit's system calls.
    """
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
    """The control: actions that the unit forbids fail, and others work."""
    network = make_network(links(1))
    with confined() as before:
        assert Path(program(before)).exists()
        python = [*before, "/usr/bin/python3", "-I", "-c"]
        assert network.client.run([*python, "import socket; socket.socket()"]).returncode == 0
        done = network.client.run([*python, forbidden])
    assert done.returncode == 1, done.stderr


class ConfinedRelay:
    """``anabranch relay --link utls`` with several threads, whose authority does not run."""

    def __init__(self, before: list[str]):
        """Starts the relay with the command prefix ``before`` (:func:`confined`)."""
        authorities = Path(program(before)).with_name("authorities")
        nobody = "1" * 40
        authorities.write_text(f"nobody orport=1 no-v2 v3ident={nobody} 127.0.0.1:1 {nobody}\n")
        orport, self._metrics = free_ports(2)
        command = [*before, program(before), "relay", "--json", "--nickname", "river"]
        command += ["--address", "127.0.0.1", "--listen", f"127.0.0.1:{orport}"]
        command += ["--authorities", str(authorities), "--data", state(before)]
        command += ["--metrics", f"127.0.0.1:{self._metrics}", "--allow-private"]
        command += ["--grace", "0", "--threads", "2", "--link", "utls"]
        self.process = Background(command)
        listens = "its port", lambda: bool(events_of(self.process, "listening")), 30
        self.process.wait_until(*listens)

    def tap(self) -> str:
        """Returns the relay's message about its tap."""
        notes = [str(event["what"]) for event in events_of(self.process, "note")]
        told = [note for note in notes if note.startswith("kernel interface through which utls")]
        assert len(told) == 1, notes
        return told[0].partition(": ")[2]

    def has_metric(self, line: str) -> bool:
        """Returns whether the relay's Prometheus metrics have this line."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics") as answer:
            return line in answer.read().decode().splitlines()

    def capabilities(self) -> dict[str, set[int]]:
        """Returns the capability sets of its threads: permitted and effective, and the bounding
        sets.
        """
        texts = [
            task.joinpath("status").read_text()
            for task in Path(f"/proc/{self.process.pid}/task").iterdir()
        ]
        assert len(texts) > 2, "several threads"
        names = ("CapPrm", "CapEff", "CapBnd")
        return {
            name: {int(each, 16) for text in texts for each in re.findall(rf"{name}:\t(\w+)", text)}
            for name in names
        }


@contextmanager
def confined_relay(*drop_ins: Path) -> Iterator[ConfinedRelay]:
    """Yields a relay confined as by its unit with these drop-ins."""
    with confined(RELAY, *drop_ins) as before:
        relay = ConfinedRelay(before)
        try:
            yield relay
        finally:
            relay.process.stop()


@pytest.mark.parametrize(
    ("drop_in", "kind", "hint", "granted"),
    [
        ("unordered.conf", "socket filter", "", CAP_BPF),
        ("packets.conf", "packets", PACKETS, CAP_NET_RAW),
        (None, "none", NONE, 0),
    ],
)
def test_a_relay_takes_its_tap_by_the_drop_in_and_no_thread_keeps_the_capability(
    drop_in: str | None, kind: str, hint: str, granted: int
) -> None:
    """Without a drop-in there is no tap, as log and metrics show."""
    drop_ins = [DROP_INS / drop_in] if drop_in else []
    with confined_relay(*drop_ins) as relay:
        assert relay.tap() == kind + hint
        line = f'anabranch_relay_tap{{kind="{kind}"}} 1.0'
        wait_for("the metric of its tap", lambda: relay.has_metric(line), 30)
        held = relay.capabilities()
    assert held == {"CapPrm": {0}, "CapEff": {0}, "CapBnd": {granted}}


def test_a_capability_that_cannot_be_given_up_is_told(tmp_path: Path) -> None:
    """The control: if the drop-in does not allow capset(2), all threads keep the capability, and
    this is reported.
    """
    text = (DROP_INS / "unordered.conf").read_text()
    assert "\nSystemCallFilter=bpf capset\n" in text
    drop_in = tmp_path / "unordered.conf"
    drop_in.write_text(text.replace("=bpf capset", "=bpf"))
    with confined_relay(drop_in) as relay:
        assert relay.tap() == "socket filter" + KEPT
        held = relay.capabilities()
    assert held == {"CapPrm": {CAP_BPF}, "CapEff": {CAP_BPF}, "CapBnd": {CAP_BPF}}
