"""Tik-Tok."""

from __future__ import annotations

from .base import Sequences
from .df import DeepFingerprinting
from .features import directed_times
from .network import Inputs


class TikTok(DeepFingerprinting):
    """Tik-Tok (Rahman, Sirinam, Mathews, Gangadhara and Wright, PETS 2020).

    The network and hyperparameters of Deep Fingerprinting over directional time, which is the
    packet's direction times its time in seconds. Departures as in
    `DeepFingerprinting`; time counts from the first packet of the observed sequence.
    """

    needs_times = True

    def _inputs(self, X: Sequences, member: str) -> Inputs:
        return (directed_times(X, self.length),)
