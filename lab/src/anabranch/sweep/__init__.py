"""Sweeps: many evaluations, listed in a file, run in processes, with results in a folder.

| module | what it does |
|---|---|
| `listing` | reads SPEC.toml into units |
| `memory` | number of units that fit into memory at a time |
| `estimate` | predicted duration of units, from trials of their attacks |
| `executors` | this process, a pool of processes, or Ray |
| `run` | skips finished units, keeps results |
"""

from anabranch.sweep.listing import Unit, read
from anabranch.sweep.run import Report, sweep

__all__ = ["Report", "Unit", "read", "sweep"]
