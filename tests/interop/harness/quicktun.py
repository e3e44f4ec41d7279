"""QuickTun at both ends, configured by environment variables. It sends encrypted packets with a
time and a counter, without a handshake.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import partial

from harness.net import Host
from harness.tools import wait_for

PORT = 2998
INSIDE_SERVER = "10.14.0.1"
INSIDE_CLIENT = "10.14.0.2"
_MTU = "1380"


def _keys(host: Host) -> dict[str, str]:
    """Makes a key pair; its names are SECRET and PUBLIC."""
    return dict(re.findall(r"(\w+): (\w+)", host.must(["keypair"])))


def _settings(own: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Returns the environment variables of an end; in Debian, scripts of ``ifup`` set them."""
    names = {"PROTOCOL": "nacltai", "TUN_MODE": "1", "LOCAL_PORT": str(PORT)}
    names |= {"PRIVATE_KEY": own["SECRET"], "PUBLIC_KEY": other["PUBLIC"]}
    return {"IFACE": "qt0", **{f"IF_QT_{name}": value for name, value in names.items()}}


@contextlib.contextmanager
def tunnel(server: Host, client: Host, endpoint: str) -> Iterator[None]:
    """Runs a tunnel to ``endpoint`` (ADDRESS:PORT). The server is not configured with its client's
    address.
    """
    own, other = _keys(server), _keys(client)
    address, port = endpoint.rsplit(":", 1)
    remote = {"IF_QT_REMOTE_ADDRESS": address, "IF_QT_REMOTE_PORT": port}
    calling = _settings(other, own) | remote
    with (
        server.start(["quicktun"], **_settings(own, other)),
        client.start(["quicktun"], **calling),
    ):
        for host, here, there in (
            (server, INSIDE_SERVER, INSIDE_CLIENT),
            (client, INSIDE_CLIENT, INSIDE_SERVER),
        ):
            words = ["ip", "address", "add", here, "peer", there, "dev", "qt0"]
            wait_for("qt0", partial(_succeeds, host, words))
            host.must(["ip", "link", "set", "qt0", "mtu", _MTU, "up"])
        once = ["ping", "-c", "1", "-W", "1", INSIDE_SERVER]
        wait_for("a ping in the tunnel", partial(_succeeds, client, once))
        yield


def _succeeds(host: Host, words: list[str]) -> bool:
    return host.run(words).returncode == 0
