"""The control port of a stock tor (control-spec): commands, replies, and its circuits."""

from __future__ import annotations

import base64
import socket
from dataclasses import dataclass
from pathlib import Path

from harness.closing import Closing


class ControlError(Exception):
    """Tor refused a command; the message holds the command's name and the reply."""


@dataclass(frozen=True)
class Circuit:
    """One line of ``GETINFO circuit-status``."""

    number: str
    state: str
    hops: tuple[str, ...]
    purpose: str


class Control(Closing):
    """One authenticated connection to a control port."""

    def __init__(self, port: int, cookie: Path):
        """Connects to ``port`` of 127.0.0.1 and authenticates with the cookie."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self._socket.makefile("rwb")
        self.ask(f"AUTHENTICATE {cookie.read_bytes().hex()}")

    def ask(self, command: str) -> list[str]:
        """Sends a command and returns the lines of its reply without their status codes.

        Raises:
            ControlError: the status is none of success, 250 to 259.
        """
        self._file.write(command.encode() + b"\r\n")
        self._file.flush()
        lines: list[str] = []
        while True:
            line = self._line()
            status, kind, text = line[:3], line[3:4], line[4:]
            if not status.startswith("25"):
                raise ControlError(f"{command.split(maxsplit=1)[0]}: {line}")
            lines.append(text)
            if kind == "+":
                while (data := self._line()) != ".":
                    lines.append(data.removeprefix("."))
            if kind == " ":
                return lines

    def info(self, key: str) -> list[str]:
        """Returns the value of ``GETINFO key``, line by line."""
        first, *rest = self.ask(f"GETINFO {key}")[:-1]
        value = first.removeprefix(f"{key}=")
        return [value, *rest] if value else rest

    def circuits(self, *, built: bool = True) -> list[Circuit]:
        """Returns the circuits; only built ones, if ``built``."""
        found = [_circuit(line) for line in self.info("circuit-status") if line]
        return [circuit for circuit in found if not built or circuit.state == "BUILT"]

    def paths(self) -> set[tuple[str, ...]]:
        """Returns the relays of all general-purpose circuits of three hops, first hop first."""
        built = [circuit for circuit in self.circuits() if circuit.purpose == "GENERAL"]
        return {circuit.hops for circuit in built if len(circuit.hops) == 3}

    def routers(self) -> dict[str, tuple[str, set[str]]]:
        """Returns nickname and flags of all relays in the consensus, by fingerprint in upper-case
        hex.
        """
        known: dict[str, tuple[str, set[str]]] = {}
        fingerprint = name = ""
        for line in self.info("ns/all"):
            word, *rest = line.split(" ")
            if word == "r":
                name, fingerprint = rest[0], _hex(rest[1])
            elif word == "s":
                known[fingerprint] = (name, set(rest))
        return known

    def close(self) -> None:
        """Closes the connection."""
        self._file.close()
        self._socket.close()

    def _line(self) -> str:
        line = self._file.readline()
        if not line:
            raise ControlError("tor closed the control connection")
        return line.decode().rstrip("\r\n")


def _circuit(line: str) -> Circuit:
    number, state, *rest = line.split(" ")
    words = dict(word.split("=", 1) for word in rest if "=" in word)
    path = rest[0] if rest and rest[0].startswith("$") else ""
    hops = tuple(hop[1:41] for hop in path.split(",") if hop)
    return Circuit(number, state, hops, words.get("PURPOSE", ""))


def _hex(text: str) -> str:
    return base64.b64decode(text + "=" * (-len(text) % 4)).hex().upper()
