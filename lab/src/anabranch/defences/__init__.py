"""Defences that pad or delay, for use before a split or on each path after it.

```python
from anabranch.defences import Pipeline, overhead, parse
from anabranch.splitting import Split

pipeline = Pipeline([parse("front:client=1700,server=2500"), Split("weighted", "50p", 3)])
defended = pipeline.apply(traces, seed=1)  # Traces, with `padding`: bool for each packet
print(overhead(traces, defended).bandwidth)
```
"""

from anabranch.defences.base import Defence, DefenceError, Defended
from anabranch.defences.decoys import Decoys
from anabranch.defences.front import Front
from anabranch.defences.jitter import Jitter
from anabranch.defences.maybenot import Maybenot
from anabranch.defences.overhead import Overhead, overhead
from anabranch.defences.pipeline import Pipeline
from anabranch.defences.texts import FAMILIES, Family, parse
from anabranch.defences.wtf_pad import WtfPad

__all__ = [
    "FAMILIES",
    "Decoys",
    "Defence",
    "DefenceError",
    "Defended",
    "Family",
    "Front",
    "Jitter",
    "Maybenot",
    "Overhead",
    "Pipeline",
    "WtfPad",
    "overhead",
    "parse",
]
