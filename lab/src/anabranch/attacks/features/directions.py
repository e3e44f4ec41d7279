"""Packet directions, alone and multiplied by time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks.base import Sequences

from .segments import segments_of


def directions(X: Sequences, length: int) -> NDArray[np.int8]:
    """int8 (n, length): +1 client to server, -1 server to client, 0 past the end.

    Deep Fingerprinting (Sirinam et al., CCS 2018). int8 and not float, since a
    training set of re-splits is large; the network converts each mini-batch.
    """
    return segments_of(X, X.directions).padded(length, np.int8)


def directed_times(X: Sequences, length: int) -> NDArray[np.float32]:
    """float32 (n, length): direction times seconds since the sequence's first packet, 0 past it.

    Tik-Tok's directional time (Rahman et al., PETS 2020). The first packet becomes
    0, as published: its direction is lost.
    """
    return segments_of(X, X.directions * X.elapsed).padded(length, np.float32)
