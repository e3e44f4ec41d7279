"""An observer's view of loads, as training and test sets of attacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch.attacks import PathSequences
from anabranch.defences import overhead
from anabranch.evaluate.spec import Spec
from anabranch.observers import Floats, Observer, Paths, SettingError, path_count
from anabranch.protocol import Ints
from anabranch.splitting import Split
from anabranch.traces import Traces


@dataclass(frozen=True, slots=True)
class Samples:
    """`n` observed loads, or parts of loads.

    Attributes:
        X: the packets seen.
        y: int64 (n,), the page, or `UNMONITORED`.
        rows: int64 (n,), index of the load in the data; samples of one load share it.
        share: float64 (n,), fraction of the load's packets that the observer sees.
        path: int16 (n,), the path watched, or -1.
    """

    X: PathSequences
    y: Ints
    rows: Ints
    share: Floats
    path: Paths

    def __len__(self) -> int:
        return self.y.size

    def __getitem__(self, index: ArrayLike) -> Samples:
        """Returns the samples that a boolean mask or an array of indices selects."""
        at = np.asarray(index)
        return Samples(self.X[at], self.y[at], self.rows[at], self.share[at], self.path[at])

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Self:
        """Returns the samples of all `parts`, in order."""
        return cls(
            PathSequences.joined([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.share for part in parts]),
            np.concatenate([part.path for part in parts]),
        )

    @property
    def seen(self) -> Samples:
        """The samples of which the observer sees at least one packet."""
        return self[self.X.lengths > 0]


class Sampler:
    """Source of samples: applies the padding, split and observer of a spec to loads.

    A load's samples depend on the spec, the load's run and number, and the replica, not on other
    loads.

    Raises:
        SettingError: if `resplits` or `merged` has no effect, or if `defence` would pad loads that
            are already split.
    """

    def __init__(self, spec: Spec, traces: Traces, classes: Ints) -> None:
        self.spec, self.traces, self.classes = spec, traces, classes
        self.split: Split | None = spec.split()
        self.observer = spec.observer
        self.pipeline = spec.pipeline()
        self.padded = bool(spec.padding)
        if spec.training.resplits > 1 and self.split is None and not self.padded:
            raise SettingError(
                "resplits: nothing is split, so all re-splits would be the same: give a "
                "schedule, or leave resplits out"
            )
        if spec.training.merged and self.split is None and traces.paths is None:
            raise SettingError(
                "merged: nothing is split, so training uses whole traces anyway: leave merged out"
            )
        # Loads recorded on a single path count as unsplit.
        if spec.padding.defence is not None and path_count(traces) > 1:
            raise SettingError(
                "defence: these loads are already split, so they cannot be padded as a whole: "
                "use path_defence, which pads each path"
            )

    def train(self, rows: Ints) -> Samples:
        """Returns re-splits of the loads at `rows`, and whole loads if `merged`.

        Samples without packets are left out.
        """
        parts = [self.seen(rows, replica) for replica in range(self.spec.training.resplits)]
        if self.spec.training.merged:
            parts.append(self.see(rows, 0, Observer("merged", counter=self.observer.counter)))
        return Samples.joined(parts).seen

    def seen(self, rows: Ints, replica: int = 0) -> Samples:
        """Returns one sample for each load at `rows`.

        The observer `any` consists of an observer on each path: it gets one for each load and path.
        """
        if self.observer.rule != "any":
            return self.see(rows, replica)
        divided = self._divided(rows, replica)
        paths = range(path_count(divided))
        return Samples.joined([self._view(divided, rows, self.observer, 0, path) for path in paths])

    def see(self, rows: Ints, replica: int = 0, observer: Observer | None = None) -> Samples:
        """Returns one sample for each load at `rows`; a sample may have no packets.

        `observer` replaces the observer of the spec.
        """
        divided = self._divided(rows, replica)
        return self._view(divided, rows, observer or self.observer, replica)

    def _view(
        self, divided: Traces, rows: Ints, rule: Observer, replica: int, path: int | None = None
    ) -> Samples:
        chance = {"seed": self.spec.seed, "replica": replica}
        view = rule.see(divided, session=self.spec.splitting.session, path=path, **chance)
        return Samples(view.sequences, self.classes[rows], rows, view.share, view.path)

    def every_path(self, rows: Ints, replica: int = 0) -> Samples:
        """Returns a sample for each path of each load at `rows`, as in the paper's evaluation."""
        divided = self._divided(rows, replica)
        if divided.paths is None:
            return self.see(rows, replica)
        count = path_count(divided)
        shares = divided.shares(count)
        parts = [self._one_path(divided, rows, path, shares) for path in range(count)]
        return Samples.joined(parts)

    def _one_path(self, divided: Traces, rows: Ints, path: int, shares: Floats) -> Samples:
        seen = divided.on_paths([path])
        paths: NDArray[np.int16] = np.full(seen.times.size, path, np.int16)
        X = PathSequences(seen.times, seen.sizes, seen.offsets, paths)
        watched = np.full(rows.size, path, np.int16)
        return Samples(X, self.classes[rows], rows, shares[:, path], watched)

    def overhead(self, rows: Ints) -> dict[str, Any] | None:
        """Returns the cost of padding for the loads at `rows`; None without padding."""
        if not self.padded:
            return None
        chosen = self.traces[rows]
        return overhead(chosen, self.pipeline.apply(chosen, self.spec.seed)).summary()

    def _divided(self, rows: Ints, replica: int) -> Traces:
        """Returns the loads at `rows`, padded and split where the spec requires it."""
        chosen = self.traces[rows]
        if self.padded:
            return self.pipeline.apply(chosen, self.spec.seed, replica).bare()
        return chosen if self.split is None else self.split.split(chosen, replica)
