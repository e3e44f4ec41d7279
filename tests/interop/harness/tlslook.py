"""The visible properties of a relay's TLS, by ``openssl``."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.tools import tool

DAY = 86_400
# Handshake messages that differ between OpenSSL and our library; see docs/notes/c-tor.md.
OURS_TO_DIFFER = {"EncryptedExtensions"}


@dataclass(frozen=True)
class Certificate:
    """A certificate's form without its random parts."""

    version: str
    signature: str
    names: tuple[str, ...]
    serial_bytes: int
    key: str
    signature_bytes: int
    extensions: bool
    days: int
    begins_at_midnight: bool


def _run(*words: str, given: str = "", pause: float = 0.0) -> str:
    """Runs ``openssl`` with ``given`` as its input after a pause, and returns its output."""
    pipe = subprocess.PIPE
    command = [tool("openssl"), *words]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        time.sleep(pause)
        # It fails where a relay refuses, which is a valid answer.
        out, errors = process.communicate(given, timeout=20)
    return out + errors


def session(port: int, *options: str) -> str:
    """Returns the output of ``openssl s_client`` for a session with a relay on this machine."""
    # A ticket follows the handshake.
    return _run("s_client", "-connect", f"127.0.0.1:{port}", *options, pause=0.5)


def choice(port: int, *options: str) -> tuple[str, ...]:
    """Returns the relay's choice of protocol, cipher, key exchange and ALPN, or its refusal."""
    lines = session(port, *options).splitlines()
    found = [line.strip() for line in lines if re.search("Cipher is|Server Temp Key|ALPN", line)]
    return tuple(found)


def messages(port: int) -> list[tuple[str, int]]:
    """Returns the server's handshake messages of TLS 1.3 with their lengths, in order."""
    said = re.findall(
        r"^<<< TLS 1\.3, Handshake \[length ([0-9a-f]{4})\], (\w+)",
        session(port, "-tls1_3", "-msg"),
        re.MULTILINE,
    )
    return [(name, int(length, 16)) for length, name in said]


def certificate(port: int) -> Certificate:
    """Returns the form of a relay's certificate."""
    pem = session(port)
    text = _run("x509", "-noout", "-text", given=pem)
    serial = _run("x509", "-noout", "-serial", given=pem).strip().partition("=")[2]
    begin, end = (_time(text, name) for name in ("Not Before", "Not After "))
    seconds = int((end - begin).total_seconds())
    # A second less in half of all certificates.
    assert seconds % DAY in (0, DAY - 1), seconds
    hosts = re.findall(r"(Issuer|Subject): CN = www\.([a-z2-7]+)\.(com|net)\n", text)
    assert all(8 <= len(letters) <= 20 for _, letters, _ in hosts), hosts
    signature = text.partition("Signature Value:")[2]
    return Certificate(
        version=_find(r"Version: (.*)", text),
        signature=_find(r"Signature Algorithm: (.*)", text),
        names=tuple(f"{role} {domain}" for role, _, domain in hosts),
        serial_bytes=len(serial) // 2,
        key=_find(r"Public-Key: (.*)", text) + " " + _find(r"Exponent: (.*)", text),
        signature_bytes=len(re.findall(r"[0-9a-f]{2}(?=[:\n]|$)", signature)),
        extensions="X509v3 extensions" in text,
        days=-(-seconds // DAY),
        begins_at_midnight=begin.hour == begin.minute == begin.second == 0,
    )


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, f"{pattern} is not in:\n{text}"
    return found[1].strip()


def _time(text: str, name: str) -> datetime:
    stamp = datetime.strptime(_find(rf"{name}: (.*) GMT", text), "%b %d %H:%M:%S %Y")
    return stamp.replace(tzinfo=UTC)
