"""Cumulative counts, at fixed moments, of packets seen and of packets that counters reveal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks.base import Floats, Ints, Sequences


def tallies(X: Sequences) -> list[Floats]:
    """Returns weights of each packet: 1, its bytes, and its counter increment.

    Each is float64 (packets,). Increments are `Sequences.increments`; without counters they are
    left out.
    """
    counted = [np.ones(X.times.size), np.abs(X.sizes).astype(np.float64)]
    return counted if X.counts is None else [*counted, X.increments.astype(np.float64)]


def total_features(X: Sequences) -> Floats:
    """Returns float64 (n, features): the totals of `tallies`, by direction."""
    everything = np.zeros(X.times.size, np.int64)
    return np.column_stack([_sums(X, each, everything, 1)[:, :, 0] for each in tallies(X)])


def course_features(X: Sequences, moments: int, window: float) -> Floats:
    """Returns float64 (n, features): totals, the duration, and counts at fixed moments.

    Counts are cumulative, by direction: packets seen and, with counters, packets of all paths.
    Moments are spaced geometrically, from a thousandth of the window to its end. Packets after the
    window count only in the totals and the duration.

    Args:
        X: the sequences.
        moments: number of moments, at least 1.
        window: seconds from the first packet seen to the last moment.
    """
    ends = window * 1000.0 ** -np.linspace(1, 0, moments) if moments > 1 else np.array([window])
    moment = np.searchsorted(ends, X.elapsed)
    duration = np.zeros(len(X))
    np.maximum.at(duration, X.owners, X.elapsed)
    seen, _, *classes = tallies(X)
    sums = [np.cumsum(_sums(X, each, moment, moments), axis=2) for each in (seen, *classes)]
    flat = [course.reshape(len(X), 2 * moments) for course in sums]
    return np.column_stack([total_features(X), duration, *flat])


def _sums(X: Sequences, weights: Floats, place: Ints, places: int) -> NDArray[np.float64]:
    """Sums the weights of the packets of each sequence, direction and place.

    Args:
        X: the sequences.
        weights: (packets,).
        place: (packets,), from 0; packets whose place is `places` or more are left out.
        places: number of places.

    Returns:
        float64 (n, 2, places), client to server first.
    """
    inside = place < places
    cell = (X.owners[inside] * 2 + (X.sizes[inside] < 0)) * places + place[inside]
    counts = np.bincount(cell, weights[inside], len(X) * 2 * places)
    return counts.astype(np.float64).reshape(len(X), 2, places)
