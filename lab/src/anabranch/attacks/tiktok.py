"""The attack Tik-Tok."""

from __future__ import annotations

from .base import Sequences
from .df import DeepFingerprinting
from .features import directed_times
from .network import Inputs


class TikTok(DeepFingerprinting):
    """Tik-Tok (Rahman, Sirinam, Mathews, Gangadhara and Wright, PETS 2020).

    The network and hyperparameters of Deep Fingerprinting over directional time: the packet's
    direction times its time in seconds since the first packet of the observed sequence.

    Departures: Those of `DeepFingerprinting`. In addition, the authors' program for this attack has
    dropouts of 0.5, then 0.7 after its dense layers (here 0.7, then 0.5), mini-batches of 32, and
    up to 40 epochs with early stopping.
    """

    needs_times = True

    def _inputs(self, X: Sequences, member: str) -> Inputs:
        return (directed_times(X, self.length),)
