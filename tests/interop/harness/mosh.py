"""A Mosh login: Debian's mosh-server, Debian's mosh-client in a pseudo-terminal, and a screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import pyte

from harness.closing import Closing
from harness.net import SERVER, Host
from harness.tools import PeerFailed, tool

PORT = 60001
COLUMNS, ROWS = 100, 30
LOCALE = {"LC_ALL": "C.UTF-8", "TERM": "xterm"}
# Without predictions, all text on the screen comes from the server.
CLIENT = {"MOSH_PREDICTION_DISPLAY": "never"}


@dataclass
class LoginResult:
    """The result of a scripted login."""

    commands: int = 0
    missing: list[str] = field(default_factory=list)  # output that never appeared on the screen
    slowest_s: float = 0.0  # longest wait for the output of one command
    exit_status: int | None = None  # of mosh-client; None if it did not end

    def fault(self) -> str:
        """Returns a description of the login's fault; empty if there is none."""
        if self.missing:
            return f"{len(self.missing)} of {self.commands} outputs missing: {self.missing[:3]}"
        if not self.commands:
            return "no command was run"
        return "" if self.exit_status == 0 else f"mosh-client ended with {self.exit_status}"


class MoshServer:
    """A mosh-server that waits for one client, with the session key :attr:`key`."""

    def __init__(self, host: Host, *, address: str = SERVER, port: int = PORT):
        """Starts ``mosh-server new`` as ssh would, with a plain bash to log in to."""
        shell = ["--", "bash", "--norc", "--noprofile"]
        command = ["mosh-server", "new", "-i", address, "-p", str(port), *shell]
        # A server whose client never returns must not run forever.
        environment = {**os.environ, **LOCALE, "MOSH_SERVER_NETWORK_TMOUT": "120", "PS1": "$ "}
        done = subprocess.run(
            host.command(command), env=environment, capture_output=True, text=True, timeout=20,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        connect = re.search(r"MOSH CONNECT (\d+) (\S+)", said)
        detached = re.search(r"pid = (\d+)", said)
        if connect is None or detached is None:
            raise PeerFailed(f"mosh-server: {said}")
        self.port, self.key, self.pid = int(connect[1]), connect[2], int(detached[1])

    def stop(self) -> bool:
        """Stops the server if it still runs; returns True if it had exited by itself."""
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Answering(pyte.Screen):
    """A screen that reports the cursor's position, which some programs query before they draw."""

    def __init__(self, terminal: int):
        super().__init__(COLUMNS, ROWS)
        self._answers = terminal

    def write_process_input(self, data: str) -> None:
        os.write(self._answers, data.encode())


class Screen(Closing):
    """A program in a pseudo-terminal, with its screen in memory."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        """Starts ``command`` with ``environment`` added to this process's own."""
        self._terminal, inner = pty.openpty()
        self._screen = _Answering(self._terminal)
        self._stream = pyte.ByteStream(self._screen)
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            # A new session with this controlling terminal, as for a shell.
            [tool("setsid"), "--ctty", *command],
            stdin=inner, stdout=inner, stderr=inner,
            env={**os.environ, **LOCALE, **CLIENT, **environment},
        )  # fmt: skip
        os.close(inner)

    def run_for(self, seconds: float, *, pause: float = 0.4) -> LoginResult:
        """Runs commands until ``seconds`` are over, then logs out."""
        result = LoginResult()
        end = time.monotonic() + seconds
        if not self.wait_text("$ ", 15):
            result.missing.append("the prompt")
        while not result.missing and time.monotonic() < end:
            self._command(result)
            self._pump(pause)
        self.enter("exit\n")
        result.exit_status = self.wait_exit(15)
        return result

    def _command(self, result: LoginResult) -> None:
        result.commands += 1
        number = result.commands * 7919
        # The typed line does not contain the expected output. Every fifth output fills the screen.
        prefix = "seq 1 200; " if result.commands % 5 == 0 else ""
        start = time.monotonic()
        self.enter(f"{prefix}echo out-$(({number}+1))-end\n")
        if not self.wait_text(f"out-{number + 1}-end", 10):
            result.missing.append(f"out-{number + 1}-end")
        result.slowest_s = max(result.slowest_s, time.monotonic() - start)

    def enter(self, text: str) -> None:
        """Types on the terminal."""
        os.write(self._terminal, text.encode())

    def text(self) -> str:
        """Returns the screen's current text."""
        return "\n".join(self._screen.display)

    def wait_text(self, wanted: str, seconds: float) -> bool:
        """Returns whether ``wanted`` appears on the screen within ``seconds``."""
        end = time.monotonic() + seconds
        while wanted not in self.text():
            if time.monotonic() > end or not self._pump(0.05):
                return wanted in self.text()
        return True

    def _pump(self, seconds: float) -> bool:
        """Feeds the screen for ``seconds``; returns False once the client has closed the
        terminal.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self._terminal], [], [], left)
            if ready and not self._feed():
                return False
        return True

    def _feed(self) -> bool:
        try:
            piece = os.read(self._terminal, 65536)
        except OSError:  # EIO: the inner end is closed everywhere
            return False
        self._stream.feed(piece)
        return bool(piece)

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    def is_cooked(self) -> bool:
        """Returns whether the terminal echoes input and is line-buffered."""
        local: int = termios.tcgetattr(self._terminal)[3]
        return bool(local & termios.ECHO) and bool(local & termios.ICANON)

    def wait_exit(self, seconds: float) -> int | None:
        """Returns the program's exit status, or None if it does not exit within ``seconds``."""
        end = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < end:
            self._pump(0.1)
        return self._process.poll()

    def close(self) -> None:
        """Kills the client if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._terminal)


class Login(Screen):
    """A running mosh-client."""

    def __init__(self, host: Host, address: str, port: int, key: str):
        """Connects to ``address``:``port``, the address of the splitter or of the server."""
        super().__init__(host.command(["mosh-client", address, str(port)]), {"MOSH_KEY": key})
