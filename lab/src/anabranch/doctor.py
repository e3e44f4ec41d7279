"""`anabranch-lab doctor`: lists installed and missing parts, and predicts a sweep's needs."""

from __future__ import annotations

import json
import os
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from anabranch import __version__, plugins
from anabranch.nets import how_to_install, missing_of_jax

if TYPE_CHECKING:
    from anabranch.sweep.estimate import Measured
    from anabranch.sweep.listing import Unit

PARTS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "the lab": (None, ("numpy", "scipy", "scikit-learn", "pyarrow", "joblib", "typer", "rich")),
    "network attacks": ("nets", ("jax", "jaxlib", "equinox", "optax")),
    "reports and figures": ("report", ("matplotlib",)),
    "sweeps over a cluster": ("ray", ("ray",)),
}
"""Packages that each part of the lab needs, and the extra that installs them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Predicted needs of a unit of a sweep.

    Attributes:
        unit: readable name of the unit.
        memory: upper bound in bytes.
        seconds: duration if it runs alone on this machine; None if no trial was possible.
        made: how the duration was estimated, or the reason why there is none.
    """

    unit: str
    memory: int
    seconds: float | None
    made: str


def doctor(
    listing: Annotated[
        Path | None,
        typer.Argument(
            metavar="SPEC.toml",
            help="Predict memory and time of the sweep (list of evaluations) in this file.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="IN",
            help="Use these traces for evaluations in SPEC.toml that name no traces. The "
            "path is relative to the current folder.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.0, max=3600.0, help="Try each attack on this machine for this time, in seconds."
        ),
    ] = 20.0,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Predict for this number of evaluations at a time. Default: one for each "
            "processor.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as one JSON object.")
    ] = False,
) -> None:
    """Print what is installed and what is missing, and predict memory and time of a sweep.

    The prediction comes from a trial of each attack on few page loads. In our measurements the real
    time was at most 3 times longer or shorter than predicted. This command stores nothing.
    """
    found = installed() | {"machine": machine()}
    if listing is not None:
        found["sweep"] = _sweep(listing, data, seconds, jobs)
    if as_json:
        print(json.dumps(found))
    else:
        _show(found)


def installed() -> dict[str, Any]:
    """Returns versions of dependencies by part (None if missing), and third-party items."""
    parts = {
        name: {
            "versions": {package: _version(package) for package in packages},
            "install": None if extra is None else how_to_install(extra),
        }
        for name, (extra, packages) in PARTS.items()
    }
    kinds: tuple[plugins.Kind, ...] = ("attacks", "defences", "schedules")
    return {
        "versions": {"anabranch": __version__, "python": platform.python_version()},
        "parts": parts,
        "outside": {kind: plugins.names(kind) for kind in kinds},
        "devices": devices(),
    }


def machine() -> dict[str, Any]:
    """Returns the processors and bytes of memory that this process may use."""
    from anabranch.sweep import memory

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"system": platform.platform(), "processors": usable, "memory": memory.available()}


def devices() -> dict[str, Any]:
    """Returns the devices on which JAX runs networks, and advice if a GPU is not used.

    Returns:
        `found`: a text for each device; `advice`: a line, or None.
    """
    if missing_of_jax():
        return {"found": [], "advice": f"network attacks need JAX: {how_to_install('nets')}"}
    try:
        import jax

        found = jax.devices()
    except Exception as error:  # a plugin of another version may raise anything
        return {"found": [], "advice": f"JAX found no device: {error}".replace("\n", " ")}
    report = [f"{each.platform}: {each.device_kind}{_size(each)}" for each in found]
    return {"found": report, "advice": _advice({each.platform for each in found})}


def _advice(platforms: set[str]) -> str | None:
    """Returns advice if a GPU is present but not used, as far as this can be detected."""
    if platforms != {"cpu"}:
        return None
    pinned = os.environ.get("JAX_PLATFORMS")
    if pinned:
        return f"JAX_PLATFORMS={pinned} is set: unset it to let JAX use other devices"
    if shutil.which("nvidia-smi"):
        return (
            "this JAX has no plugin for the NVIDIA GPU of this machine: pip install 'jax[cuda12]'"
        )
    return None


def _size(device: Any) -> str:
    """Returns the device's memory limit, if it reports one."""
    try:
        stats = device.memory_stats() or {}
    except Exception:  # not every backend reports it
        return ""
    limit = stats.get("bytes_limit")
    return f", {_bytes(limit)}" if limit else ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _sweep(listing: Path, data: Path | None, seconds: float, jobs: int | None) -> dict[str, Any]:
    from anabranch.commands.errors import one_line

    with one_line():
        from anabranch import sweep as lab
        from anabranch.sweep import estimate, memory

        units = lab.read(listing, data)
        report = estimates(units, seconds)
        needs = [each.memory for each in report]
        known = [each.seconds for each in report if each.seconds is not None]
        at_once = memory.at_once(needs, jobs or os.cpu_count() or 1, memory.available())
        return {
            "units": [asdict(each) for each in report],
            "seconds": sum(known),
            "at_once": at_once,
            "seconds_at_best": estimate.at_best(known, at_once),
            "factor": estimate.FACTOR,
        }


def estimates(units: list[Unit], seconds: float) -> list[Estimate]:
    """Estimates the needs of units, with one trial per attack, data set and choice of pages.

    Args:
        units: units of a sweep.
        seconds: approximate duration of the trials of each attack.

    Raises:
        TraceError: if data cannot be read.
    """
    from anabranch.evaluate import ERRORS
    from anabranch.sweep import estimate, memory, run

    measured: dict[str, Measured | str] = {}
    found: dict[int, Estimate] = {}
    order = sorted(range(len(units)), key=lambda place: str(units[place].data))
    for place in order:
        unit = units[place]
        traces = run.traces_of(unit)
        need, asked = memory.needed(unit.spec, traces), estimate.question(unit)
        try:
            if asked not in measured:
                measured[asked] = estimate.measure(unit.spec, traces, seconds)
            report = measured[asked]
            time = None if isinstance(report, str) else report.seconds(
                estimate.work_of(unit.spec, traces)
            )  # fmt: skip
        except ERRORS as error:
            report, time = str(error), None
            measured.setdefault(asked, report)
        found[place] = Estimate(str(unit), need, time, str(report))
    return [found[place] for place in range(len(units))]


def _show(found: dict[str, Any]) -> None:
    console = Console(highlight=False)
    table = Table("part", "installed", "missing", box=None)
    for name, part in found["parts"].items():
        there = [f"{each} {version}" for each, version in part["versions"].items() if version]
        missing = [each for each, version in part["versions"].items() if version is None]
        cure = f"{', '.join(missing)}: {part['install']}" if missing else ""
        table.add_row(name, ", ".join(there), escape(cure))
    versions, host = found["versions"], found["machine"]
    print(f"anabranch {versions['anabranch']}, Python {versions['python']}, {host['system']}")
    print(f"{host['processors']} processors, {_bytes(host['memory'])} of memory free")
    console.print(table)
    seen = found["devices"]
    print(f"neural networks run on {'; '.join(seen['found']) or 'nothing'}")
    if seen["advice"]:
        print(seen["advice"])
    for kind, names in found["outside"].items():
        if names:
            print(f"{kind} from installed packages: {', '.join(names)}")
    if "sweep" in found:
        _show_sweep(found["sweep"])


def _show_sweep(report: dict[str, Any]) -> None:
    table = Table("evaluation", "memory", "time", "trials", box=None)
    for each in report["units"]:
        time = "-" if each["seconds"] is None else duration(each["seconds"])
        table.add_row(escape(each["unit"]), _bytes(each["memory"]), time, escape(each["made"]))
    Console(highlight=False).print(table)
    print(f"one at a time: {duration(report['seconds'])}", end="; ")
    print(f"{report['at_once']} at a time, if memory allows: at best "
          f"{duration(report['seconds_at_best'])}")  # fmt: skip
    print(
        f"Predicted times are right within a factor of {report['factor']:g} if the machine stays "
        "as busy as now. For MiniRocket the factor is 5, because one of three trials took five "
        "times as long as predicted. Each attack was tried on few loads, and its time was "
        "extrapolated to all samples, and for neural networks to all epochs. A training that stops "
        "early takes less time. Memory is an upper limit, computed from packets and samples. The "
        "memory of an attack from another package is not known."
    )


def duration(seconds: float) -> str:
    """Formats a duration in a suitable unit, such as `4.2 s`, `12 min` or `2.1 days`."""
    for unit, size, until in (("s", 1, 100), ("min", 60, 6000), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def _bytes(number: int) -> str:
    return f"{number / 2**30:.1f} GiB"
