"""An unmodified headless Chromium, controlled over a pipe.

The pipe carries the Chrome DevTools Protocol: JSON messages separated by zero bytes
(``--remote-debugging-pipe``). Libraries for this protocol (Playwright, Selenium) come with a
browser or driver of their own. This module only opens a page, evaluates expressions in it, takes
pictures, and records requests and complaints.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.closing import Closing
from harness.net import Host
from harness.tools import PeerFailed, tool, wait_for

# Options that switch off the browser's background activity, because tests count its packets and
# requests.
QUIET = (
    "--headless=new", "--disable-gpu", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-domain-reliability", "--disable-extensions", "--hide-scrollbars",
    "--disable-features=OptimizationHints,MediaRouter,DialMediaRouteProvider",
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """Pixels of a page, row by row; each is (red, green, blue) from 0 to 255."""

    width: int
    height: int
    pixels: list[tuple[int, int, int]]

    def share_near(self, colour: tuple[int, int, int], distance: int = 24) -> float:
        """Returns the share of pixels that differ from ``colour`` by at most ``distance`` per
        channel.
        """
        near = sum(_near(pixel, colour, distance) for pixel in self.pixels)
        return near / max(len(self.pixels), 1)

    def extent_near(self, colour: tuple[int, int, int], distance: int = 24) -> tuple[float, float]:
        """Returns the first and the last column with a pixel near ``colour``, as shares of the
        width.

        Raises:
            ValueError: if there is no such pixel.
        """
        found = [at % self.width for at, p in enumerate(self.pixels) if _near(p, colour, distance)]
        return min(found) / self.width, (max(found) + 1) / self.width


def _near(pixel: tuple[int, int, int], colour: tuple[int, int, int], distance: int) -> bool:
    return all(abs(a - b) <= distance for a, b in zip(pixel, colour, strict=True))


class Chromium(Closing):
    """A running browser with one empty page, closed at the end of its ``with`` block.

    ``requests`` are the addresses that the page requested. ``blocked`` are the requests that were
    not fetched, each with the reason (``csp``). ``complaints`` are errors, warnings and console
    output.
    """

    def __init__(self, host: Host, options: Sequence[str] = ()):
        """Starts the browser on ``host`` with a profile of its own and ``options`` added.

        Raises:
            MissingPeer: Chromium is not installed.
            PeerFailed: it does not start.
        """
        self.requests: list[str] = []
        self.blocked: dict[str, str] = {}
        self.complaints: list[str] = []
        self._asked: dict[str, str] = {}  # addresses by the browser's request id
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: list[str] = []
        self._count = 0
        self._profile = tempfile.mkdtemp(prefix="anabranch-chromium-")
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the browser)
        self._start(host, options)
        try:
            self._target = self._open_page()
        except BaseException:
            self.close()
            raise

    def _start(self, host: Host, options: Sequence[str]) -> None:
        # Chromium reads from descriptor 3 and writes to 4. Not every sh supports descriptors above
        # 9.
        to_it, self._in = os.pipe()
        self._out, from_it = os.pipe()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [tool("chromium"), *QUIET, *sandbox, "--remote-debugging-pipe"]
        command += [f"--user-data-dir={self._profile}", *options, "about:blank"]
        shell = f'exec "$@" 3<&{to_it} 4>&{from_it}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *host.command(command)],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            pass_fds=(to_it, from_it), start_new_session=True,
        )  # fmt: skip
        os.close(to_it)
        os.close(from_it)
        self._session, self._context = "", ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def fresh(self) -> None:
        """Opens an empty page in a new context, without the earlier cache, cookies and
        connections.
        """
        self._session = ""
        if self._context:
            self.call("Target.disposeBrowserContext", browserContextId=self._context)
        self._context = self.call("Target.createBrowserContext")["browserContextId"]
        self._target = self._open_page(self._context)

    def _open_page(self, context: str = "") -> str:
        where: dict[str, Any] = {"browserContextId": context} if context else {}
        target: str = self.call("Target.createTarget", url="about:blank", **where)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        return target

    def call(self, method: str, seconds: float = 30.0, **parameters: Any) -> dict[str, Any]:
        """Sends one command of the protocol and returns its result.

        Raises:
            PeerFailed: the browser refused it, or is gone.
            TimeoutError: no answer within ``seconds``.
        """
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        try:
            os.write(self._in, json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            raise PeerFailed(f"Chromium exited before {method}:\n{self._said()}") from error

        def answered() -> bool:
            return number in self._answers or not self._reader.is_alive()

        wait_for(f"Chromium's answer to {method}", answered, seconds)
        answer = self._answers.pop(number, None)
        if answer is None:
            raise PeerFailed(f"Chromium exited during {method}:\n{self._said()}")
        if "error" in answer:
            raise PeerFailed(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def show(self, address: str, *, seconds: float = 30.0) -> None:
        """Opens ``address`` and waits until the page and its resources have been loaded.

        Raises:
            PeerFailed: it cannot be loaded.
            TimeoutError: it takes longer than ``seconds``.
        """
        self._events.clear()
        told = self.call("Page.navigate", seconds, url=address)
        if "errorText" in told:
            raise PeerFailed(f"{address}: {told['errorText']}\n{self._said()}")
        wait_for(f"{address} to be loaded", lambda: "Page.loadEventFired" in self._events, seconds)

    def ask(self, expression: str, *, seconds: float = 30.0) -> Any:
        """Evaluates a JavaScript expression in the page and returns its value; awaits a promise.

        Raises:
            PeerFailed: if the expression throws.
        """
        told = self.call(
            "Runtime.evaluate", seconds, expression=expression, awaitPromise=True,
            returnByValue=True,
        )  # fmt: skip
        if "exceptionDetails" in told:
            raise PeerFailed(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def window(self, width: int, height: int) -> None:
        """Sets the page's size in CSS pixels; below a width of 600 it emulates a telephone."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """Sets the preferred colour scheme: ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def read(self, width: int, scheme: str) -> None:
        """Sets the window's width and the preferred colour scheme, as of a new reader.

        Clears the recorded requests and complaints.
        """
        self.requests.clear()
        self.complaints.clear()
        self.window(width, 900)
        self.prefer(scheme)

    def colours(self, selector: str) -> list[tuple[int, int, int]]:
        """Returns the computed background colours of all elements that match ``selector``."""
        told: list[str] = self.ask(
            f"""[...document.querySelectorAll({json.dumps(selector)})]
                .map(each => getComputedStyle(each).backgroundColor)"""
        )
        split = [text.removeprefix("rgb(").removesuffix(")").split(",") for text in told]
        return [(int(red), int(green), int(blue)) for red, green, blue in split]

    def without_scripts(self) -> None:
        """Disables scripts in pages opened from now on."""
        self.call("Emulation.setScriptExecutionDisabled", value=True)

    def png(self, area: dict[str, float] | None = None, scale: float = 1.0) -> bytes:
        """Returns a PNG of an area (``x``, ``y``, ``width``, ``height``), or of the whole page."""
        if area is None:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            area = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        told = self.call(
            "Page.captureScreenshot", 60, format="png", captureBeyondViewport=True,
            clip={**area, "scale": scale},
        )  # fmt: skip
        return base64.b64decode(told["data"])

    def place(self, selector: str) -> dict[str, float]:
        """Returns the area of the first element that matches ``selector``, as
        :meth:`png` takes it.
        """
        found: dict[str, float] | None = self.ask(
            f"""(() => {{
                const found = document.querySelector({json.dumps(selector)});
                if (!found) return null;
                const r = found.getBoundingClientRect();
                return {{x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}};
            }})()"""
        )
        if found is None:
            raise PeerFailed(f"the page has no {selector}")
        return found

    def _read(self) -> None:
        """Dispatches messages from the browser until it closes the pipe."""
        rest = b""
        while data := os.read(self._out, 1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        about = message.get("params", {})
        match message["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
                self._asked[about["requestId"]] = about["request"]["url"]
            case "Network.loadingFailed" if "blockedReason" in about:
                self.blocked[self._asked[about["requestId"]]] = about["blockedReason"]
            case "Log.entryAdded":
                self.complaints.append(f"{about['entry']['level']}: {about['entry']['text']}")
            case "Runtime.consoleAPICalled":
                self.complaints.append(f"console: {about['args']}")
            case "Runtime.exceptionThrown":
                self.complaints.append(f"exception: {about['exceptionDetails']}")
        self._events.append(message["method"])

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()[-3000:]

    def close(self) -> None:
        """Closes the browser and removes its profile."""
        os.close(self._in)  # the browser exits at the end of the pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        os.close(self._out)
        self._log.close()
        shutil.rmtree(self._profile, ignore_errors=True)
