"""A report's page: arranges texts, tables and figures in sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from anabranch import __version__
from anabranch.report import (
    beyond,
    comparison,
    costs,
    counter,
    curves,
    dots,
    fronts,
    published,
    sizes,
    summary,
)
from anabranch.report.collection import Collection
from anabranch.report.drawing import Figure
from anabranch.report.summary import Finding
from anabranch.report.tables import Table, duration


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its contents.

    Attributes:
        key: its name in links.
        title: its heading.
        parts: texts, tables and figures, in order.
    """

    key: str
    title: str
    parts: tuple[str | Table | Figure, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report.

    Attributes:
        title: its heading.
        origin: pairs of name and text for data, machine, duration and command.
        findings: the summary.
        sections: the rest.
    """

    title: str
    origin: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        parts = [part for section in self.sections for part in section.parts]
        return [part for part in parts if isinstance(part, Figure)]


def build(collection: Collection, command: str, note: str = "") -> Page:
    """Builds the page of a collection.

    Args:
        collection: the results.
        command: the command that makes this page.
        note: the user's note, such as the machine.
    """
    source = _source_line(collection)
    pictures = [
        *curves.figures(collection, source),
        *dots.figures(collection, source),
        *fronts.figures(collection, source),
    ]
    return Page(
        "What the observer of one path learns",
        tuple(_origin(collection, command, note)),
        (
            Finding("Conditions of these numbers", tuple(counter.findings(collection))),
            *summary.findings(collection),
            *_sized(collection),
        ),
        tuple(_sections(collection, pictures)),
    )


def _sized(collection: Collection) -> list[Finding]:
    """Returns the findings on a planned sweep's progress, if there is a planned sweep."""
    if not collection.planned:
        return []
    return [Finding("Progress of the sweep", tuple(sizes.findings(collection)))]


def _sections(collection: Collection, pictures: Sequence[Figure]) -> list[Section]:
    def of(begin: str) -> list[Figure]:
        return [each for each in pictures if each.key.startswith(begin)]

    third, fourth, fifth, sixth = comparison.tables(collection)
    further: tuple[Section, ...] = (
        Section("figure-6-section", "Attacks, as in Table 3 and Figure 6",
                (*summary.resolution(collection), *of("figure-6"), third)),
        Section("figure-7-section", "Settings, as in Tables 4 and 5 and Figure 7",
                (*of("figure-7"), fourth, fifth)),
        Section("table-6-section", "Loads that were really split, as in Table 6", (sixth,)),
    )  # fmt: skip
    if not collection.paper:
        further = (
            Section("open-section", "Open world",
                    (*summary.resolution(collection), *of("figure-open-world"),
                     beyond.open_world(collection))),
            Section("paper-section", "Comparison with the paper", (third, fourth, fifth, sixth)),
        )  # fmt: skip
    everything = [
        Section("reading", "How to read this", _reading()),
        Section("counter-section", "Unencrypted counter", (counter.table(collection),)),
        Section("sizes-section", "Effect of the size alone", (sizes.table(collection),)),
        *further,
        Section(
            "closed-section",
            "Every setting, every attack",
            (*of("figure-closed-world"), beyond.closed_world(collection)),
        ),
        Section(
            "observers-section",
            "Observers",
            (*of("figure-observers"), beyond.observers(collection)),
        ),
        Section(
            "shares-section",
            "Effect of the share that is seen",
            (*of("figure-shares"), beyond.shares(collection)),
        ),
        Section("protocols-section", "Evaluation protocols", (beyond.protocols(collection),)),
        *_costs(collection, of("figure-costs")),
        Section("overheads-section", "Cost of defences", (beyond.overheads(collection),)),
        Section("all-section", "All results", (beyond.everything(collection),)),
    ]
    return everything if collection.paper else _given(everything)


def _costs(collection: Collection, pictures: Sequence[Figure]) -> list[Section]:
    """Returns the section on recognition against cost; empty if there is nothing to compare."""
    found = costs.panels(collection)
    parts: tuple[str | Table | Figure, ...] = (costs.TIME, *pictures, *costs.tables(found))
    return [Section("costs-section", "Privacy against cost", parts)] if found else []


def _given(sections: list[Section]) -> list[Section]:
    """Returns the sections with contents, without tables that have no rows."""
    kept = []
    for section in sections:
        parts = [part for part in section.parts if not isinstance(part, Table) or part.rows]
        if parts:
            kept.append(replace(section, parts=tuple(parts)))
    return kept


def _reading() -> tuple[str, ...]:
    return (
        "RR, UR and WR are round robin, uniform random and weighted random. With WR each load "
        "draws the paths' probabilities from a Dirichlet distribution with parameter 1; WR:4 has "
        "parameter 4, which makes them more equal. WR 50p × 3: 3 paths; after each run of 50 "
        "packets a path is chosen again (with RR the next one, otherwise maybe the same). 100 ms: "
        "a run of this time. ~: random lengths with this mean. “Separate ends”: each direction has "
        "its own schedule; otherwise both share one, as in the paper's simulation. TrafficSliver: "
        "its batched weighted random, with probabilities for each load and runs of 50 to 70 "
        "packets. HyWF: one probability for each load, runs of 20 packets on average.",
        "A design describes the training, for instance “40 loads · R 2 · 20 epochs · seed 0”: 40 "
        "loads of each page, two re-splits of each. “Full” means every training load of every "
        "page. The design also lists unusual parameters of the attack; where there is no room, † "
        "means that there are some. “Restored”: the file of the result is lost, and its numbers "
        "come from a printed report. If one setting has results in several designs, all are shown.",
        "Open world: r-precision is TPR / (TPR + WPR + r × FPR) with r = 20. A wrong positive is a "
        "monitored page that was taken for another one. Recall is TPR; F1 is the harmonic mean of "
        "both. Closed world: accuracy is the share of loads whose page is recognised. A load of "
        "which the observer sees nothing counts as not recognised.",
        "Intervals are 95 %, by bootstrap over pages. The honest protocol tests on loads that were "
        "not used for training or for choosing a threshold; each training predicts a load once. In "
        "an open world there are two trainings, and rates of monitored loads are the means of "
        "both. The paper's protocol divides loads into sub-traces.",
    )


def _origin(collection: Collection, command: str, note: str) -> list[tuple[str, str]]:
    splits = _splitting(collection)
    rows = [("splitting", splits), ("data", _data(collection))]
    rows += [("division", "; ".join(_divisions(collection)))]
    rows.append(
        (
            "machine time",
            f"{duration(collection.elapsed('cpu_s'))} of processor time for {len(collection)} "
            f"results ({duration(collection.elapsed('wall_s'))} by the clock, one at a time)",
        )
    )
    rows += [("note", note)] if note else []
    rows.append(("made by", f"{command} (anabranch {__version__})"))
    if collection.paper or any(table.rows for table in comparison.tables(collection)):
        rows.append(("compared with", f"{published.name()}: {published.citation()}"))
    return rows


def _splitting(collection: Collection) -> str:
    recorded = sum(entry.setting.recorded is not None for entry in collection)
    text = (
        "simulated: the scheduler of `anabranch split` divides recorded loads over paths "
        "afterwards. Paths have no loss, and no delay unless a setting names it."
    )
    if not recorded:
        return text
    if recorded == len(collection):
        return "as recorded on the paths"
    return f"{text} {recorded} results are for traces that were split while they were recorded."


def _data(collection: Collection) -> str:
    digests = sorted({entry.result.data for entry in collection})
    return "; ".join(map(collection.data_name, digests))


def _divisions(collection: Collection) -> list[str]:
    pairs = sorted(
        {(each.spec.design.protocol, str(each.result.facts["division"])) for each in collection}
    )
    return [
        f"{protocol} protocol: {' or '.join(text for _, text in group)}"
        for protocol, group in groupby(pairs, key=lambda pair: pair[0])
    ]


def _source_line(collection: Collection) -> str:
    """Returns the source line that every figure has, as figures may be used without the page."""
    digests = sorted({entry.result.data for entry in collection})
    names = [collection.data_name(digest, short=True) for digest in digests]
    kind = "recorded" if all(each.setting.recorded for each in collection) else "simulated"
    return (
        f"{kind} splitting of {', '.join(names)}; {len(collection)} results, "
        f"{duration(collection.elapsed())} of processor time; anabranch {__version__}"
    )
