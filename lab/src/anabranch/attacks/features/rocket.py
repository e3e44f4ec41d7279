"""Convolutions of packet counts in time slots, pooled over time (shift-invariant features)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from anabranch._core import slots_above
from anabranch.attacks.base import Floats, Sequences

from .tam import traffic_aggregation_matrix

TAPS, HEAVY = 9, 3
"""Length of a kernel, and number of its taps with weight 2; the others have weight -1."""
KERNELS = tuple(combinations(range(TAPS), HEAVY))
"""Positions of the heavy taps in each of the 84 kernels."""
THRESHOLDS = 4
"""Number of thresholds for each kernel, dilation and channel."""
BATCH = 1024
"""Sequences whose counts are computed at once; the table of a batch takes a few megabytes."""

Series = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Convolution:
    """One kernel on one channel, with the thresholds for its results.

    `kernel` is an index into `KERNELS`; `dilation` is in slots.
    """

    kernel: int
    dilation: int
    channel: int
    thresholds: NDArray[np.float32]


def slot_series(X: Sequences, slots: int, window: float) -> Series:
    """Returns float32 (n, channels, slots): square roots of the counts in each slot.

    Channels are the rows of `traffic_aggregation_matrix`, followed by the sum over both directions.
    The square root makes the noise of large counts similar to that of small ones.
    """
    rows = traffic_aggregation_matrix(X, slots, window).astype(np.float32)
    both = rows[:, 0::2] + rows[:, 1::2]
    return np.asarray(np.sqrt(np.concatenate([rows, both], axis=1)), np.float32)


def draw_convolutions(series: Series, convolutions: int, seed: int) -> list[Convolution]:
    """Draws random kernels and their thresholds.

    The thresholds of a kernel are random quantiles of its results other than 0 on eight sequences,
    which are drawn at random from `series`.

    Args:
        series: (n, channels, slots) of a training set.
        convolutions: number of kernels.
        seed: seed of all random choices.
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
    """Returns float64 (n, 4 x convolutions + channels): slots above each threshold, log totals.

    Follows MiniRocket (Dempster, Schmidt and Webb, KDD 2021), which uses the share of positive
    results. Features do not depend on the position of a pattern in the window.
    """
    sequences, channels, slots = series.shape
    heavy = np.array([KERNELS[each.kernel] for each in drawn], np.int64).ravel()
    dilations = np.array([each.dilation for each in drawn], np.int64)
    of_channels = np.array([each.channel for each in drawn], np.int64)
    thresholds = np.array([each.thresholds for each in drawn], np.float32).ravel()
    features = np.empty((sequences, THRESHOLDS * len(drawn) + channels))
    for first in range(0, sequences, BATCH):
        batch = np.ascontiguousarray(series[first : first + BATCH], np.float32)
        counts = slots_above(
            batch.ravel(), channels, slots, heavy, dilations, of_channels, thresholds
        )
        rows = features[first : first + BATCH]
        rows[:, :-channels] = counts.reshape(len(batch), -1)
        rows[:, -channels:] = np.log1p(np.square(batch, dtype=np.float64).sum(axis=2))
    return features


def convolved(rows: Series, kernel: int, dilation: int) -> Series:
    """Convolves `rows` (n, slots) with one kernel, zeros beyond both ends: float32 (n, slots)."""
    reach = dilation * (TAPS // 2)
    slots = rows.shape[1]
    wide = np.pad(rows, ((0, 0), (reach, reach)))
    shifted = [wide[:, tap * dilation : tap * dilation + slots] for tap in range(TAPS)]
    heavy = sum(shifted[tap] for tap in KERNELS[kernel])
    return np.asarray(3 * heavy - sum(shifted), np.float32)
