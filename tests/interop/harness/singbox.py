"""sing-box at both ends: QUIC proxies (Hysteria 2, TUIC) and Shadowsocks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.net import SERVER, Host
from harness.quic import make_certificate

PORT = 8443
LOCAL = 1080
_PASSWORD = "of-a-test"
# 16 bytes in base64, the key size of 2022-blake3-aes-128-gcm.
_KEY = "AAECAwQFBgcICQoLDA0ODw=="
_UUID = "2dd61d93-75d8-4da4-ac0e-6aece7eac365"


def _protocols(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Returns the server's inbound and the client's outbound for each protocol."""
    files = {
        "certificate_path": str(folder / "certificate.pem"),
        "key_path": str(folder / "key.pem"),
    }
    own = {"enabled": True, "server_name": "localhost", "alpn": ["h3"], **files}
    other = {"enabled": True, "server_name": "localhost", "alpn": ["h3"], "insecure": True}
    shadowsocks = [
        ("shadowsocks", "aes-128-gcm", _PASSWORD),
        ("shadowsocks 2022", "2022-blake3-aes-128-gcm", _KEY),
    ]
    user = {"uuid": _UUID, "password": _PASSWORD}
    return {
        "hysteria2": (
            {"type": "hysteria2", "users": [{"password": _PASSWORD}], "tls": own},
            {"type": "hysteria2", "password": _PASSWORD, "tls": other},
        ),
        "tuic": (
            {"type": "tuic", "users": [user], "tls": own, "congestion_control": "cubic"},
            {"type": "tuic", **user, "tls": other, "congestion_control": "cubic"},
        ),
    } | {
        name: 2 * ({"type": "shadowsocks", "method": method, "password": password},)
        for name, method, password in shadowsocks
    }


@contextlib.contextmanager
def proxy(
    kind: str, server: Host, client: Host, folder: Path, endpoint: str, *, udp_to: int = 0
) -> Iterator[None]:
    """Runs a proxy of this kind at ``PORT`` of the server; the client connects to ``endpoint``.

    It accepts SOCKS5 at ``LOCAL``; with ``udp_to`` it forwards UDP datagrams for ``LOCAL`` to that
    port of the server instead.
    """
    make_certificate(server, folder)
    own, other = _protocols(folder)[kind]
    address, port = endpoint.split(":")
    local: dict[str, Any] = {"type": "socks", "listen": "127.0.0.1", "listen_port": LOCAL}
    if udp_to:
        to = {"override_address": SERVER, "override_port": udp_to, "network": "udp"}
        local |= {"type": "direct", **to}
    at_server = {"inbounds": [{**own, "listen": SERVER, "listen_port": PORT}]}
    at_client = {
        "inbounds": [local],
        "outbounds": [{**other, "server": address, "server_port": int(port)}],
    }
    with (
        server.start(_words(folder / "server.json", at_server)) as process,
        client.start(_words(folder / "client.json", at_client)) as caller,
    ):
        process.wait_bound(PORT)
        caller.wait_bound(LOCAL, "udp" if udp_to else "tcp")
        yield


def _words(file: Path, config: Mapping[str, Any]) -> list[str]:
    file.write_text(json.dumps({"log": {"level": "error"}, **config}))
    return ["sing-box", "run", "-c", str(file)]
