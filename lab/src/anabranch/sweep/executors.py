"""Who does the work: this process, a pool of processes, or Ray.

Each takes units, a function and how many may be under way, and yields units with what the
function returned, as they are done. Nothing is begun before there is room for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, connection, get_context, parent_process
from typing import Any, TypeAlias, TypeVar

from anabranch.nets import MissingExtraError
from anabranch.observers import SettingError

U = TypeVar("U")
T = TypeVar("T")
Done: TypeAlias = Iterator[tuple[U, T]]


def here(units: Sequence[U], work: Callable[[U], T], at_once: int = 1) -> Done[U, T]:
    """One after the other, in this process."""
    del at_once
    for unit in units:
        yield unit, work(unit)


def pool(units: Sequence[U], work: Callable[[U], T], at_once: int) -> Done[U, T]:
    """In processes of this machine, which end with this one, however it ends.

    Raises:
        SettingError: if the system kills one, as it does where memory runs out.
    """
    if at_once == 1:
        yield from here(units, work)
        return
    # Spawned, since JAX's threads do not survive a fork.
    with ProcessPoolExecutor(at_once, get_context("spawn"), _end_with_parent) as executor:
        waiting, running = list(reversed(units)), dict[Future[T], U]()
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    unit = waiting.pop()
                    running[executor.submit(work, unit)] = unit
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool as error:
            raise SettingError(
                "jobs: a process was killed, perhaps for want of memory: give fewer; what is done "
                "is kept"
            ) from error
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            if running:  # interrupted: what is under way is lost anyway
                for worker in active_children():
                    worker.terminate()


def ray(units: Sequence[U], work: Callable[[U], T], at_once: int) -> Done[U, T]:
    """On a cluster (the environment's RAY_ADDRESS), or on a Ray of this machine.

    The data have to be at the same path on every node; results come back to this process.

    Raises:
        MissingExtraError: if Ray is not installed.
    """
    framework = _ray()
    started = not framework.is_initialized()
    if started:
        framework.init(log_to_driver=False, include_dashboard=False)
    try:
        remote = framework.remote(max_retries=0)(work)
        waiting, running = list(reversed(units)), dict[Any, U]()
        while waiting or running:
            while waiting and len(running) < at_once:
                unit = waiting.pop()
                running[remote.remote(unit)] = unit
            (done, *_), _ = framework.wait(list(running), num_returns=1)
            yield running.pop(done), framework.get(done)
    finally:
        if started:
            framework.shutdown()


EXECUTORS = {"local": pool, "ray": ray}
"""By name."""


def require(name: str) -> None:
    """Refuses an executor that there is not, or that is not installed."""
    if name not in EXECUTORS:
        raise SettingError(f"executor: local or ray, not '{name}'")
    if name == "ray":
        _ray()


def _ray() -> Any:
    try:
        import ray as framework
    except ImportError as error:
        raise MissingExtraError("--executor ray needs ray: pip install 'anabranch[ray]'") from error
    return framework


def _end_with_parent() -> None:
    """Ends this process when its parent has ended: a killed sweep leaves nothing running.

    An interrupt from the keyboard reaches all processes; it is the parent's to answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
