"""Executors of a sweep's units (evaluations): processes of this machine, or Ray.

An executor is a context manager: given the memory need of each unit and the maximum number of
units at a time, it yields `Workers`. No unit starts before there is memory for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children, connection, get_context, parent_process
from typing import Any, TypeAlias, TypeVar

from anabranch.nets import MissingExtraError, how_to_install
from anabranch.observers import SettingError
from anabranch.sweep import memory

U = TypeVar("U")
T = TypeVar("T")
Done: TypeAlias = Iterator[tuple[U, T]]


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers that run units while the executor's context is open.

    Attributes:
        at_once: maximum number of running units.
        run: applies a function to units, which are in the order of the needs; yields each unit with
            its result as it finishes.
    """

    at_once: int
    run: Callable[[Sequence[Any], Callable[[Any], Any]], Done[Any, Any]]


@contextmanager
def local(needs: Sequence[int], jobs: int | None) -> Iterator[Workers]:
    """Yields workers that are processes of this machine.

    Args:
        needs: bytes that each unit needs.
        jobs: maximum number of units at a time; None is one per processor.
    """
    most = (os.cpu_count() or 1) if jobs is None else jobs
    at_once = memory.at_once(needs, most, memory.available())
    yield Workers(at_once, partial(pool, at_once=at_once))


@contextmanager
def ray(needs: Sequence[int], jobs: int | None) -> Iterator[Workers]:
    """Yields workers of a cluster (`RAY_ADDRESS` in the environment), or of Ray on this machine.

    Each unit requests a processor and its memory, so that Ray starts no unit on a node without
    room for it. The data must be at the same path on every node; results return to this process.

    Args:
        needs: bytes that each unit needs.
        jobs: maximum number of units at a time, at most the cluster's number of processors, which
            is also the default.

    Raises:
        MissingExtraError: if Ray is not installed.
        SettingError: if the cluster does not answer.
    """
    framework = _ray()
    started = not framework.is_initialized()
    if started:
        _connect(framework)
    try:
        nodes = _nodes(framework)
        processors = int(sum(node["CPU"] for node in nodes))
        at_once = max(1, processors if jobs is None else min(jobs, processors))
        # Ray would wait forever for more memory than the largest node has.
        largest = max((int(node.get("memory", 0)) for node in nodes), default=0)
        asked = [min(need, largest) for need in needs]
        yield Workers(at_once, partial(_on_cluster, framework, asked, at_once))
    finally:
        if started:
            framework.shutdown()


EXECUTORS = {"local": local, "ray": ray}
"""Executors by name."""


def require(name: str) -> None:
    """Raises an error if an executor is unknown or not installed."""
    if name not in EXECUTORS:
        raise SettingError(f"executor: '{name}' is unknown: expected local or ray")
    if name == "ray":
        _ray()


def here(units: Sequence[U], work: Callable[[U], T]) -> Done[U, T]:
    """Runs the units (evaluations) one after the other, in this process."""
    for unit in units:
        yield unit, work(unit)


def pool(units: Sequence[U], work: Callable[[U], T], at_once: int) -> Done[U, T]:
    """Runs units in processes of this machine, which end whenever this process ends.

    Raises:
        SettingError: if the system kills a process, for example for lack of memory.
    """
    if at_once == 1:
        yield from here(units, work)
        return
    others = set(active_children())
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
                "jobs: a process was killed, perhaps because memory ran out: give fewer jobs, "
                "and run the sweep again; completed results are kept"
            ) from error
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            if running:  # interrupted: running units are lost anyway
                for worker in set(active_children()) - others:
                    worker.terminate()


def _on_cluster(
    framework: Any,
    needs: Sequence[int],
    at_once: int,
    units: Sequence[U],
    work: Callable[[U], T],
) -> Done[U, T]:
    """Runs units on a Ray cluster, each with the memory that it requests.

    Raises:
        SettingError: if a node cannot run the lab, or Ray loses a unit because its process or its
            node was killed.
    """
    remote = framework.remote(work)
    waiting, running = list(zip(units, needs, strict=True))[::-1], dict[Any, U]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                unit, need = waiting.pop()
                task = remote.options(num_cpus=1, memory=need, max_retries=0)
                running[task.remote(unit)] = unit
            (done, *_), _ = framework.wait(list(running), num_returns=1)
            yield running.pop(done), framework.get(done)
    except framework.exceptions.RayTaskError as error:
        *_, reason = str(error).splitlines()  # the text is the node's traceback
        raise SettingError(f"executor: a node cannot run the lab: {reason}") from error
    except framework.exceptions.RayError as error:
        raise SettingError(
            f"executor: Ray lost a process ({type(error).__name__}), perhaps because memory ran "
            "out: run the sweep again; completed results are kept"
        ) from error


def _connect(framework: Any) -> None:
    try:
        framework.init(log_to_driver=False, include_dashboard=False)
    except (OSError, RuntimeError, ValueError, framework.exceptions.RayError) as error:
        raise SettingError(f"executor: cannot connect to Ray: {error}") from error


def _nodes(framework: Any) -> list[dict[str, float]]:
    """Returns the resources of the nodes that have processors for units."""
    nodes = [node["Resources"] for node in framework.nodes() if node["Alive"]]
    return [node for node in nodes if node.get("CPU", 0) >= 1]


def _ray() -> Any:
    try:
        import ray as framework
    except ImportError as error:
        raise MissingExtraError(f"--executor ray needs ray: {how_to_install('ray')}") from error
    return framework


def _end_with_parent() -> None:
    """Makes this process end when its parent does, so that a killed sweep leaves nothing running.

    A keyboard interrupt reaches all processes, and only the parent handles it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
