"""Writes the results of `lab/results/guards` as JSON, and prints the tables of guards.md.

Usage: guards_table.py NUMBERS.json [FOLDER]. The tables show NUMBERS. If FOLDER, the folder of
results of `guards`, is given, NUMBERS is first computed from it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

SETTINGS: Final = {
    "one": "one leg",
    "lowrtt": "three, `lowrtt`",
    "eta": "three, `eta`",
    "lowrtt-equal": "three equal, `lowrtt`",
    "round-robin": "three, `round-robin`, every cell",
    "weighted": "three, `weighted:4` every 100 ms",
    "uniform": "three, `uniform` every 100 ms",
    "merged": "three that join at a middle relay (`merged`), `lowrtt`",
    "merged-batches": "three that join at a middle relay, `weighted:4` every 50-70 cells",
    "lowrtt-two": "two, `lowrtt`",
    "round-robin-two": "two, `round-robin`, every cell",
}
"""The settings of `guards`, in the order of the tables, each with its legs and schedule."""

PLAYED: Final = re.compile(
    r"(?P<loads>\d+) loads: (?P<recorded>\d+) cells recorded, (?P<seen>\d+) seen; "
    r"by the fullest leg (?P<fullest>[\d.]+) of a load's cells and (?P<first>[\d.]+) of its first "
    r"50 downward ones"
)
"""The line that the program `guards` prints for a setting."""

ATTACKS: Final = ("k-fp", "rocket")


def measured(folder: Path) -> list[dict[str, Any]]:
    """Returns a row for each setting that `folder` has, with its results by attack and observer.

    Raises:
        ValueError: a setting's line of played cells is not as `guards` prints it.
    """
    return [_row(folder, name) for name in SETTINGS if (folder / f"{name}.txt").exists()]


def _row(folder: Path, name: str) -> dict[str, Any]:
    text = (folder / f"{name}.txt").read_text(encoding="utf-8")
    played = PLAYED.search(text)
    if played is None:
        raise ValueError(f"{folder / name}.txt has no line of the program guards: {text!r}")
    results = {}
    for file in sorted(folder.glob(f"{name}.*.json")):
        _, attack, observer, _ = file.name.split(".")
        results[f"{attack}, {observer}"] = json.loads(file.read_text())["metrics"]["accuracy"]
    return {
        "setting": name,
        "loads": int(played["loads"]),
        "cells_recorded": int(played["recorded"]),
        "cells_seen": int(played["seen"]),
        "fullest_share": float(played["fullest"]),
        "fullest_share_of_first_50_down": float(played["first"]),
        "accuracy": results,
    }


def tables(rows: list[dict[str, Any]]) -> str:
    """Returns the two tables of the page in Markdown: k-FP, and MiniRocket."""
    first = [
        "| legs, `--schedule` | cells on the fullest | of the first 50 cells down | k-FP, fullest "
        "| k-FP, random |",
        "|---|---|---|---|---|",
    ]
    second = [
        "| legs, `--schedule` | cells seen by all guards, relative to the recording | MiniRocket, "
        "fullest | MiniRocket, random |",
        "|---|---|---|---|",
    ]
    for row in rows:
        legs = SETTINGS[row["setting"]]
        shares = f"{row['fullest_share']:.1%} | {row['fullest_share_of_first_50_down']:.1%}"
        first.append(f"| {legs} | {shares} | {_accuracies(row, 'k-fp')} |".replace("%", " %"))
        relative = f"{row['cells_seen'] / row['cells_recorded']:.2f}"
        second.append(f"| {legs} | {relative} | {_accuracies(row, 'rocket')} |".replace("%", " %"))
    return "\n".join([*first, "", *second]) + "\n"


def _accuracies(row: dict[str, Any], attack: str) -> str:
    """Returns the columns of the fullest and of a random leg; one leg has only the second."""
    random = _accuracy(row["accuracy"][f"{attack}, random"])
    fullest = row["accuracy"].get(f"{attack}, largest")
    return f"{random} | the same" if fullest is None else f"{_accuracy(fullest)} | {random}"


def _accuracy(found: dict[str, float]) -> str:
    value, low, high = (100 * found[key] for key in ("value", "low", "high"))
    return f"{value:.1f}% ({low:.1f}–{high:.1f})"


def main() -> int:
    """Reads the command line."""
    if len(sys.argv) not in {2, 3}:
        print(__doc__, file=sys.stderr)
        return 2
    numbers = Path(sys.argv[1])
    if len(sys.argv) == 3:
        numbers.write_text(json.dumps(measured(Path(sys.argv[2])), indent=1) + "\n")
    print(tables(json.loads(numbers.read_text())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
