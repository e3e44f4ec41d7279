"""WireGuard without TUN and without root: wgnet, wireguard-go on its own network stack."""

from __future__ import annotations

import json
from typing import Self

from harness.net import Host
from harness.transfer import Transfer, client
from harness.wireguard import PORT


class UserSpaceTunnel:
    """wgnet at both ends: wireguard-go with its own network stack, without TUN and without root."""

    def __init__(self, server: Host, client_host: Host, port: int = PORT):
        """Starts the server's end, listening on UDP ``port``."""
        self.client, self._server, self._peer = client_host, _wgnet_keys(), _wgnet_keys()
        serve = ["wgnet", "serve", "-private", self._server["private"], "-port", str(port)]
        self._process = server.start([*serve, "-peer", self._peer["public"]])
        self._process.wait_bound(port)

    def download(self, endpoint: str, length: int, seconds: float = 30.0) -> Transfer:
        """Fetches ``bytes/length`` through a new tunnel to ``endpoint``."""
        fetch_by = ["wgnet", "fetch", "-private", self._peer["private"], "-endpoint", endpoint]
        fetch_by += ["-peer", self._server["public"], "-path", f"/bytes/{length}"]
        return client(self.client, [*fetch_by, "-timeout", f"{seconds}s"], seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()


def _wgnet_keys() -> dict[str, str]:
    made: dict[str, str] = json.loads(Host("here").must(["wgnet", "keys"]))
    return made
