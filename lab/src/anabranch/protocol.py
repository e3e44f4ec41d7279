"""Division of loads into training, validation and test sets.

The protocol `honest` divides loads by run, and unmonitored loads also by page; a load is in one
set only. `paper` follows the CoMPS evaluation (the paper's section 4.1): each sub-trace is a
sample of its own, divided 9:1; sub-traces of at most ten packets are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch.metrics import UNMONITORED
from anabranch.observers import SettingError
from anabranch.traces import Traces
from anabranch.validate import TraceError

Ints: TypeAlias = NDArray[np.int64]
World: TypeAlias = Literal["closed", "open"]

PAPER_DROPS = 10
"""Maximum number of packets of a sub-trace that the paper's evaluation drops."""
PAPER_PARTS = 10
"""Number of parts in the paper's protocol; one part is the test set."""


@dataclass(frozen=True, slots=True)
class Design:
    """The protocol, and the pages and loads that it uses; None means all.

    Attributes:
        protocol: `honest` or `paper`.
        folds: number of folds in the paper's protocol, 1 to 10.
        world: `closed`: every page is monitored; `open`: some are not.
        pages: pages used, drawn at random.
        monitored: number of monitored pages among `pages` in an open world, drawn at random. None
            uses the data's marks, or half of the pages if all are marked as monitored.
        loads: training loads per page.
        validation_loads: validation loads per page, which choose epochs and thresholds.
        test_loads: test loads per page.
        test_run: run of the test set; None is the last run, or the last fifth of ten or more runs.
        validation_run: run of the validation set; None is the last of the other runs, or a fifth
            of ten or more runs.

    Raises:
        SettingError: if a setting is wrong.
    """

    protocol: Literal["honest", "paper"] = "honest"
    folds: int = 1
    world: World = "closed"
    pages: int | None = None
    monitored: int | None = None
    loads: int | None = None
    validation_loads: int | None = None
    test_loads: int | None = None
    test_run: int | None = None
    validation_run: int | None = None

    def __post_init__(self) -> None:
        if self.protocol not in ("honest", "paper"):
            raise SettingError(f"protocol: '{self.protocol}' is unknown: expected honest or paper")
        if not 1 <= self.folds <= PAPER_PARTS:
            raise SettingError(f"folds: {self.folds} is not from 1 to {PAPER_PARTS}")
        if self.world not in ("closed", "open"):
            raise SettingError(f"world: '{self.world}' is unknown: expected closed or open")
        if self.pages is not None and self.pages < 2:
            raise SettingError(f"pages: {self.pages} is too few: give at least 2")
        for name in ("monitored", "loads", "validation_loads", "test_loads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SettingError(f"{name}: {value} is too few: give at least 1")


@dataclass(frozen=True, slots=True)
class Fold:
    """Loads for one training, its validation and its test, as indices.

    Attributes:
        train, validation, test: int64, disjoint: no load is in two sets.

    Raises:
        SettingError: if a set is empty.
        AssertionError: if a load is in two sets, which is a bug.
    """

    train: Ints
    validation: Ints
    test: Ints

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if getattr(self, name).size == 0:
                raise SettingError(f"no load is left to {_PURPOSE[name]}: the {name} set is empty")
        together = np.concatenate([self.train, self.validation, self.test])
        assert np.unique(together).size == together.size, "a load is in two sets"


_PURPOSE = {
    "train": "train the attack",
    "validation": "choose epochs and thresholds",
    "test": "test the attack",
}


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages in use, and their roles.

    Attributes:
        monitored: int64, codes of the monitored pages.
        halves: codes of the unmonitored pages, in two halves: one is in training while the other
            is in the test. Both are empty in a closed world.
    """

    monitored: Ints
    halves: tuple[Ints, Ints]

    @property
    def unmonitored(self) -> Ints:
        """Codes of all unmonitored pages: both halves."""
        return np.concatenate(self.halves)

    def classes(self, traces: Traces) -> Ints:
        """Returns int64 (n,): the page of each load, or `UNMONITORED`."""
        inside = np.isin(traces.label, self.monitored)
        return np.where(inside, traces.label, UNMONITORED).astype(np.int64)


def choose_pages(traces: Traces, design: Design, seed: int = 0) -> Pages:
    """Draws the pages to use.

    Raises:
        SettingError: if there are too few.
    """
    chance = np.random.default_rng([seed, 0])
    chosen = traces.monitored if design.world == "closed" else slice(None)
    there = np.unique(traces.label[chosen]).astype(np.int64)
    wanted = there.size if design.pages is None else design.pages
    if wanted > there.size:
        raise SettingError(f"pages: {wanted} are asked for, but the data have only {there.size}")
    used = np.sort(_drawn(traces, there, wanted, design, chance))
    if design.world == "closed":
        _at_least(2, used, "pages: a closed world needs 2 or more")
        return Pages(used, (used[:0], used[:0]))
    monitored, rest = _divide_pages(traces, used, design, chance)
    _at_least(1, monitored, "monitored: an open world needs 1 monitored page or more")
    _at_least(4, rest, "monitored: an open world needs 4 unmonitored pages or more")
    rest = chance.permutation(rest)
    half = rest.size // 2
    return Pages(monitored, (rest[:half], rest[half:]))


def honest(traces: Traces, design: Design, pages: Pages, seed: int = 0) -> Iterator[Fold]:
    """Yields the folds of the honest protocol: one in a closed world, two in an open one.

    Loads are divided by the runs of monitored pages; with fewer than three runs, each page's loads
    are divided 3:1:1. In an open world one half of the unmonitored pages is for training and
    validation, and the other half for the test; in the second fold the halves are exchanged. Of
    the first half, a quarter of the pages, drawn at random, is for validation only, so that
    thresholds are chosen on pages that the attack has not learnt. If an unmonitored page has no
    load in the runs of its set, the set gets all of its loads, since no other set has the page.

    Raises:
        SettingError: if a set would be empty.
        TraceError: if a monitored page has loads to test but none to learn from.
    """
    sides = _sides(traces, design, pages, seed)
    _no_label_only_in_test(traces, sides, pages.monitored)
    draw = _Draw(traces, design, sides, pages.unmonitored, seed)
    monitored = [draw(side, pages.monitored) for side in range(3)]
    if not pages.unmonitored.size:
        yield Fold(*monitored)
        return
    for own, other in (pages.halves, pages.halves[::-1]):
        choosing = own[: max(1, own.size // 4)]
        learning = own[choosing.size :]
        extra = (learning, choosing, other)
        yield Fold(*(np.sort(np.r_[monitored[k], draw(k, extra[k])]) for k in range(3)))


def paper(classes: Ints, folds: int, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Yields training and test indices of samples, divided 9:1 within each class, `folds` times.

    Sub-traces of one load can be in both sets; the protocol exists to show the effect of this
    leak. The paper's program does not split loads of at most (paths x run length) packets; here
    they are split like all others (lab/README.md has their number).

    Raises:
        SettingError: if `folds` is not between 1 and 10, or there are too few samples for a test.
    """
    if not 1 <= folds <= PAPER_PARTS:
        raise SettingError(f"folds: {folds} is not from 1 to {PAPER_PARTS}")
    part = _parts(classes, np.random.default_rng([seed, 2]))
    for fold in range(folds):
        test = np.flatnonzero(part == fold)
        if not test.size:
            raise SettingError(
                f"folds: no sub-trace is left for test {fold}; only {classes.size} sub-traces "
                f"have more than {PAPER_DROPS} packets"
            )
        yield np.flatnonzero(part != fold), test


def refuse_unlearnt(names: Sequence[str], learnt: Ints, tested: Ints) -> None:
    """Refuses a page, or `UNMONITORED`, that is tested and was never learnt.

    Raises:
        TraceError: with the page's name.
    """
    lost = np.setdiff1d(tested, learnt)
    if lost.size:
        others = f", and {lost.size - 1} other labels too" if lost.size > 1 else ""
        name = "unmonitored" if lost[0] == UNMONITORED else names[lost[0]]
        problem = f"'{name}' is only in the test set{others}: the attack cannot learn it"
        raise TraceError(problem, column="label")


def loads_of(traces: Traces, design: Design, pages: Pages, seed: int = 0) -> Ints:
    """Returns int64: loads of the pages used, at most `design.loads` per page, of any run."""
    draw = _Draw(traces, design, np.zeros(len(traces), np.int8), pages.unmonitored, seed)
    return draw(0, np.r_[pages.monitored, pages.unmonitored])


def describe(traces: Traces, design: Design, pages: Pages) -> str:
    """Describes the division of loads in words."""
    runs = _runs(traces, design, pages)
    if runs is None:
        return "by load: of each page 3/5 train, 1/5 choose, 1/5 test (there are too few runs)"
    texts = [", ".join(map(str, side)) for side in runs]
    chooses = "chooses" if len(runs[1]) == 1 else "choose"
    tests = "tests" if len(runs[2]) == 1 else "test"
    return f"by run: {texts[0]} train, {texts[1]} {chooses}, {texts[2]} {tests}"


class _Draw:
    """A function that draws loads for one set: at most the design's number of loads per page.

    If a page in `unmonitored` has no load in the set's runs, it draws from all loads of the page.
    """

    def __init__(
        self,
        traces: Traces,
        design: Design,
        sides: NDArray[np.int8],
        unmonitored: Ints,
        seed: int,
    ) -> None:
        self.label, self.sides, self.unmonitored = traces.label, sides, unmonitored
        self.most = (design.loads, design.validation_loads, design.test_loads)
        # All pages use the same order, so that a page's loads do not depend on the other pages.
        self.order = np.random.default_rng([seed, 1]).permutation(len(traces))

    def __call__(self, side: int, pages: Ints) -> Ints:
        there = self._on(side) & np.isin(self.label, pages)
        order = self.order[there[self.order]]
        most = self.most[side]
        if most is not None:
            order = order[_rank_within(self.label[order]) < most]
        return np.sort(order)

    def _on(self, side: int) -> NDArray[np.bool_]:
        own: NDArray[np.bool_] = self.sides == side
        absent = np.setdiff1d(self.unmonitored, self.label[own])
        return own | np.isin(self.label, absent)


def _rank_within(codes: NDArray[np.int32]) -> Ints:
    """Returns int64 (n,): the number of earlier elements with the same code."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    first = np.searchsorted(ranked, ranked, side="left")
    ranks = np.empty(codes.size, np.int64)
    ranks[order] = np.arange(codes.size) - first
    return ranks


def _drawn(
    traces: Traces, there: Ints, wanted: int, design: Design, chance: np.random.Generator
) -> Ints:
    """Draws the pages to use, of both kinds if some of the data's pages are unmonitored.

    The number of monitored pages is the design's, or else in proportion to the data's pages.
    """
    inside = np.intersect1d(there, traces.label[traces.monitored])
    outside = np.setdiff1d(there, inside)
    if not outside.size or wanted == there.size:
        return chance.permutation(there)[:wanted]
    share = max(1, round(wanted * inside.size / there.size))
    monitored = share if design.monitored is None else design.monitored
    if monitored > inside.size:
        raise SettingError(
            f"monitored: {monitored} are asked for, but the data have only {inside.size}"
        )
    if wanted - monitored > outside.size:
        raise SettingError(
            f"pages: {wanted - monitored} unmonitored pages are asked for, but the data have "
            f"only {outside.size}"
        )
    parts = (inside, monitored), (outside, max(0, wanted - monitored))
    return np.concatenate([chance.permutation(pages)[:many] for pages, many in parts])


def _divide_pages(
    traces: Traces, used: Ints, design: Design, chance: np.random.Generator
) -> tuple[Ints, Ints]:
    """Returns the monitored pages, and the others."""
    marked = np.unique(traces.label[traces.monitored]).astype(np.int64)
    own = np.intersect1d(used, marked)
    others = np.setdiff1d(used, marked)
    wanted = design.monitored
    if wanted is None:
        wanted = own.size if others.size else used.size // 2
    if wanted > own.size:
        raise SettingError(f"monitored: {wanted} are asked for, but the data have only {own.size}")
    monitored = np.sort(chance.permutation(own)[:wanted])
    # If the data have unmonitored pages, surplus monitored pages do not count as unmonitored,
    # because they were chosen and recorded in another way.
    return monitored, others if others.size else np.setdiff1d(own, monitored)


def _at_least(number: int, pages: Ints, problem: str) -> None:
    if pages.size < number:
        raise SettingError(f"{problem}; there are {pages.size}")


def _sides(traces: Traces, design: Design, pages: Pages, seed: int) -> NDArray[np.int8]:
    """Returns the set of each load: 0 training, 1 validation, 2 test; -1 for other runs."""
    runs = _runs(traces, design, pages)
    if runs is not None:
        sides = np.full(len(traces), -1, np.int8)
        for side, own in enumerate(runs):
            sides[np.isin(traces.run, own)] = side
        return sides
    part = _parts(traces.label.astype(np.int64), np.random.default_rng([seed, 3]), 5)
    # A page with two loads has one in training, one in the test and none in validation.
    two = np.bincount(traces.label, minlength=len(traces.names))[traces.label] == 2
    return np.array([2, 1, 0, 0, 0], np.int8)[np.where(two, 2 * part, part)]


def _runs(
    traces: Traces, design: Design, pages: Pages
) -> tuple[list[int], list[int], list[int]] | None:
    """Returns the monitored pages' runs for training, validation and test; None if too few."""
    runs = [int(run) for run in np.unique(traces.run[np.isin(traces.label, pages.monitored)])]
    if len(runs) < 3:
        if design.test_run is not None or design.validation_run is not None:
            raise SettingError(
                f"test_run, validation_run: they need 3 runs, but the data have only {runs}"
            )
        return None
    part = max(1, len(runs) // 5)
    test = runs[-part:] if design.test_run is None else [design.test_run]
    rest = [run for run in runs if run not in test]
    validation = rest[-part:] if design.validation_run is None else [design.validation_run]
    for name, chosen in (("test_run", test), ("validation_run", validation)):
        if chosen[0] not in runs:
            raise SettingError(f"{name}: the data have no run {chosen[0]}: choose one of {runs}")
    if validation[0] in test:
        raise SettingError(f"validation_run: run {validation[0]} is already the test run")
    return [run for run in rest if run not in validation], validation, test


def _no_label_only_in_test(traces: Traces, sides: NDArray[np.int8], pages: Ints) -> None:
    learnt, tested = (traces.label[sides == side].astype(np.int64) for side in (0, 2))
    refuse_unlearnt(traces.names, learnt, np.intersect1d(tested, pages))


def _parts(classes: Ints, chance: np.random.Generator, parts: int = PAPER_PARTS) -> Ints:
    """Returns int64 (n,): the random part, 0 to `parts` - 1, of each element.

    Within a class, the sizes of the parts differ by at most one.
    """
    order = chance.permutation(classes.size)
    ranks = np.empty(classes.size, np.int64)
    ranks[order] = _rank_within(classes[order].astype(np.int32))
    return ranks % parts
