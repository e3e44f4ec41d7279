"""Nebula at both ends. Its server follows a client to a new address, but back to the previous one
only after two seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness.net import Host
from harness.tools import wait_for

PORT = 4242
INSIDE_SERVER = "10.10.0.1"
INSIDE_CLIENT = "10.10.0.2"
_CONFIG = """\
pki: {{ca: {folder}/ca.crt, cert: {folder}/{name}.crt, key: {folder}/{name}.key}}
static_host_map: {known}
lighthouse: {{am_lighthouse: false, hosts: []}}
listen: {{host: 0.0.0.0, port: {port}}}
punchy: {{punch: false}}
tun: {{dev: {device}, mtu: 1300}}
logging: {{level: error}}
firewall:
  outbound: [{{port: any, proto: any, host: any}}]
  inbound: [{{port: any, proto: any, host: any}}]
"""


@contextlib.contextmanager
def tunnel(server: Host, client: Host, folder: Path, endpoint: str) -> Iterator[None]:
    """Runs a tunnel to ``endpoint`` (ADDRESS:PORT); the server listens on ``PORT``."""
    ca = ["-out-crt", str(folder / "ca.crt"), "-out-key", str(folder / "ca.key")]
    server.must(["nebula-cert", "ca", "-name", "test", *ca])
    ends = {"neb-s": INSIDE_SERVER, "neb-c": INSIDE_CLIENT}
    for name, address in ends.items():
        signed = ["-ca-crt", str(folder / "ca.crt"), "-ca-key", str(folder / "ca.key")]
        out = ["-out-crt", str(folder / f"{name}.crt"), "-out-key", str(folder / f"{name}.key")]
        named = ["-name", name, "-networks", f"{address}/24"]
        server.must(["nebula-cert", "sign", *signed, *named, *out])
        known = "{}" if name == "neb-s" else f'{{"{INSIDE_SERVER}": ["{endpoint}"]}}'
        port = PORT if name == "neb-s" else 0
        config = {"folder": folder, "name": name, "known": known, "port": port, "device": name}
        (folder / f"{name}.yml").write_text(_CONFIG.format(**config))
    with (
        server.start(["nebula", "-config", str(folder / "neb-s.yml")]) as listener,
        client.start(["nebula", "-config", str(folder / "neb-c.yml")]),
    ):
        listener.wait_bound(PORT)
        once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]
        wait_for("a ping in the tunnel", lambda: client.run(once).returncode == 0, 20)
        yield
