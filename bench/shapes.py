#!/usr/bin/env python3
"""Records the shapes of the camouflage's `embed` profile: TLS 1.3 and SSH over loopback.

Usage: bench/shapes.py FOLDER

In a network namespace of its own, tcpdump records each session into FOLDER/NAME.pcap: `https-*`
are Python's client and server (HTTP/1.1 over OpenSSL's TLS), `ssh-*` are OpenSSH on both sides.
The contents are random; sizes and pauses of the pages are defined below. Then `anabranch pt crawl
--shape FOLDER/*.pcap --out FILE` makes a set of shapes from the captures. The program needs root,
tcpdump, openssl and OpenSSH.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import os
import pty
import random
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/interop"))

from harness.capture import Tcpdump
from harness.net import Host

WEB, SHELL = 443, 22
HERE = Host("here")
SNAP = 96
"""Bytes captured of each packet, enough for the headers."""
UNCHECKED = ssl.create_default_context()
UNCHECKED.check_hostname, UNCHECKED.verify_mode = False, ssl.CERT_NONE
HEADERS = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/138.0.0.0 Safari/537.36",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Accept-Language": "en-US,en;q=0.9",
    "Cookie": "session=" + "a1B2" * 40,
}
# : Size of a page and sizes of its parts in bytes; seconds before the next page.
Page = tuple[int, list[int], float]
PAGES: dict[str, list[Page]] = {
    "page": [(14_300, [41_000, 8_700, 96_500, 3_100, 152_000, 21_800], 1.4)],
    "reading": [
        (11_900, [26_400, 5_300, 61_000], 3.2),
        (16_700, [9_800, 44_100], 4.6),
        (13_200, [31_500, 2_400, 88_000, 17_300], 2.1),
    ],
    "file": [(1_210_000, [], 0.0)],
    "stream": [(180_000 + 7_000 * (part % 5), [], 0.9) for part in range(8)],
}


class Handler(http.server.BaseHTTPRequestHandler):
    """HTTP handler that sends the number of bytes in the path, and accepts any upload."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Responds to GET /BYTES with this number of bytes."""
        self._answer(os.urandom(int(self.path[1:])))

    def do_POST(self) -> None:
        """Responds to a POST of any length."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b'{"stored":true}')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


def must(*command: str) -> None:
    """Runs a program; raises an error if it fails."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def serve_web(folder: Path) -> None:
    """Starts the web server in a thread."""
    pem = folder / "server.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    must(*request, "-keyout", str(pem), "-out", f"{pem}.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{pem}.crt", pem)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", WEB), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def serve_shell(folder: Path) -> list[str]:
    """Starts the SSH server; returns the client's options to log in."""
    for name in ("host", "user"):
        must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    config = folder / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1\nPort {SHELL}\nHostKey {folder}/host\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized\nPidFile {folder}/pid\nPermitRootLogin yes\n"
        "Subsystem sftp internal-sftp\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", config], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    known = f"UserKnownHostsFile={folder}/known"
    return ["-i", f"{folder}/user", "-o", known, "-o", "StrictHostKeyChecking=no"]


def browse(pages: list[Page]) -> None:
    """Fetches pages and their parts over one connection."""
    near = http.client.HTTPSConnection("localhost", WEB, context=UNCHECKED)
    for page, parts, pause in pages:
        for length in (page, *parts):
            near.request("GET", f"/{length}", headers=HEADERS)
            near.getresponse().read()
        time.sleep(pause)
    near.close()


def post() -> None:
    """Uploads three files over one connection."""
    near = http.client.HTTPSConnection("localhost", WEB, context=UNCHECKED)
    for length in (310_000, 24_000, 702_000):
        near.request("POST", "/", os.urandom(length), HEADERS)
        near.getresponse().read()
    near.close()


def typed(login: list[str]) -> None:
    """Types into a shell for half a minute, as a person would."""
    dice = random.Random(4)
    near, far = pty.openpty()
    shell = ["ssh", "-tt", *login, "root@127.0.0.1", "sh"]
    with subprocess.Popen(shell, stdin=far, stdout=far, stderr=far) as process:
        threading.Thread(target=drain, args=(near,), daemon=True).start()
        time.sleep(1.5)
        for line in ("ls -l /usr/bin | head -n 40", "uname -a", "seq 1 3000", "date; exit"):
            for letter in line + "\n":
                os.write(near, letter.encode())
                time.sleep(dice.uniform(0.06, 0.3))
            time.sleep(dice.uniform(1.0, 2.5))
        process.wait(20)


def drain(near: int) -> None:
    """Reads a terminal's output."""
    while os.read(near, 65536):
        pass


def inside() -> None:
    """Runs this program again in namespaces of its own, unless it runs there already."""
    if "SHAPES_INSIDE" in os.environ:
        return
    unshare = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    again = {**os.environ, "SHAPES_INSIDE": "1"}
    done = subprocess.run([*unshare, sys.executable, *sys.argv], env=again, check=False)
    raise SystemExit(done.returncode)


def main() -> None:
    """Records all sessions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="folder for the captures")
    folder = parser.parse_args().folder.resolve()
    inside()
    folder.mkdir(parents=True, exist_ok=True)
    # With Ethernet's MTU, segments have the length that they have on Ethernet.
    must("ip", "link", "set", "lo", "mtu", "1500", "up")
    with tempfile.TemporaryDirectory() as kept:
        for name, (port, session) in sessions(Path(kept)).items():
            with Tcpdump(HERE, "lo", folder / f"{name}.pcap", f"tcp port {port}", SNAP) as dump:
                session()
                time.sleep(1.0)
                dump.stop()
            print(name, file=sys.stderr)


def sessions(folder: Path) -> dict[str, tuple[int, Callable[[], None]]]:
    """Starts both servers; returns the port and the function of each session, by name.

    The servers keep their files in `folder`.
    """
    serve_web(folder)
    login = serve_shell(folder)
    (folder / "file").write_bytes(os.urandom(1_100_000))
    copy = ["scp", "-q", *login]
    found: dict[str, tuple[int, Callable[[], None]]] = {
        f"https-{name}": (WEB, partial(browse, pages)) for name, pages in PAGES.items()
    }
    fetch = [*copy, f"root@127.0.0.1:{folder}/file", f"{folder}/got"]
    store = [*copy, f"{folder}/file", f"root@127.0.0.1:{folder}/put"]
    return found | {
        "https-post": (WEB, post),
        "ssh-fetch": (SHELL, partial(must, *fetch)),
        "ssh-store": (SHELL, partial(must, *store)),
        "ssh-typed": (SHELL, partial(typed, login)),
    }


if __name__ == "__main__":
    main()
