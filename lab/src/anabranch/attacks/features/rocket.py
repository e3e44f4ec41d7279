"""Convolutions of slot counts whose results do not depend on when something happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks.base import Floats, Sequences

from .tam import traffic_aggregation_matrix

TAPS, HEAVY = 9, 3
"""Length of a kernel, and how many of its taps weigh 2; the others weigh -1."""
KERNELS = tuple(combinations(range(TAPS), HEAVY))
"""The places of the heavy taps in each of the 84 kernels."""
THRESHOLDS = 4
"""Thresholds of each kernel, dilation and channel."""
BATCH = 256
"""Sequences convolved at once: their series stay in the processor's cache."""

Series = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Convolution:
    """One kernel on one channel, and the thresholds that its results are compared with."""

    kernel: int
    dilation: int
    channel: int
    thresholds: NDArray[np.float32]


def slot_series(X: Sequences, slots: int, window: float) -> Series:
    """float32 (n, channels, slots): square roots of the counts in each slot.

    Channels are the rows of `traffic_aggregation_matrix`, then all directions together. The root
    makes the noise of large counts like that of small ones.
    """
    rows = traffic_aggregation_matrix(X, slots, window).astype(np.float32)
    both = rows[:, 0::2] + rows[:, 1::2]
    return np.asarray(np.sqrt(np.concatenate([rows, both], axis=1)), np.float32)


def draw_convolutions(series: Series, convolutions: int, seed: int) -> list[Convolution]:
    """Random kernels, with thresholds that are quantiles of their results on random sequences.

    Args:
        series: (n, channels, slots) of a training set.
        convolutions: how many.
        seed: of all draws.
    """
    chance = np.random.default_rng(seed)
    _, channels, slots = series.shape
    furthest = max(int(np.log2(max((slots - 1) / (TAPS - 1), 1))), 0)
    drawn = []
    for _ in range(convolutions):
        kernel, channel = int(chance.integers(len(KERNELS))), int(chance.integers(channels))
        dilation = 2 ** int(chance.integers(furthest + 1))
        some = chance.integers(len(series), size=8)
        results = convolved(series[some, channel], kernel, dilation)
        busy = results[results != 0]
        quantiles = np.quantile(busy, chance.random(THRESHOLDS)) if busy.size else np.zeros(4)
        drawn.append(Convolution(kernel, dilation, channel, quantiles.astype(np.float32)))
    return drawn


def rocket_features(series: Series, drawn: list[Convolution]) -> Floats:
    """float64 (n, 4 x convolutions + channels): slots above each threshold, and sizes' logarithms.

    After MiniRocket (Dempster, Schmidt and Webb, KDD 2021), which takes the share of positive
    results: wherever in the window something happens, it counts the same.
    """
    parts = [_of_batch(batch, drawn) for batch in _batches(series)]
    empty = np.zeros((0, THRESHOLDS * len(drawn) + series.shape[1]))
    return np.concatenate([empty, *parts])


def convolved(rows: Series, kernel: int, dilation: int) -> Series:
    """float32 (n, slots): `rows` (n, slots) by one kernel, as if zeros stood beyond both ends."""
    reach = dilation * (TAPS // 2)
    slots = rows.shape[1]
    wide = np.pad(rows, ((0, 0), (reach, reach)))
    shifted = [wide[:, tap * dilation : tap * dilation + slots] for tap in range(TAPS)]
    heavy = sum(shifted[tap] for tap in KERNELS[kernel])
    return np.asarray(3 * heavy - sum(shifted), np.float32)


def _of_batch(batch: Series, drawn: list[Convolution]) -> Floats:
    counts = np.empty((len(batch), len(drawn), THRESHOLDS))
    sums: dict[tuple[int, int], tuple[list[Series], Series]] = {}
    slots = batch.shape[2]
    for place, each in enumerate(drawn):
        key = (each.channel, each.dilation)
        if key not in sums:
            reach = each.dilation * (TAPS // 2)
            wide = np.pad(batch[:, each.channel], ((0, 0), (reach, reach)))
            taps = [wide[:, tap * each.dilation :][:, :slots] for tap in range(TAPS)]
            sums[key] = taps, np.asarray(sum(taps), np.float32)
        taps, total = sums[key]
        first, second, third = KERNELS[each.kernel]
        results = 3 * (taps[first] + taps[second] + taps[third]) - total
        for at, threshold in enumerate(each.thresholds):
            counts[:, place, at] = np.count_nonzero(results > threshold, axis=1)
    sizes = np.log1p(np.square(batch, dtype=np.float64).sum(axis=2))
    return np.column_stack([counts.reshape(len(batch), -1), sizes])


def _batches(series: Series) -> Iterator[Series]:
    for first in range(0, len(series), BATCH):
        yield series[first : first + BATCH]
