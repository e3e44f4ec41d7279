"""Sweeps of simulations over several machines: `anabranch sim sweep`, driven by an executor.

The program `anabranch` simulates. This module distributes the runs to processes of this machine,
or to the machines of a Ray cluster::

    from anabranch.sim import Plan, sweep

    plan = Plan(Path("results"), (Path("tor.toml"), Path("conflux.toml")), networks=5, seeds=2)
    print(sweep(plan, executor="ray").hash)

The folder has the format of `anabranch sim sweep`; this module and the program can continue each
other's sweeps, with the same results. Every machine needs the program, the scenarios, and the
consensuses named in them at the same paths.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.sweep import executors
from anabranch.validate import TraceError

JOURNAL = "units.jsonl"
"""File of a sweep with one line for each run."""

RUNS = "runs"
"""Subfolder of a sweep with a file of downloads for each run."""

MEMORY = 1 << 30
"""Memory that a run requests by default, in bytes."""


class SimError(TraceError):
    """Error of a sweep that cannot begin or continue; the message is one line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a sweep: each scenario is run on each drawn network with each seed.

    Attributes:
        folder: folder of the results; created if missing.
        scenarios: TOML files.
        networks: number of drawn networks.
        seeds: number of seeds for each network.
        program: `anabranch`, by name or path.
    """

    folder: Path
    scenarios: tuple[Path, ...]
    networks: int = 1
    seeds: int = 1
    program: str = "anabranch"

    def command(self, folder: Path, *more: str) -> list[str]:
        """Returns the command line of `anabranch sim sweep` for `folder`, with further options."""
        program = shutil.which(self.program)
        if program is None:
            raise SimError(
                f"the program '{self.program}' was not found: install it, or give its path"
            )
        scenarios = [str(scenario.absolute()) for scenario in self.scenarios]
        counts = ["--networks", str(self.networks), "--seeds", str(self.seeds)]
        return [
            str(Path(program).absolute()),
            "sim",
            "sweep",
            str(folder),
            *scenarios,
            *counts,
            *more,
        ]


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a sweep.

    Attributes:
        kept: number of runs that were already in the folder.
        done: number of runs of this sweep.
        nodes: machines that ran this sweep: names, or Ray's node identifiers.
        hash: hash of all runs, as `anabranch sim sweep` prints it.
    """

    kept: int
    done: int
    nodes: frozenset[str]
    hash: str


@dataclass(frozen=True, slots=True)
class Done:
    """A run that was carried out.

    Attributes:
        node: name of the machine, or Ray's node identifier.
        header: first line of the sweep's journal, as that machine's program writes it.
        record: the run's line of the journal.
        downloads: content of the run's Parquet file.
    """

    node: str
    header: dict[str, Any]
    record: dict[str, Any]
    downloads: bytes


OnRun = Callable[[str, Done], None]


def sweep(
    plan: Plan,
    *,
    jobs: int | None = None,
    executor: str = "local",
    memory: int = MEMORY,
    on_run: OnRun | None = None,
) -> Report:
    """Carries out the runs that are not in the journal.

    A run is added to the journal after its downloads are stored, so a stopped sweep loses only
    unfinished runs.

    Args:
        plan: the scenarios, networks and seeds.
        jobs: maximum number of runs at a time; None is one per processor.
        executor: `local` or `ray`.
        memory: bytes that a run needs; it limits the runs at a time on each machine.
        on_run: called after each run with its name.

    Raises:
        SimError: if the program rejects the plan, fails, or differs between machines.
        SettingError: if the executor is unknown, or its cluster does not answer.
        MissingExtraError: if the executor is not installed.
    """
    executors.require(executor)
    left = _output(plan.command(plan.folder, "--list")).split()
    nodes, tasks = set[str](), [_Task(plan, name) for name in left]
    if tasks:
        with (
            _journal(plan.folder) as add,
            executors.EXECUTORS[executor]([memory] * len(tasks), jobs) as workers,
        ):
            for task, outcome in workers.run(tasks, carry_out):
                if isinstance(outcome, str):
                    raise SimError(f"{task.name}: {outcome}")
                add(task.name, outcome)
                nodes.add(outcome.node)
                if on_run is not None:
                    on_run(task.name, outcome)
    # All runs are done, so the program only checks the journal and computes the hash.
    last = json.loads(_output(plan.command(plan.folder, "--json")).splitlines()[-1])
    return Report(last["runs"] - len(left), len(left), frozenset(nodes), last["hash"])


@dataclass(frozen=True, slots=True)
class _Task:
    """A run to carry out, identified by its name in the plan."""

    plan: Plan
    name: str


def carry_out(task: _Task) -> Done | str:
    """Carries out a run on this machine; returns its outcome, or the reason of its failure."""
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-sim-") as folder:
            words = task.plan.command(Path(folder), "--run", task.name)
            said = json.loads(_output(words))
            downloads = (Path(folder) / RUNS / f"{task.name}.parquet").read_bytes()
    except (SimError, OSError, json.JSONDecodeError) as error:
        return str(error)
    return Done(_node(), said["header"], said["record"], downloads)


def _node() -> str:
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return str(ray.get_runtime_context().get_node_id())
    return platform.node()


def _output(words: list[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SimError(f"{words[0]}: {error.strerror}") from error
    if done.returncode != 0:
        *_, reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SimError(reason.removeprefix("anabranch: "))
    return done.stdout


@contextmanager
def _journal(folder: Path) -> Iterator[Callable[[str, Done], None]]:
    """Yields a function that stores a run; other processes cannot write the sweep meanwhile."""
    (folder / RUNS).mkdir(exist_ok=True)
    with (folder / JOURNAL).open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SimError(
                f"{file.name}: another process writes to this folder; wait until it ends, or name "
                "another folder"
            ) from None
        header = json.loads(file.readline())
        file.seek(0, os.SEEK_END)

        def add(name: str, done: Done) -> None:
            if done.header != header:
                raise SimError(
                    f"{name}: the program or a scenario on {done.node} differs from that of this "
                    "machine: copy them there"
                )
            target = folder / RUNS / f"{name}.parquet"
            part = target.with_suffix(".part")
            part.write_bytes(done.downloads)
            part.replace(target)
            file.write(json.dumps(done.record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

        yield add
