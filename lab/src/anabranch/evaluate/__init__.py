"""One evaluation: from data, split, observer, attack and protocol to metrics with intervals.

| module | content |
|---|---|
| `spec` | the settings of one evaluation, checked |
| `attack` | built-in and third-party attacks by name, with their parameters |
| `samples` | an observer's view of loads, as training and test sets |
| `run` | training, prediction and metrics |
| `errors` | the expected errors |
"""

from anabranch.evaluate.attack import add as add_attack
from anabranch.evaluate.errors import ERRORS
from anabranch.evaluate.run import evaluate
from anabranch.evaluate.spec import Spec

__all__ = ["ERRORS", "Spec", "add_attack", "evaluate"]
