"""One evaluation: from data, split, observer, attack and protocol to metrics with intervals.

| module | content |
|---|---|
| `spec` | the settings of one evaluation, checked |
| `attack` | attacks by name with their parameters, third-party ones too |
| `samples` | an observer's view of loads, as training and test sets |
| `run` | training, prediction and metrics |
"""

from anabranch.attacks import AttackError
from anabranch.defences import DefenceError
from anabranch.evaluate.attack import add as add_attack
from anabranch.evaluate.run import evaluate
from anabranch.evaluate.spec import Spec
from anabranch.nets import MissingExtraError
from anabranch.observers import SettingError
from anabranch.outside import OutsideError
from anabranch.splitting import SplitError
from anabranch.validate import TraceError

ERRORS = (
    SettingError,
    SplitError,
    AttackError,
    DefenceError,
    OutsideError,
    TraceError,
    MissingExtraError,
)
"""Exceptions of an evaluation with invalid settings or data, or with a package missing."""

__all__ = ["ERRORS", "Spec", "add_attack", "evaluate"]
