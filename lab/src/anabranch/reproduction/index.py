"""Generator of `docs/reproduction.md`: a row for each claim, and counts of the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from anabranch.reproduction import (
    advice,
    anonymity,
    attacks,
    camouflage,
    designs,
    onions,
    splitting,
    udp,
    wide,
)
from anabranch.reproduction.claims import Claim, Paper, claims, papers
from anabranch.reproduction.data import Data
from anabranch.reproduction.found import MISSING, OPEN, VERDICTS, Found
from anabranch.reproduction.words import item, marked, table, wrapped

_MODULES: dict[str, ModuleType] = {
    "anonymity": anonymity,
    "attacks": attacks,
    "camouflage": camouflage,
    "designs": designs,
    "onions": onions,
    "splitting": splitting,
    "udp": udp,
    "wide": wide,
}
_HEADER = ("place", "claim", "the paper", "ours", "verdict")
_SENTENCES: dict[str, Callable[[Data], Iterator[str]]] = {
    "circuits-udp.md": udp.sentences,
    "wide.md": wide.sentences,
}
PARTS = tuple(_SENTENCES)
"""Results pages with a generated table of their claims (`part`)."""
ADVICE = "Section 5.3"
"""Value of `Claim.place` for the claims that `designs_page` lists."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A claim, and our result for it."""

    claim: Claim
    found: Found


def entries(data: Data) -> list[Entry]:
    """Returns all claims with their results from `data`, in the order of the papers.

    Raises:
        TraceError: if data cannot be read.
        LookupError: if a claim names a result that the data do not hold.
    """
    return [Entry(claim, found(claim, data)) for claim in claims()]


def problems(data: Data) -> Iterator[str]:
    """Yields problems: rows that lack information, and our numbers that the claim's page lacks."""
    for entry in entries(data):
        claim, of = entry.claim, entry.found
        name = f"{claim.paper}, {claim.place}, {claim.claim}"
        if of.verdict not in VERDICTS:
            yield f"{name}: no verdict"
        if of.verdict in (OPEN, MISSING) and not of.why:
            yield f"{name}: neither a verdict nor a reason"
        if of.verdict == MISSING:
            continue
        if not (claim.page and claim.command and claim.time and claim.settings):
            yield f"{name}: page, command, time or settings are not named"
        if not claim.page or not claim.on_page:
            continue
        text = _plain(data.page(claim.page))
        for quote in of.quotes:
            if _plain(quote) not in text:
                yield f"{name}: {claim.page} does not have '{quote}'"


def page(data: Data) -> str:
    """Returns the page, in Markdown."""
    every = entries(data)
    lines = [*_head(every)]
    for paper in papers():
        of = [entry for entry in every if entry.claim.paper == paper.key]
        lines += ["", f"## {paper.name}", "", *wrapped(f"{paper.title}."), ""]
        lines += table(_HEADER, _rows(of))
        lines += ["", *_made(paper, of)]
    return "\n".join(lines) + "\n"


def designs_page(data: Data) -> str:
    """Returns the page of section 5.3 of the DBSec 2019 paper (`designs.md`), in Markdown."""
    of = [entry for entry in entries(data) if entry.claim.place == ADVICE]
    rows = [(one.claim.claim, one.claim.published, *_result(one.found)) for one in of]
    return advice.page(data, rows)


def part(data: Data, name: str) -> str:
    """Returns the generated findings of a results page, in Markdown, with their marks.

    Args:
        data: the committed data.
        name: the page, one of `PARTS`.
    """
    of = [entry for entry in entries(data) if entry.claim.page == name]
    rows = [
        (one.claim.place, one.claim.claim, one.claim.published, *_result(one.found)) for one in of
    ]
    items = [line for each in _SENTENCES[name](data) for line in item(each)]
    return marked([*items, "", *table(_HEADER, rows)])


def found(claim: Claim, data: Data) -> Found:
    """Computes the result for a claim from `data`.

    Raises:
        TraceError: if data cannot be read.
        LookupError: if the claim names a result that the data do not hold.
    """
    if claim.measure is None:
        return Found("", MISSING, claim.reason)
    module, _, name = claim.measure.partition(".")
    measure: Callable[..., Found] = getattr(_MODULES[module], name)
    return measure(data, **claim.of)


def _head(every: Sequence[Entry]) -> Iterator[str]:
    counts = Counter(entry.found.verdict for entry in every)
    yield "# The papers' tables, figures and claims"
    yield ""
    yield from wrapped(
        "Each table, figure and numbered claim of the four papers that this project reproduces, "
        "with the paper's number and ours. `make reproduce-index` writes this page from the data "
        "in `docs/results`; no number of ours is typed by hand, and a test compares them with the "
        "results pages. `make reproduce SHORT=1` (root, an hour) runs short versions of the "
        "experiments, and fails where a verdict is the opposite of the verdict here."
    )
    yield ""
    yield f"| verdict | claims of {len(every)} |"
    yield "|---|---|"
    for verdict in VERDICTS:
        if counts[verdict]:
            yield f"| {verdict} | {counts[verdict]} |"
    yield ""
    yield from wrapped(
        "A verdict compares a 95 % interval with a bound. Goodput over paths has no interval: "
        "there the runs with the lowest and the highest goodput are compared with the bound. The "
        "claim *holds* or *does not hold* if the whole interval lies on one side of the bound. It "
        "*cannot be judged* if the interval contains the bound. Two values are *alike* if the "
        "interval of their ratio lies within ± 10 % of 1. Where the paper has a number without an "
        "interval, we chose the bound; it is given next to the number. Data, command, time and "
        "settings are below each table."
    )


def _rows(of: Sequence[Entry]) -> Iterator[tuple[str, ...]]:
    for entry in of:
        claim = entry.claim
        place = f"[{claim.place}](results/{claim.page})" if claim.page else claim.place
        yield place, claim.claim, claim.published, *_result(entry.found)


def _result(found: Found) -> tuple[str, str]:
    """Returns two cells of a row: our number, and the verdict."""
    return found.text or "–", f"**{found.verdict}**" + (f": {found.why}" if found.why else "")


def _made(paper: Paper, of: Sequence[Entry]) -> Iterator[str]:
    """Yields a table of commands, times and settings, with the claims that each measures."""
    yield f"How our numbers for {paper.name} are made:"
    yield ""
    ways: dict[tuple[str, str, str, str], list[str]] = {}
    for entry in of:
        claim = entry.claim
        if claim.command:
            way = (claim.page, claim.command, claim.time, claim.settings)
            places = ways.setdefault(way, [])
            places += [claim.place] if claim.place not in places else []
    cells = [
        (
            "; ".join(places),
            f"[{name.removesuffix('.md')}](results/{name})",
            f"`{command}`",
            time,
            settings,
        )
        for (name, command, time, settings), places in ways.items()
    ]
    yield from table(("for", "page", "command", "time", "settings"), cells)


def _plain(text: str) -> str:
    """Returns the text without line breaks, asterisks and per cent signs.

    Prose and tables format the same number differently.
    """
    return " ".join(text.replace("*", "").replace(" %", "").split())
