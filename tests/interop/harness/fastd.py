"""fastd at both ends. Its server accepts data only from the address of the last handshake. With
any other address from which data arrives, it begins a handshake, at most every 15 s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness.net import Host
from harness.tools import wait_for

PORT = 10_000
INSIDE_SERVER = "10.14.0.1"
INSIDE_CLIENT = "10.14.0.2"
_METHOD = "salsa2012+umac"
_CONFIG = """\
mode tun;
interface "{device}";
method "{method}";
mtu 1400;
secret "{secret}";
{bind}
on up "ip address add {own} peer {other} dev $INTERFACE && ip link set up dev $INTERFACE";
peer "other" {{ key "{public}"; {remote} }}
"""


def _keys(host: Host, folder: Path, name: str) -> tuple[str, str]:
    """Makes a secret key and its public key."""
    secret = host.must(["fastd", "--generate-key", "--machine-readable"]).strip()
    file = folder / f"{name}.secret"
    file.write_text(f'secret "{secret}";\n')
    shown = host.must(["fastd", "--show-key", "--machine-readable", "-c", str(file)])
    return secret, shown.strip()


@contextlib.contextmanager
def tunnel(server: Host, client: Host, folder: Path, endpoint: str) -> Iterator[None]:
    """Runs a tunnel to ``endpoint`` (ADDRESS:PORT); the server listens on ``PORT``."""
    ends = {name: _keys(server, folder, name) for name in ("fds", "fdc")}
    remote = f"remote {endpoint.replace(':', ' port ')};"
    rest = {
        "fds": {"own": INSIDE_SERVER, "other": INSIDE_CLIENT, "remote": ""}
        | {"bind": f"bind 0.0.0.0:{PORT};", "public": ends["fdc"][1]},
        "fdc": {"own": INSIDE_CLIENT, "other": INSIDE_SERVER, "remote": remote}
        | {"bind": "", "public": ends["fds"][1]},
    }
    for name, (secret, _) in ends.items():
        text = _CONFIG.format(device=name, method=_METHOD, secret=secret, **rest[name])
        (folder / f"{name}.conf").write_text(text)
    with (
        server.start(["fastd", "-c", str(folder / "fds.conf")]) as listener,
        client.start(["fastd", "-c", str(folder / "fdc.conf")]),
    ):
        listener.wait_bound(PORT)
        once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]
        wait_for("a ping in the tunnel", lambda: client.run(once).returncode == 0, 20)
        yield
