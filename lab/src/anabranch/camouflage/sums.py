"""The site classifier of StegoTorus' paper (Weinberg et al., CCS 2012, section 5.2).

The features of a load are the payload bytes sent up and down so far, after each of the first `n`
packets with payload. The classifier of a site fits an independent Gaussian to each feature of some
of its loads. The score of another load is the sum of the log densities.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks import AttackError
from anabranch.traces import Traces

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WINDOWS = (50, 100, 150, 200, 500)
"""Values of `n` (packets) to try. The paper reports the best, and tries 500 only for StegoTorus."""
HEADERS = 52
"""Bytes of the IPv4 and TCP headers of a packet, with TCP timestamps."""
LEAST_DEVIATION = 50.0
"""Minimum standard deviation of a Gaussian, in bytes, used if loads are nearly equal.

The paper gives no minimum.
"""


def cumulative(traces: Traces, packets: int) -> Floats:
    """Returns payload bytes up and down after each packet, float64 (n, 2 × `packets`).

    After a load's last packet the sums stay constant.
    """
    table = np.zeros((len(traces), 2, packets))
    for row in range(len(traces)):
        sizes = traces.sizes[traces.packets(row)].astype(np.int64)
        payload = np.sign(sizes) * np.maximum(np.abs(sizes) - HEADERS, 0)
        payload = payload[payload != 0][:packets]
        for way, sign in enumerate((1, -1)):
            sums = np.cumsum(np.maximum(sign * payload, 0))
            table[row, way, : sums.size] = sums
            table[row, way, sums.size :] = sums[-1] if sums.size else 0
    return table.reshape(len(traces), -1)


def scores(learnt: Floats, tested: Floats) -> Floats:
    """Returns log densities (m,) of `tested` (m, f) by Gaussians fitted to `learnt` (n, f).

    A term that all densities share is left out.
    """
    mean = learnt.mean(axis=0)
    deviation = np.maximum(learnt.std(axis=0), LEAST_DEVIATION)
    normal = (tested - mean) / deviation
    total: Floats = -(normal**2 / 2 + np.log(deviation)).sum(axis=1)
    return total


def area(scores_of: Floats, positive: Bools) -> float:
    """Returns the area under the ROC curve; equal scores count half."""
    own, others = scores_of[positive], scores_of[~positive]
    above = (own[:, None] > others[None, :]).sum()
    equal = (own[:, None] == others[None, :]).sum()
    return float((above + equal / 2) / (own.size * others.size))


def areas(learnt: Traces, tested: Traces, windows: Sequence[int] = WINDOWS) -> dict[str, float]:
    """Returns each monitored site's area under the ROC curve, for the best of `windows`.

    One half of the turns is for training and the other for the test, then the reverse. An area is
    the mean of both.

    Args:
        learnt: loads to train on.
        tested: loads to test on; may be the same as `learnt`.
        windows: numbers of packets to choose from.

    Raises:
        AttackError: if no site has loads in both halves.
    """
    turns = np.unique(np.concatenate([learnt.run, tested.run]))
    halves = turns[0::2], turns[1::2]
    found: dict[str, list[float]] = {}
    for packets in windows:
        rows = cumulative(learnt, packets), cumulative(tested, packets)
        parts = [
            _of_half(rows, (learnt, tested), (np.isin(learnt.run, a), np.isin(tested.run, b)))
            for a, b in (halves, halves[::-1])
        ]
        for name in parts[0].keys() & parts[1].keys():
            found.setdefault(name, []).append((parts[0][name] + parts[1][name]) / 2)
    if not found:
        raise AttackError(
            "no site has page loads from two turns (rounds of the collection): collect more turns"
        )
    return {name: max(values) for name, values in sorted(found.items())}


def _of_half(
    rows: tuple[Floats, Floats], loads: tuple[Traces, Traces], chosen: tuple[Bools, Bools]
) -> dict[str, float]:
    (train, test), (learnt, tested) = rows, loads
    inside = chosen[1] & tested.monitored
    labels = tested.labels[inside]
    found = {}
    for name in np.unique(labels):
        own = chosen[0] & learnt.monitored & (learnt.labels == name)
        if own.any() and (labels != name).any():
            found[str(name)] = area(scores(train[own], test[inside]), labels == name)
    return found
