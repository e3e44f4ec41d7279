"""One evaluation: data, split, observer, attack and protocol in, numbers with intervals out.

| module | what it does |
|---|---|
| `spec` | the settings of one evaluation, checked |
| `attack` | attacks by name, with their parameters; from outside; the one that takes the paths |
| `samples` | what an observer sees, as training and test sets |
| `run` | trains, predicts, measures |
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
"""What an evaluation raises where its settings, its data or the installation are wrong."""

__all__ = ["ERRORS", "Spec", "add_attack", "evaluate"]
