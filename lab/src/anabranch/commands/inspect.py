"""`anabranch-lab inspect`: checks traces and prints their contents."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from anabranch import io
from anabranch.commands.options import AsJson, Input, InputForm
from anabranch.traces import Traces


def inspect(
    source_path: Input,
    form: InputForm = None,
    as_json: AsJson = False,
) -> None:
    """Check a file of traces and print its contents."""
    facts = _described(io.read(source_path, form))
    if as_json:
        print(json.dumps(facts))
        return
    table = Table("what", "value", box=None, show_header=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _shown(value))
    Console().print(table)


def _described(traces: Traces) -> dict[str, Any]:
    lengths = traces.lengths
    counts = np.bincount(traces.label, minlength=len(traces.names))
    return {
        "loads": len(traces),
        "packets": int(lengths.sum()),
        "packets_per_load": _spread(lengths),
        "labels": len(traces.names),
        "loads_per_label": _spread(counts),
        "monitored_loads": int(traces.monitored.sum()),
        "runs": np.unique(traces.run).tolist(),
        "seconds": None if traces.timeless else float(traces.times.max(initial=0.0)),
        "up_share": float((traces.sizes > 0).mean()) if traces.sizes.size else None,
        "sizes": traces.facts.size,
        "paths": _paths(traces),
        "schedule": traces.facts.schedule,
        "seed": traces.facts.seed,
    }


def _paths(traces: Traces) -> dict[str, int] | None:
    """Returns the number of packets on each path, by its name."""
    if traces.paths is None:
        return None
    numbers, counts = np.unique(traces.paths, return_counts=True)
    names = dict(enumerate(traces.facts.paths))
    pairs = zip(numbers.tolist(), counts.tolist(), strict=True)
    return {names.get(number, str(number)): count for number, count in pairs}


def _spread(values: Any) -> dict[str, float] | None:
    if values.size == 0:
        return None
    return {
        "least": int(values.min()),
        "median": float(np.median(values)),
        "most": int(values.max()),
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value is None else str(value)
