"""Packet directions, alone and multiplied by time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.attacks.base import Sequences

from .segments import segments_of


def directions(X: Sequences, length: int) -> NDArray[np.int8]:
    """Returns int8 (n, length): +1 client to server, -1 server to client, 0 past the end.

    The input of Deep Fingerprinting (Sirinam et al., CCS 2018). It is int8 rather than float to
    save memory, since a training set of re-splits is large; the network converts each mini-batch.
    """
    return segments_of(X, X.directions).padded(length, np.int8)


def directed_times(X: Sequences, length: int) -> NDArray[np.float32]:
    """Returns float32 (n, length): direction times seconds since the first packet, 0 past the end.

    Tik-Tok's directional time (Rahman et al., PETS 2020). As published, the first packet becomes 0
    and loses its direction.
    """
    return segments_of(X, X.directions * X.elapsed).padded(length, np.float32)
