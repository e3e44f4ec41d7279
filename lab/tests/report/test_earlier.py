"""Results of an earlier program (`tests/formats`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch import results
from anabranch.report.collection import Collection

EARLIER = Path(__file__).parents[3] / "tests" / "formats" / "0e0b824b" / "fingerprinting.jsonl"


def test_lines_of_results_of_an_earlier_program_are_read() -> None:
    (place, first), (_, second) = results.lines(EARLIER)
    assert place == "rf/029ee26ae8195174.json"
    assert first.spec.attack.name == "rf"
    assert (first.spec.splitting.paths, first.spec.splitting.mode) == (3, "together")
    assert first.spec.attack.parameters["epochs"] == 20
    assert first.metrics["accuracy"] == {"value": 0.895, "low": 0.86, "high": 0.925}
    assert first.facts["division"] == "by run: 1, 2, 3 train, 4 chooses, 5 tests"
    assert first.metrics["chance"] == pytest.approx(1 / 98)
    found = Collection.read([EARLIER])
    assert sorted(entry.spec.attack.name for entry in found) == sorted(
        [first.spec.attack.name, second.spec.attack.name]
    )
