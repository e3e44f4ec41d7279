"""What all interop tests share: networks, missing peers, and the table of results at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

from harness.chromium import Chromium
from harness.net import Host, Link, Network, namespaces_allowed, topology
from harness.report import table
from harness.seeded import MIB
from harness.tools import MissingPeer
from harness.tornet import TorNetwork
from harness.transfer import site

MakeNetwork = Callable[..., Network]
_results: dict[tuple[str, tuple[str, ...]], list[Sequence[object]]] = {}


class Results:
    """Rows that are printed when all tests are done."""

    def add(self, title: str, **row: object) -> None:
        """Adds a row to the table of this title; the names are the head."""
        _results.setdefault((title, tuple(row)), []).append(tuple(row.values()))

    def three_minutes(self, experiment: str, seconds: float) -> None:
        """Notes how long an experiment's three-minute form took, beside the machine's load."""
        load = os.getloadavg()[0]
        self.add("experiments in short", experiment=experiment, seconds=seconds, load=load)


@pytest.fixture
def results() -> Results:
    """Where tests leave the numbers that a person wants to read."""
    return Results()


@pytest.fixture
def make_network() -> Iterator[MakeNetwork]:
    """Makes emulated networks that end with the test."""
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    with ExitStack() as stack:

        def make(paths: Sequence[Link], **settings: bool) -> Network:
            return stack.enter_context(Network(topology(paths, **settings)))

        yield make


@pytest.fixture(scope="session")
def web_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``site/bytes/N`` for the lengths that tests fetch from servers of files."""
    folder = tmp_path_factory.mktemp("web")
    site(folder / "site", MIB, 25 * MIB)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """A reader's browser for all tests of a file; it may reach nothing but files."""
    try:
        chromium = Chromium(Host("here"), ["--proxy-server=127.0.0.1:9"])
    except MissingPeer as missing:
        # Said here and not by the hook: pytest keeps what this raises for the other tests.
        fail_or_skip(missing)
    with chromium:
        yield chromium


@pytest.fixture(scope="module")
def stock_tor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorNetwork]:
    """Stock tors alone: three authorities, three relays, two exits; one network for each file."""
    with TorNetwork(tmp_path_factory.mktemp("tor")) as network:
        network.start()
        yield network


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """A missing peer fails a test, or skips it where ``ALLOW_SKIP=1`` says so."""
    try:
        return (yield)
    except MissingPeer as missing:
        fail_or_skip(missing)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """The same for what a fixture finds missing."""
    try:
        return (yield)
    except MissingPeer as missing:
        fail_or_skip(missing)


def fail_or_skip(missing: MissingPeer) -> NoReturn:
    """Ends the running test with the reason."""
    if os.environ.get("ALLOW_SKIP") == "1":
        pytest.skip(f"missing: {missing}")
    pytest.fail(f"missing: {missing}", pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the tables that the tests filled."""
    for (title, head), rows in _results.items():
        terminalreporter.write_sep("-", title)
        terminalreporter.write_line(table(head, rows))
