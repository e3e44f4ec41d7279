"""Printer of evaluations' results for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from anabranch.metrics import Difference
    from anabranch.results import Result
    from anabranch.sweep.listing import Unit
    from anabranch.sweep.run import Report


def headline(result: Result) -> str:
    """Returns the main number of a result with its interval, and the processor time."""
    name = "accuracy" if result.spec.design.world == "closed" else "r_precision"
    value, seconds = _percent(result.metrics[name]), result.elapsed["cpu_s"]
    return f"{name.replace('_', '-')} {value}, {seconds:.0f} s"


_NUMBERS = {"accuracy": "accuracy", "recall": "recall", "r_precision": "r-precision", "f1": "F1"}


def pairs(found: Sequence[Result]) -> list[tuple[Result, Result, Difference]]:
    """Compares the first closed-world result with each other closed-world one, on common loads."""
    from anabranch import metrics

    first, others = found[0], found[1:]
    if first.spec.design.world != "closed" or first.spec.design.protocol != "honest":
        return []
    drawn = (first.spec.scoring.bootstrap, first.spec.seed)
    return [
        (first, each, metrics.difference(each.outcomes, first.outcomes, *drawn)) for each in others
    ]


def show_several(found: Sequence[Result]) -> None:
    """Prints a row for each attack, then the difference of the first attack and each other one."""
    shown = [name for name in _NUMBERS if name in found[0].metrics]
    table = Table("attack", *(f"{_NUMBERS[name]} %" for name in shown), "time", box=None)
    for each in found:
        numbers = [_short(each.metrics[name]) for name in shown]
        table.add_row(each.spec.attack.name, *numbers, f"{each.elapsed['wall_s']:.0f} s")
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    _show_pairs(found)
    if found[0].spec.design.world == "closed":
        print(f"a random guess among {found[0].facts['pages']} pages is right for "
              f"{1 / found[0].facts['pages']:.1%} of loads")  # fmt: skip


def _show_pairs(found: Sequence[Result]) -> None:
    compared = pairs(found)
    if not compared:
        print("only closed-world results of the honest protocol are compared load by load")
        return
    heads = ("on common loads", "points", "95 % interval by page", "recognised by one alone")
    table = Table(*heads, box=None)
    for first, other, each in compared:
        gain = each.gain
        table.add_row(
            f"{first.spec.attack.name} minus {other.spec.attack.name}",
            f"{100 * gain.value:+.1f}",
            f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}",
            f"{each.only_second} and {each.only_first} of {each.loads} loads",
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def show_report(report: Report) -> None:
    """Prints a row for each unit of a sweep: settings that differ within its run, and numbers."""
    from anabranch import results

    rows = [(unit, results.load(file).metrics) for unit, file in report.files]
    shown = [name for name in _NUMBERS if any(name in metrics for _, metrics in rows)]
    settings = _varied([unit for unit, _ in rows])
    table = Table("run", *settings, *(f"{_NUMBERS[name]} %" for name in shown), box=None)
    for unit, metrics in rows:
        own = unit.spec.to_dict()
        values = (str(own[name]) for name in settings)
        numbers = [_short(metrics[name]) if name in metrics else "" for name in shown]
        table.add_row(unit.name, *values, *numbers)
    if rows:
        # A file has no width, so lines are made wide enough not to fold.
        Console(width=None if sys.stdout.isatty() else 200).print(table)


def _varied(units: list[Unit]) -> list[str]:
    """Returns the settings that differ between units of the same run.

    Such units have the same name, so the name does not show these settings.
    """
    seen: dict[str, dict[str, set[str]]] = {}
    for unit in units:
        for name, value in unit.spec.to_dict().items():
            seen.setdefault(name, {}).setdefault(unit.name, set()).add(repr(value))
    return [name for name, runs in seen.items() if any(len(values) > 1 for values in runs.values())]


def show(result: Result) -> None:
    """Prints all numbers of one result, and the data and sets that they are from."""
    from anabranch import metrics, results

    table = Table("metric", "value", "95 % interval by page", box=None)
    for name, estimate in results.estimates(result.metrics):
        table.add_row(name.replace("_", " "), _number(estimate["value"]), _interval(estimate))
    for part in result.metrics["by_share"]:
        shares = f"{part['least_share']:.0%} to {part['greatest_share']:.0%} seen"
        estimate = part["accuracy"]
        table.add_row(f"  {shares}", _number(estimate["value"]), _interval(estimate))
    print(f"{result.spec.describe(result.facts['recorded_split'])}; {result.facts['division']}")
    Console().print(table)
    if result.spec.design.world == "closed":
        pages = result.facts["pages"]
        print(f"a random guess among {pages} pages is right for {1 / pages:.1%} of loads")
    unseen = result.metrics["unseen"]
    print(
        f"{len(result.outcomes)} predictions, {unseen} of them for loads of which the "
        "observer sees no packet",
        end="; ",
    )
    print(f"{result.elapsed['wall_s']:.0f} s, {result.elapsed['cpu_s']:.0f} s of processor time")
    for fold in result.facts["folds"]:
        if fold["overhead"] is not None:
            print(_cost(fold["overhead"]))
            break  # the folds differ in the unmonitored pages of the test
    if result.spec.design.world == "open":
        print(metrics.resolution(result.metrics, unseen=result.spec.design.protocol == "honest"))


def _cost(overhead: dict[str, Any]) -> str:
    """Describes the cost of padding the test loads."""
    bandwidth, time = _number(overhead["bandwidth"]), _number(overhead["time"])
    return (
        f"padding adds {bandwidth} to the bytes and {time} to the time of {overhead['loads']} test "
        "loads"
    )


def _percent(estimate: dict[str, float | None]) -> str:
    return f"{_number(estimate['value'])} ({_interval(estimate)})"


def _short(estimate: dict[str, float | None]) -> str:
    return f"{_percent(estimate)}".replace("%", "").replace(" to ", "-")


def _interval(estimate: dict[str, float | None]) -> str:
    return f"{_number(estimate['low'])} to {_number(estimate['high'])}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
