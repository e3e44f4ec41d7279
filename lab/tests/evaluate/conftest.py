"""Synthetic page loads from a seed, small enough that a whole evaluation takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch import io
from anabranch.traces import Builder, Traces

RUNS = 5


def page_loads(pages: int = 10, loads: int = 20, seed: int = 3) -> Traces:
    """Returns `loads` of each page in 5 runs; the pages differ in their objects' sizes
    and pauses.
    """
    chance = np.random.default_rng(seed)
    sites = [_site(chance) for _ in range(pages)]
    builder = Builder()
    for number in range(loads):
        for page, site in enumerate(sites):
            times, sizes = _load(chance, *site)
            builder.add(f"page {page:02d}", times, sizes, run=number % RUNS + 1)
    return builder.build()


def _site(chance: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns the packets of each object of a page, the pause before it [s], and its last packet's
    size.
    """
    objects = int(chance.integers(6, 14))
    packets = np.exp(chance.normal(3.0, 0.9, objects)).astype(np.int64) + 2
    return packets, chance.exponential(0.15, objects), chance.integers(100, 1400, objects)


def _load(
    chance: np.random.Generator,
    packets: NDArray[Any],
    pauses: NDArray[Any],
    lasts: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns a load: for each object a request up, the object down, and an acknowledgement up for
    every second packet.
    """
    now, speed = 0.0, chance.uniform(0.8, 1.25)
    times, sizes = [], []
    for count, pause, last in zip(packets, pauses, lasts, strict=True):
        now += pause * speed * chance.uniform(0.8, 1.2)
        whole = max(1, count + int(chance.integers(-1, 2)))
        gaps = chance.exponential(0.002 * speed, whole)
        down = now + 0.03 * speed + np.cumsum(gaps)
        up = np.r_[now, down[1::2] + 0.0005]
        times += [up, down]
        sizes += [np.r_[400, np.full(up.size - 1, 60)], np.r_[np.full(whole - 1, -1450), -last]]
        now = down[-1]
    order = np.argsort(np.concatenate(times), kind="stable")
    return np.concatenate(times)[order], np.concatenate(sizes)[order].astype(np.int64)


@pytest.fixture(scope="session")
def pages() -> Traces:
    """Returns 10 pages of 20 loads."""
    return page_loads()


@pytest.fixture(scope="session")
def data(pages: Traces, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the path of a file with `pages`."""
    path = tmp_path_factory.mktemp("data") / "pages.parquet"
    io.write(pages, path)
    return path
