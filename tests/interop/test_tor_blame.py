"""The rule by which a stock tor's complaint about its guard is ignored."""

from __future__ import annotations

import pytest

from harness.blame import is_unjust

pytestmark = pytest.mark.tor

GUARD, MIDDLE = "A" * 40, "B" * 40
BLAME = f"[warn] {{CIRC}} Guard ann (${GUARD}) is failing a very large amount of circuits."
BEGUN = f"entry_guard_inc_circ_attempt_count(): Got success count 1/2 for guard ann (${GUARD})"
BUILT = f"pathbias_count_build_success(): Got success count 1/2 for guard ann (${GUARD})"
TURNED = f"internal circ (length 3, last hop ann): ${GUARD}(open) ${MIDDLE}(open) ${GUARD}(closed)"


@pytest.mark.parametrize(
    ("begun", "built", "turned", "unjust"),
    [(100, 48, 50, True), (100, 20, 50, False), (100, 40, 0, False), (4, 0, 4, True)],
)
def test_circuits_that_turn_back_are_no_fault_of_the_guard(
    begun: int, built: int, turned: int, unjust: bool
) -> None:
    """The complaint is unjust only if at least half of the other circuits were built."""
    lines = [BEGUN] * begun + [BUILT] * built + [TURNED] * turned
    assert is_unjust(BLAME, lambda: lines) == unjust
    assert not is_unjust(BLAME.replace(GUARD, MIDDLE), lambda: lines)
    assert not is_unjust("[warn] something else", lambda: lines)
