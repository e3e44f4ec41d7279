"""Compares the verdicts of a run of the experiments with those of the committed data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.reproduction.claims import Claim, claims
from anabranch.reproduction.data import Data
from anabranch.reproduction.found import FAILS, HOLDS, MISSING, Found
from anabranch.reproduction.index import found
from anabranch.validate import TraceError


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim of a paper, with our committed result for it and the result of a new run.

    Attributes:
        claim: the claim.
        committed: result of the committed data.
        run: result of the run's data; None if these lack data that the claim needs.
    """

    claim: Claim
    committed: Found
    run: Found | None

    @property
    def contradicts(self) -> bool:
        """Whether the claim holds by one of the two results and fails by the other."""
        return self.run is not None and {self.committed.verdict, self.run.verdict} == {HOLDS, FAILS}


def pairs(committed: Data, run: Data) -> Iterator[Pair]:
    """Yields every claim that has committed data, in the order of the papers.

    Raises:
        TraceError: if committed data cannot be read.
        LookupError: if a claim names a result that the committed data do not hold.
    """
    for claim in claims():
        known = found(claim, committed)
        if known.verdict != MISSING:
            yield Pair(claim, known, _of_run(claim, run))


def _of_run(claim: Claim, run: Data) -> Found | None:
    # A short run leaves out designs, networks and settings. Then a table lacks rows (LookupError),
    # or there are no values for a median or a share.
    try:
        of = found(claim, run)
    except (TraceError, LookupError, ValueError, ZeroDivisionError):
        return None
    return None if of.verdict == MISSING else of


def table(of: list[Pair]) -> str:
    """Returns the claims that the run measured, for a terminal, contradictions last."""
    measured = sorted((pair for pair in of if pair.run), key=lambda pair: pair.contradicts)
    lines = []
    for pair in measured:
        assert pair.run is not None
        mark = "CONTRADICTS " if pair.contradicts else ""
        lines.append(f"{mark}{pair.claim.paper}, {pair.claim.place}: {pair.claim.claim}")
        for name, each in (("committed", pair.committed), ("this run", pair.run)):
            lines.append(f"    {name + ':':10} {each.verdict}: {each.text}")
    against = sum(pair.contradicts for pair in measured)
    lines.append(
        f"{len(measured)} of {len(of)} claims with committed data were measured in this run; "
        f"{against} contradict the committed verdict"
    )
    return "\n".join(lines) + "\n"
