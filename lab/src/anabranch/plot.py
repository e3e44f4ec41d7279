"""Figures of results for notebooks and papers: each function draws into axes and returns them.

They use matplotlib, which reports need anyway: its axes can be titled, scaled, coloured and saved
in a notebook. `pip install './lab[report]'` installs it.

```python
from anabranch import plot, results

found = [results.load(path) for path in Path("spec.results").glob("*.json")]
plot.accuracy(found).figure.savefig("accuracy.pdf")
```
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from anabranch import metrics
from anabranch.observers import SettingError
from anabranch.report import require_matplotlib
from anabranch.results import Numbers, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Label = Callable[[Numbers], str]
T = TypeVar("T", bound=Numbers)


def label_of(result: Numbers) -> str:
    """Returns a short label of a result: attack, setting, observer."""
    from anabranch.report.setting import Setting, attack, observer

    setting = Setting.of(result.spec, result.facts.get("recorded_split"))
    seen = f", {observer(str(result.spec.observer))}" if setting.splits else ""
    return f"{attack(result.spec.attack.name)}: {setting}{seen}"


def accuracy(
    found: Sequence[Numbers], ax: Axes | None = None, *, label: Label = label_of, **style: Any
) -> Axes:
    """Draws a dot with its 95 % interval for each closed-world result, the highest on top.

    Args:
        found: results; other worlds are refused.
        ax: where to draw; None makes axes of their own.
        label: label of each result.
        **style: for matplotlib's `errorbar`.

    Raises:
        MissingExtraError: if matplotlib is not installed.
        SettingError: if there is no result, or a result of the open world.
    """
    axes = _axes(ax)
    rows = sorted(_of_world(found, "closed"), key=lambda each: each.metrics["accuracy"]["value"])
    values = np.array([[each.metrics["accuracy"][part] for part in ("value", "low", "high")]
                       for each in rows])  # fmt: skip
    _dots(axes, 100 * values, [label(each) for each in rows], style)
    chance = {float(each.metrics["chance"]) for each in rows}
    if len(chance) == 1:
        axes.axvline(100 * chance.pop(), ls=":", lw=1, color="0.5", label="guessing")
    axes.set(xlabel="loads recognised, %", xlim=(-2, 102))
    return axes


def curve(
    found: Sequence[Numbers], ax: Axes | None = None, *, label: Label = label_of, **style: Any
) -> Axes:
    """Draws r-precision against recall of open-world results, over all thresholds.

    The band is the 95 % interval of r-precision, the dot the threshold chosen on the validation
    set.

    Args:
        found: results; other worlds are refused.
        ax: where to draw; None makes axes of their own.
        label: label of each result.
        **style: for matplotlib's `plot`.

    Raises:
        MissingExtraError: if matplotlib is not installed.
        SettingError: if there is no result, or a result of the closed world.
    """
    axes = _axes(ax)
    for each in _of_world(found, "open"):
        points = each.metrics["curve"]
        recall = _column(points["recall"], "value")
        value, low, high = (
            _column(points["r_precision"], part) for part in ("value", "low", "high")
        )
        (line,) = axes.plot(recall, value, label=label(each), **style)
        axes.fill_between(recall, low, high, alpha=0.15, lw=0, color=line.get_color())
        chosen = [each.metrics[name]["value"] for name in ("recall", "r_precision")]
        if None not in chosen:
            axes.plot(*(100 * part for part in chosen), "o", color=line.get_color())
    axes.set(xlabel="recall, %", ylabel="r-precision, %", xlim=(-2, 102), ylim=(-2, 102))
    axes.legend()
    return axes


def differences(
    first: Result,
    others: Sequence[Result],
    ax: Axes | None = None,
    *,
    label: Label = label_of,
    **style: Any,
) -> Axes:
    """Draws the difference in points between `first` and each other result, on their common loads.

    Args:
        first: a closed-world result.
        others: results on the same data to compare it with.
        ax: where to draw; None makes axes of their own.
        label: label of each result.
        **style: for matplotlib's `errorbar`.

    Raises:
        MissingExtraError: if matplotlib is not installed.
        SettingError: if a result is of the open world.
        PairError: if `first` and another result have no loads in common.
    """
    axes = _axes(ax)
    rows = _of_world([first, *others], "closed")[1:]
    drawn = (first.spec.scoring.bootstrap, first.spec.seed)
    gains = [metrics.difference(each.outcomes, first.outcomes, *drawn).gain for each in rows]
    values = np.array([[gain.value, gain.low, gain.high] for gain in gains]).reshape(-1, 3)
    _dots(axes, 100 * values, [f"less {label(each)}" for each in rows], style)
    axes.axvline(0, lw=1, color="0.5")
    axes.set(xlabel="points", title=label(first))
    return axes


def _axes(ax: Axes | None) -> Axes:
    require_matplotlib()
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    _, own = plt.subplots(layout="constrained")
    return own


def _of_world(found: Sequence[T], world: str) -> list[T]:
    if isinstance(found, str | os.PathLike):
        folder = os.fspath(found)
        raise SettingError(
            f"{folder!r} is a path; expected results: "
            f"[results.load(file) for file in Path({folder!r}).glob('*.json')]"
        )
    if not found:
        raise SettingError("there is no result to draw")
    for each in found:
        if each.spec.design.world != world:
            raise SettingError(
                "results of closed and open worlds cannot be drawn together: "
                f"{each.spec.design.world} "
                f"among {world}"
            )
    return list(found)


def _dots(axes: Axes, values: Any, labels: Sequence[str], style: dict[str, Any]) -> None:
    """Draws a dot with its interval for each row (value, low, high), from the bottom up."""
    rows = np.arange(len(labels))
    arms = np.abs(values[:, 1:] - values[:, :1]).T
    looks: dict[str, Any] = {"fmt": "o", "capsize": 2, **style}
    axes.errorbar(values[:, 0], rows, xerr=arms, **looks)
    axes.set_yticks(rows, labels)
    axes.set_ylim(-0.6, len(labels) - 0.4)


def _column(points: Sequence[dict[str, float | None]], part: str) -> Any:
    """Returns `value`, `low` or `high` (`part`) of each estimate in percent; NaN for None."""
    return 100 * np.array([point[part] for point in points], np.float64)
