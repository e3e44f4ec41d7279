"""Arti, the Tor Project's Rust implementation, as a client and as a host of onion services."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.closing import Closing
from harness.tools import Background, tool
from harness.tornet import free_ports
from harness.torours import OurRelay

# All relays on loopback are in one subnet, and there are too few for layers of vanguards.
CONFIG = """\
[application]
watch_configuration = false
allow_running_as_root = true
[proxy]
socks_listen = "127.0.0.1:{socks}"
[logging]
console = "info"
log_sensitive_information = true
[storage]
cache_dir = "{folder}/cache"
state_dir = "{folder}/state"
[storage.permissions]
dangerously_trust_everyone = true
[path_rules]
ipv4_subnet_family_prefix = 33
ipv6_subnet_family_prefix = 129
[address_filter]
allow_local_addrs = true
[vanguards]
mode = "disabled"
[tor_network]
fallback_caches = [{caches}]
[tor_network.authorities]
v3idents = ["{v3ident}"]
uploads = []
downloads = []
votes = []
"""
BRIDGE = """\
[bridges]
enabled = true
bridges = ["{line}"]
[[bridges.transports]]
protocols = ["{transport}"]
path = "{program[0]}"
arguments = [{arguments}]
run_on_startup = true
"""
SERVICE = """\
[onion_services."{name}"]
proxy_ports = [["80", "127.0.0.1:{port}"]]
"""


class Arti(Closing):
    """``arti proxy`` with its state in ``folder``.

    ``authority`` is the ``DirAuthority`` line of the network and ``caches`` are its relays. With a
    ``service`` (a name and a port of this machine), it hosts that service at port 80. With a
    ``bridge`` (a bridge line and the command of its transport), it enters the network only through
    that bridge.
    """

    def __init__(
        self,
        folder: Path,
        authority: str,
        caches: Sequence[OurRelay],
        service: tuple[str, int] | None = None,
        bridge: tuple[str, Sequence[str]] | None = None,
    ):
        """Starts the client."""
        folder.mkdir(mode=0o700)
        (self.socks,) = free_ports(1)
        ident = re.search(r"v3ident=(\w{40})", authority)
        assert ident, authority
        text = CONFIG.format(
            socks=self.socks, folder=folder, v3ident=ident[1],
            caches=", ".join(_cache(relay) for relay in caches),
        )  # fmt: skip
        if service:
            text += SERVICE.format(name=service[0], port=service[1])
        if bridge:
            line, program = bridge
            arguments = ", ".join(f'"{word}"' for word in program[1:])
            text += BRIDGE.format(
                line=line, transport=line.split()[0], program=program, arguments=arguments
            )
        self._config = folder / "arti.toml"
        self._config.write_text(text)
        self.process = Background([tool("arti"), "proxy", "-c", str(self._config)])

    @property
    def proxy(self) -> str:
        """Proxy URL in curl's notation."""
        return f"socks5h://127.0.0.1:{self.socks}"

    def onion_address(self, name: str) -> str:
        """Returns the onion address of the service with nickname ``name``."""
        command = [tool("arti"), "hss", "--nickname", name, "-c", str(self._config)]
        done = subprocess.run(
            [*command, "onion-address"], capture_output=True, text=True, check=True
        )
        return done.stdout.split()[-1]

    def close(self) -> None:
        """Stops the client."""
        self.process.stop()


def _cache(relay: OurRelay) -> str:
    """Returns the entry of ``relay`` as a fallback cache in Arti's configuration."""
    key = (relay.data / "keys" / "ed25519_master_id_public_key").read_bytes()[-32:]
    ed = base64.b64encode(key).decode().rstrip("=")
    at = f"127.0.0.1:{relay.orport}"
    return f'{{ rsa_identity = "{relay.fingerprint}", ed_identity = "{ed}", orports = ["{at}"] }}'
