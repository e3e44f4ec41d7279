"""Types of the Rust binding (crates/py). Every error that it raises is a `ValueError`."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__version__: str
MOST_PATHS: int
LATEST: float
DEFAULT_SCHEDULE: str
DEFAULT_EVERY: str

Seen: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]

def families() -> list[tuple[str, str, str, str | None]]: ...
def draw_paths(
    schedule: str, paths: int, runs: int, seed: int, entity: int = 0
) -> NDArray[np.int16]: ...
def draw_run_packets(every: str, runs: int, seed: int, entity: int = 0) -> NDArray[np.uint64]: ...
def draw_run_seconds(every: str, runs: int, seed: int, entity: int = 0) -> NDArray[np.float64]: ...
def maybenot_check(machines: list[str]) -> None: ...
def maybenot_defend(
    times: NDArray[np.float64],
    up: NDArray[np.bool_],
    client: list[str],
    server: list[str],
    seed: int,
    delay: float,
    pps: int | None = None,
    most_events: int = 2_000_000,
) -> Seen: ...
def slots_above(
    series: NDArray[np.float32],
    channels: int,
    slots: int,
    heavy: NDArray[np.int64],
    dilations: NDArray[np.int64],
    of_channels: NDArray[np.int64],
    thresholds: NDArray[np.float32],
) -> NDArray[np.float64]: ...
def closed_form(entry: float, exit: float, legs: int) -> tuple[float, float]: ...

class Consensus:
    def __new__(cls, data: bytes) -> Consensus: ...
    @property
    def valid_after(self) -> int: ...
    @property
    def relays(self) -> int: ...
    @property
    def has_policies(self) -> bool: ...
    @property
    def has_families(self) -> bool: ...
    @property
    def guards_in_use(self) -> int: ...
    def entry_weights(self) -> NDArray[np.uint64]: ...
    def paths(
        self,
        entries: float,
        exits: float,
        heaviest: bool,
        legs: int,
        port: int,
        circuits: int,
        draws: int,
        seed: int,
        threads: int,
    ) -> tuple[
        tuple[float, float, float, float],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.float64],
        list[tuple[int, int]],
    ]: ...
    def year(
        self,
        clients: int,
        draws: int,
        share: float,
        adds: int | None,
        heaviest: bool,
        churn: float | None,
        hostile_churn: bool,
        days: list[int],
        in_use: int | None,
        seed: int,
        threads: int,
    ) -> tuple[list[int | None], list[float], NDArray[np.float64], NDArray[np.float64]]: ...
    def fingerprints(
        self, clients: int, legs: int, draws: int, in_use: int | None, seed: int, threads: int
    ) -> tuple[list[int], list[float], NDArray[np.float64]]: ...

def delayed(
    jitter: str, seed: int, times: NDArray[np.float64], sizes: NDArray[np.int32]
) -> NDArray[np.float64]: ...
def mean_delay(jitter: str) -> float: ...
def decoys(
    budget: str,
    seed: int,
    paths: int,
    times: NDArray[np.float64],
    sizes: NDArray[np.int32],
    at: NDArray[np.int16],
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int16]]: ...

class TraceSplit:
    def __new__(
        cls,
        schedule: str,
        every: str,
        paths: int,
        mode: str = "together",
        seed: int = 0,
        delays: list[tuple[float, float]] | None = None,
        draw: str = "load",
    ) -> TraceSplit: ...
    def assign(
        self,
        load: NDArray[np.int64],
        run: NDArray[np.int32],
        offsets: NDArray[np.int64],
        times: NDArray[np.float64],
        sizes: NDArray[np.int32],
        replica: int = 0,
    ) -> NDArray[np.int16]: ...
    def delay(
        self,
        offsets: NDArray[np.int64],
        times: NDArray[np.float64],
        sizes: NDArray[np.int32],
        paths: NDArray[np.int16],
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
