"""Defences and a split, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from anabranch.defences.base import Defence, DefenceError, Defended, marked, stream
from anabranch.splitting import Split
from anabranch.traces import Traces


class Pipeline:
    """Stages in the order of packets: `[Front(), Split()]` pads, then splits what it padded.

    A defence behind the split runs on each path by itself, with dice of the path's own: a machine
    for each path, which knows nothing of the others. Paths without packets stay so.

    Attributes:
        stages: defences, and at most one `Split`, which has the seed of its paths in itself.

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
        """What all stages make of the traces, as draw number `replica` of each load.

        The first defence has the dice of `seed`; later ones have dice of their own, so that two
        equal defences in a row pad differently. Replicas draw paths and padding anew.

        Raises:
            TraceError, SplitError, DefenceError: as the stages do.
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
