"""The expected errors of an evaluation."""

from anabranch.attacks import AttackError
from anabranch.defences import DefenceError
from anabranch.nets import MissingExtraError
from anabranch.observers import SettingError
from anabranch.plugins import PluginError
from anabranch.splitting import SplitError
from anabranch.validate import TraceError

ERRORS = (
    SettingError,
    SplitError,
    AttackError,
    DefenceError,
    PluginError,
    TraceError,
    MissingExtraError,
)
"""Exceptions of an evaluation with invalid settings, invalid data, or a missing package."""
