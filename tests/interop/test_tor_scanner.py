"""sbws, the bandwidth scanner of Tor's directory authorities, measures a network of our relays.

With its own tor it builds circuits of two hops, each relay with an equally fast exit. It writes
the file from which authorities take weights.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from conftest import Results
from harness.tools import tool
from harness.torours import network_of_ours

pytestmark = [pytest.mark.tor, pytest.mark.timeout(600)]

RELAYS = 5
SCANNED_S = 300.0
FILE = 1 << 30
# Options that a tor in a private network needs in addition to its authorities.
PRIVATE = re.compile(r"Testing|DirAuthority|ClientRejectInternal|EnforceDistinct|PathsNeeded")
SETTINGS = """[paths]
sbws_home = {home}
[scanner]
nickname = scanner
country = ZZ
measurement_threads = 2
max_download_size = 100000000
[destinations]
near = on
[destinations.near]
url = http://127.0.0.1:{port}/file
country = ZZ
verify = False
[tor]
extra_lines =
    {lines}
[general]
data_period = 1
"""


class Ranges(BaseHTTPRequestHandler):
    """Handler that serves parts of a large file to the scanner."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Logs nothing."""

    def do_HEAD(self) -> None:
        """Responds with the file's size."""
        self.send_response(200)
        self.send_header("Content-Length", str(FILE))
        self.end_headers()

    def do_GET(self) -> None:
        """Sends the requested part of the file."""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert wanted, self.headers
        first, last = map(int, wanted.groups())
        self.send_response(206)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Content-Range", f"bytes {first}-{last}/{FILE}")
        self.end_headers()
        for at in range(first, last + 1, 1 << 16):
            self.wfile.write(bytes(min(1 << 16, last + 1 - at)))


def test_the_authorities_scanner_measures_every_relay(tmp_path: Path, results: Results) -> None:
    """Each relay has a line with a rate and without an error; no stock tor logs a complaint."""
    with ExitStack() as stack:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
        stack.callback(server.shutdown)
        Thread(target=server.serve_forever, daemon=True).start()
        network, ours = network_of_ours(tmp_path, stack, RELAYS)
        network.start()
        client = network.client("client")
        torrc = (client.folder / "torrc").read_text().splitlines()
        settings = tmp_path / "sbws.ini"
        lines = "\n    ".join(line for line in torrc if PRIVATE.match(line))
        settings.write_text(
            SETTINGS.format(home=tmp_path / "sbws", port=server.server_port, lines=lines)
        )
        (tmp_path / "sbws").mkdir()
        environment = {**os.environ, "HOME": str(tmp_path)}
        command = [tool("sbws"), "-c", str(settings)]
        # In a testing network the scanner exits when it has measured all relays.
        scanned = subprocess.run(
            [*command, "scanner"], check=True, capture_output=True, text=True, timeout=SCANNED_S,
            env=environment,
        )  # fmt: skip
        assert re.search(r"Measured in total \d+ \(100%", scanned.stdout), scanned.stdout[-3000:]
        written = tmp_path / "v3bw"
        generate = [*command, "generate", "--output", str(written)]
        subprocess.run(generate, check=True, capture_output=True, env=environment)
        rows = {row["nick"]: row for row in map(fields, written.read_text().splitlines())}
        rates = [int(rows[relay.name]["bw_mean"]) for relay in ours]
        errors = [
            f"{relay.name}: {name}={value}"
            for relay in ours
            for name, value in rows[relay.name].items()
            if name.startswith("error_") and value != "0"
        ]
        results.add(
            "sbws measures relays of ours", relays=len(rates),
            mb_s=f"{min(rates) / 1e6:.1f}-{max(rates) / 1e6:.1f}",
        )  # fmt: skip
        assert min(rates) > 0
        assert errors == []
        assert network.complaints() == []


def fields(line: str) -> dict[str, str]:
    """Parses a relay's line of a bandwidth file into names and values."""
    return {"nick": "", **dict(word.split("=", 1) for word in line.split() if "=" in word)}
