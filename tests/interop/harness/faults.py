"""Paths that fail and come back, in the two ways that a client can meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from harness.net import Host, Network


class Fault(Protocol):
    """A way in which a path fails."""

    def cut(self) -> None:
        """The path fails."""

    def restore(self) -> None:
        """The path works again."""


class SilentCut:
    """The link swallows everything; no interface and no message tells of it."""

    def __init__(self, network: Network, link: str):
        """Names the link; nothing happens yet."""
        self._network, self._link = network, link

    def cut(self) -> None:
        """From now on nothing passes."""
        self._network.set(self._link, down=True)

    def restore(self) -> None:
        """From now on all passes again."""
        self._network.set(self._link, down=False)


class InterfaceDown:
    """The client's interface is switched off, as when a cable is pulled.

    The kernel forgets the routes of an interface that goes down; they are put back with it, as a
    DHCP client does.
    """

    def __init__(self, network: Network, link: str):
        """Notes the routes; nothing happens yet."""
        self._host, self._link = network.client, link
        self._routes = routes(self._host, link)

    def cut(self) -> None:
        """Switches the interface off."""
        self._host.must(["ip", "link", "set", self._link, "down"])

    def restore(self) -> None:
        """Switches the interface on and puts its routes back."""
        self._host.must(["ip", "link", "set", self._link, "up"])
        for route in self._routes:
            self._host.must(["ip", "route", "replace", *route, "dev", self._link])


def routes(host: Host, link: str) -> list[list[str]]:
    """The IPv4 routes through an interface, as words for ``ip route``, without the kernel's own."""
    shown = host.must(["ip", "-4", "route", "show", "dev", link]).splitlines()
    kept = [line for line in shown if "proto kernel" not in line]
    return [[word for word in line.split() if word != "linkdown"] for line in kept]


MakeFault = Callable[[Network, str], Fault]
FAULTS: dict[str, MakeFault] = {"silent": SilentCut, "interface": InterfaceDown}
