"""Types of the Rust binding (crates/py). Every error of it is a `ValueError`."""

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
