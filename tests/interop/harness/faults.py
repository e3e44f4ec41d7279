"""Path failures and recoveries, of two kinds: silent loss, and an interface that goes down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from harness.net import Host, Network


class Fault(Protocol):
    """A kind of path failure."""

    def cut(self) -> None:
        """Makes the path fail."""

    def restore(self) -> None:
        """Makes the path work again."""


class SilentCut:
    """A link that silently drops all packets: the client gets no interface event and no error
    message.
    """

    def __init__(self, network: Network, link: str):
        """Creates the fault for ``link``, which works until :meth:`cut`."""
        self._network, self._link = network, link

    def cut(self) -> None:
        """Drops every packet from now on."""
        self._network.set(self._link, down=True)

    def restore(self) -> None:
        """Lets packets pass again."""
        self._network.set(self._link, down=False)


class InterfaceDown:
    """An interface of the client that is switched off, as when a cable is pulled.

    The kernel forgets the routes of an interface that goes down. :meth:`restore` adds them again,
    as a DHCP client does.
    """

    def __init__(self, network: Network, link: str):
        """Records the routes; the interface stays up until :meth:`cut`."""
        self._host, self._link = network.client, link
        self._routes = routes(self._host, link)

    def cut(self) -> None:
        """Switches the interface off."""
        self._host.must(["ip", "link", "set", self._link, "down"])

    def restore(self) -> None:
        """Switches the interface on and restores its routes."""
        self._host.must(["ip", "link", "set", self._link, "up"])
        for route in self._routes:
            self._host.must(["ip", "route", "replace", *route, "dev", self._link])


def routes(host: Host, link: str) -> list[list[str]]:
    """Returns the IPv4 routes through an interface, as arguments of ``ip route``, without the
    kernel's.
    """
    shown = host.must(["ip", "-4", "route", "show", "dev", link]).splitlines()
    kept = [line for line in shown if "proto kernel" not in line]
    return [[word for word in line.split() if word != "linkdown"] for line in kept]


MakeFault = Callable[[Network, str], Fault]
FAULTS: dict[str, MakeFault] = {"silent": SilentCut, "interface": InterfaceDown}
