"""Pools results that divide the same loads by different test runs, as in rotated.toml.

Usage: pooled.py FOLDER, which has the results. Results that differ only in `test_run` are one
setting. The script prints one accuracy for each setting, computed from all its test loads, with a
confidence interval. Below it is the difference to the first setting of the same attack.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from anabranch import metrics, results
from anabranch.evaluate import Spec
from anabranch.metrics.outcomes import Outcomes


def pooled(folder: Path) -> dict[str, list[tuple[Spec, Outcomes]]]:
    """Returns the settings of each attack, with the pooled predictions of all their test runs."""
    parts: dict[str, list[tuple[Spec, Outcomes]]] = {}
    for file in sorted(folder.glob("*.json")):
        found = results.load(file)
        settings = found.spec.to_dict() | {"test_run": None}
        name = json.dumps([found.data, settings], sort_keys=True)
        parts.setdefault(name, []).append((found.spec, found.outcomes))
    by_attack: dict[str, list[tuple[Spec, Outcomes]]] = {}
    for rows in parts.values():
        rows.sort(key=lambda row: row[0].design.test_run or 0)
        spec, together = rows[0][0], Outcomes.concatenate([row[1] for row in rows])
        by_attack.setdefault(spec.attack.name, []).append((spec, together))
    for settings_of_attack in by_attack.values():
        settings_of_attack.sort(key=_order)
    return by_attack


def _order(row: tuple[Spec, Outcomes]) -> tuple[bool, str, str]:
    split, padding = row[0].splitting, row[0].padding
    return split.schedule == "uniform", split.every or "", padding.defence or ""


def main() -> int:
    """Prints the settings of the folder that the command line names."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for attack, settings in pooled(Path(sys.argv[1])).items():
        first = settings[0][1]
        for spec, outcomes in settings:
            compared = metrics.difference(first, outcomes, spec.scoring.bootstrap, spec.seed)
            own = compared.second
            print(f"{attack}: {spec.describe()}")
            print(f"  {own.value:.1%} ({own.low:.1%} to {own.high:.1%}) of {compared.loads} loads")
            gain = compared.gain
            if outcomes is not first:
                span = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
                print(f"  {100 * gain.value:+.1f} points ({span}) from the first")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
