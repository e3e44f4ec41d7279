"""Fixtures and hooks of all interop tests: networks, missing peers, and tables of results."""

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
    """Tables of results, printed when all tests have finished."""

    def add(self, title: str, **row: object) -> None:
        """Adds a row to the table ``title``; the keys of ``row`` are the column names."""
        _results.setdefault((title, tuple(row)), []).append(tuple(row.values()))

    def three_minutes(self, experiment: str, seconds: float) -> None:
        """Adds the duration of an experiment's three-minute form, with the machine's load."""
        load = os.getloadavg()[0]
        self.add("experiments in short", experiment=experiment, seconds=seconds, load=load)


@pytest.fixture
def results() -> Results:
    """Returns the tables to which tests add numbers for people."""
    return Results()


@pytest.fixture
def make_network() -> Iterator[MakeNetwork]:
    """Yields a function that makes emulated networks, which are closed at the end of the test."""
    if not namespaces_allowed():
        raise MissingPeer("network namespaces and TUN interfaces, which need root here")
    with ExitStack() as stack:

        def make(paths: Sequence[Link], **settings: bool) -> Network:
            return stack.enter_context(Network(topology(paths, **settings)))

        yield make


@pytest.fixture(scope="session")
def web_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a file ``site/bytes/N`` for each length N that tests fetch."""
    folder = tmp_path_factory.mktemp("web")
    site(folder / "site", MIB, 25 * MIB)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """Yields a browser for all tests of a file, without network access, to view reports."""
    try:
        chromium = Chromium(Host("here"), ["--proxy-server=127.0.0.1:9"])
    except MissingPeer as missing:
        # Reported here rather than by the hook: pytest caches the exception of a fixture for other
        # tests.
        fail_or_skip(missing)
    with chromium:
        yield chromium


@pytest.fixture(scope="module")
def stock_tor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorNetwork]:
    """Yields a network of C tor for each test file: three authorities, three relays, two exits."""
    with TorNetwork(tmp_path_factory.mktemp("tor")) as network:
        network.start()
        yield network


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Fails a test if a peer is missing, or skips it if ``ALLOW_SKIP=1`` is set."""
    try:
        return (yield)
    except MissingPeer as missing:
        fail_or_skip(missing)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Does the same as `pytest_pyfunc_call` for a peer that a fixture finds missing."""
    try:
        return (yield)
    except MissingPeer as missing:
        fail_or_skip(missing)


def fail_or_skip(missing: MissingPeer) -> NoReturn:
    """Fails or skips the running test with the reason."""
    if os.environ.get("ALLOW_SKIP") == "1":
        pytest.skip(f"missing: {missing}")
    pytest.fail(f"missing: {missing}", pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the tables that the tests filled."""
    for (title, head), rows in _results.items():
        terminalreporter.write_sep("-", title)
        terminalreporter.write_line(table(head, rows))
