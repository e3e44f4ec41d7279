"""Third-party pluggable transports without tor; this harness acts as their parent process.

The interface is tor's pt-spec: settings in the environment, `SMETHOD` and `CMETHOD` on standard
output, a bridge's arguments as user and password of SOCKS5.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from harness import pages
from harness.closing import Closing
from harness.net import Host
from harness.nginx import nginx
from harness.tools import Background, MissingPeer, PeerFailed, tool
from harness.tornet import free_ports


class Transport:
    """Both ends of a transport: a server in front of a TCP server, and clients with SOCKS."""

    def __init__(self, name: str, server: str, client: str):
        """Creates a transport from its name and the programs of its server and client."""
        self.name = name
        self._server, self._client = server, client

    def serve(self, host: Host, folder: Path, at: str, to: str, **options: str) -> Background:
        """Starts a server that listens at ``at`` and forwards to ``to``.

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
        """Returns the arguments that a running server gives its clients, as
        ``KEY=VALUE;KEY=VALUE``.
        """
        found = re.search(rf"SMETHOD {self.name} \S+(?: ARGS:(\S+))?", server.output())
        return (found[1] or "").replace(",", ";") if found else ""

    def dial(self, host: Host, folder: Path, **environment: str) -> tuple[Background, int]:
        """Starts a client; returns the process and its SOCKS5 port on 127.0.0.1."""
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


class WebFront(Closing):
    """nginx with TLS in front of webtunnel servers, as its authors deploy it, for tors on loopback.

    webtunnel's client does not connect to loopback or private addresses. Therefore the loopback
    interface also has an address of a documentation range until this is closed.
    """

    ADDRESS = "198.51.100.1"
    HTTP = """\
  access_log off;
  proxy_http_version 1.1;
  proxy_set_header Upgrade $http_upgrade;
  proxy_set_header Connection "upgrade";
  proxy_buffering off;
  server {
    listen HERE ssl;
    ssl_certificate FOLDER/tls.pem;
    ssl_certificate_key FOLDER/tls.key;
    PLACES
  }
"""

    def __init__(self, folder: Path, servers: int):
        """Starts nginx in front of ``servers`` servers; its files go to ``folder``.

        Raises:
            MissingPeer: if the tests do not run as root, who alone may add an address to loopback.
        """
        if os.geteuid() != 0:
            raise MissingPeer("an address that webtunnel goes to, which needs root here")
        folder.mkdir(parents=True)
        #: Ports on 127.0.0.1 where the servers must listen.
        self.ports = free_ports(servers)
        (port,) = free_ports(1)
        self._at, self._trust = f"{self.ADDRESS}:{port}", folder / "tls.pem"
        subprocess.run(pages.certificate(folder, tool("openssl")), check=True, capture_output=True)
        places = [
            f"location /secret{number} {{ proxy_pass http://127.0.0.1:{behind}; }}"
            for number, behind in enumerate(self.ports)
        ]
        http = self.HTTP.replace("HERE", self._at).replace("PLACES", "\n".join(places))
        command = nginx(folder, http)
        self._address("replace")
        try:
            self._nginx = Background(command)
            self._nginx.wait_bound(port, "tcp")
        except PeerFailed:
            self.close()
            raise

    def url(self, number: int) -> str:
        """Returns the URL of one of the servers."""
        return f"https://{self._at}/secret{number}"

    @property
    def client(self) -> str:
        """Returns the command of a client that trusts this nginx."""
        return f"{tool('env')} SSL_CERT_FILE={self._trust} {tool('webtunnel-client')}"

    def _address(self, what: str) -> None:
        command = [tool("ip"), "address", what, f"{self.ADDRESS}/32", "dev", "lo"]
        subprocess.run(command, check=True)

    def close(self) -> None:
        """Stops nginx and removes the address."""
        self._nginx.stop()
        self._address("del")
