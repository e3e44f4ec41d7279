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
    """Returns float32 (n, length): directions multiplied by times [s], 0 past the end.

    Tik-Tok's directional time (Rahman et al., PETS 2020). Times begin at the first packet of the
    sequence. As published, the value of this packet is 0, which does not show its direction.
    """
    return segments_of(X, X.directions * X.elapsed).padded(length, np.float32)
