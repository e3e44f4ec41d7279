"""The traffic aggregation matrix of Robust Fingerprinting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks.base import Sequences


def traffic_aggregation_matrix(
    X: Sequences, slots: int = 1800, window: float = 80.0
) -> NDArray[np.uint16]:
    """Returns uint16 (n, 2, slots): packets in each time slot, client to server first.

    With counters, returns (n, 4, slots). The two additional rows are the increases of the counters
    in each slot, client to server first: the packets that all paths carried since the last packet
    seen. The sum of a row up to a slot is the greatest count seen so far in its direction.

    Source: Shen et al., USENIX Security 2023: 80 s in 1800 slots of 44 ms. As in their program
    (`packets_per_slot.py`), the slot is floor(t (slots - 1) / window), and packets after the window
    are counted in the last slot. Counts saturate at 65,535.

    Args:
        X: the sequences.
        slots: number of slots, the columns.
        window: seconds that the slots cover.
    """
    elapsed = X.elapsed
    slot = (np.minimum(elapsed, window) * (slots - 1) / window).astype(np.int64)
    row = (X.sizes < 0).astype(np.int64)
    cell = (X.owners * 2 + row) * slots + slot
    weights = [None] if X.counts is None else [None, X.increments]
    parts = [np.bincount(cell, weight, len(X) * 2 * slots) for weight in weights]
    tables = [part.clip(max=np.iinfo(np.uint16).max).astype(np.uint16) for part in parts]
    return np.concatenate([table.reshape(-1, 2, slots) for table in tables], axis=1)
