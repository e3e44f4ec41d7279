"""Defences and at most one split, applied in order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from anabranch.defences.base import Defence, DefenceError, Defended, marked, stream
from anabranch.splitting import Split
from anabranch.traces import Traces


class Pipeline:
    """A list of stages that are applied in order: `[Front(), Split()]` pads, then splits.

    A defence after the split runs on each path separately, with a seed of its own and without
    knowledge of the other paths. Paths without packets stay empty.

    Attributes:
        stages: defences, and at most one `Split`, whose `seed` draws the paths.

    Raises:
        DefenceError: if there are two splits.
    """

    __slots__ = ("stages",)

    def __init__(self, stages: Sequence[Defence | Split]) -> None:
        self.stages = tuple(stages)
        if sum(isinstance(stage, Split) for stage in self.stages) > 1:
            raise DefenceError("a pipeline can split only once: remove one of its splits")

    def __str__(self) -> str:
        return " | ".join(map(str, self.stages)) or "none"

    def apply(self, traces: Traces, seed: int, replica: int = 0) -> Defended:
        """Returns the traces after all stages; each `replica` has its own paths and padding.

        The first defence uses `seed`. Later ones use seeds derived from it, so that two equal
        defences in a row pad differently.

        Raises:
            TraceError, SplitError, DefenceError: as raised by the stages.
        """
        done = marked(traces)
        defences = 0
        for stage in self.stages:
            if isinstance(stage, Split):
                done = done.carried(partial(stage.split, replica=replica))
                continue
            own = seed if defences == 0 else stream(seed, "pipeline", defences)
            done = stage.apply(done, own, replica)
            defences += 1
        return done
