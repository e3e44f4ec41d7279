"""Many evaluations: a file that lists them, a folder that keeps them, processes that do them.

| module | what it does |
|---|---|
| `listing` | reads SPEC.toml into units |
| `memory` | how many units fit into memory at a time |
| `estimate` | how long units will take, from trials of their attacks |
| `executors` | this process, a pool of processes, or Ray |
| `run` | leaves out what is done, keeps what is found |
"""

from anabranch.sweep.listing import Unit, read
from anabranch.sweep.run import Report, sweep

__all__ = ["Report", "Unit", "read", "sweep"]
