"""Strangers' pluggable transports without tor: this harness is the parent that starts them.

What is said and heard is tor's pt-spec: settings in the environment, `SMETHOD` and `CMETHOD` on
standard output, a bridge's arguments as user and password of SOCKS5.
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.net import Host
from harness.tools import Background


class Transport:
    """Both ends of a transport: a server before a TCP server, and clients by SOCKS."""

    def __init__(self, name: str, server: str, client: str):
        """``name`` is the transport's, the others its programs'."""
        self.name = name
        self._server, self._client = server, client

    def serve(self, host: Host, folder: Path, at: str, to: str, **options: str) -> Background:
        """Starts a server that listens ``at`` an address and leads on ``to`` another.

        Both are ``ADDRESS:PORT``; ``options`` are those of ServerTransportOptions.
        """
        folder.mkdir(parents=True)
        variables = {
            **_variables(folder),
            "TOR_PT_SERVER_TRANSPORTS": self.name,
            "TOR_PT_SERVER_BINDADDR": f"{self.name}-{at}",
            "TOR_PT_ORPORT": to,
            "TOR_PT_EXTENDED_SERVER_PORT": "",
        }
        if options:
            said = ";".join(f"{self.name}:{key}={value}" for key, value in options.items())
            variables["TOR_PT_SERVER_TRANSPORT_OPTIONS"] = said
        process = host.start([self._server], **variables)
        process.wait_until("SMETHODS DONE", lambda: "SMETHODS DONE" in process.output())
        return process

    def arguments(self, server: Background) -> str:
        """What a running server wants its clients told, ``KEY=VALUE;KEY=VALUE``."""
        found = re.search(rf"SMETHOD {self.name} \S+(?: ARGS:(\S+))?", server.output())
        return (found[1] or "").replace(",", ";") if found else ""

    def dial(self, host: Host, folder: Path, **environment: str) -> tuple[Background, int]:
        """Starts a client; the port where it takes SOCKS5 at 127.0.0.1."""
        folder.mkdir(parents=True)
        variables = {**_variables(folder), "TOR_PT_CLIENT_TRANSPORTS": self.name}
        process = host.start([self._client], **variables, **environment)
        process.wait_until("CMETHODS DONE", lambda: "CMETHODS DONE" in process.output())
        found = re.search(rf"CMETHOD {self.name} socks5 127.0.0.1:(\d+)", process.output())
        assert found is not None, process.output()
        return process, int(found[1])


def _variables(folder: Path) -> dict[str, str]:
    return {"TOR_PT_MANAGED_TRANSPORT_VER": "1", "TOR_PT_STATE_LOCATION": str(folder)}


OBFS4 = Transport("obfs4", "obfs4proxy", "obfs4proxy")
WEBTUNNEL = Transport("webtunnel", "webtunnel-server", "webtunnel-client")
