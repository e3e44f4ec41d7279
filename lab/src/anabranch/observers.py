"""Observers of a split load: the paths they watch, and the packets they see there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch import registry
from anabranch.attacks import PathSequences
from anabranch.traces import Traces
from anabranch.validate import TraceError

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Paths: TypeAlias = NDArray[np.int16]

_STREAM = 0x6F627376
"""Part of the seed of an observer's draws, which makes them independent of all other draws."""


class SettingError(ValueError):
    """Error of a setting of an evaluation that cannot be used; the message names it."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Returns a one-line message about an unknown `name`, with the nearest or all known ones."""
    known = list(known)
    near = get_close_matches(name, known, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
    return f"unknown {kind} '{name}': {hint}"


@dataclass(frozen=True, slots=True)
class View:
    """An observer's view of each of `n` loads.

    Attributes:
        traces: the packets seen, with times since the start of the load; an unseen load is empty.
        watched: bool (n, paths), the paths that the observer watches.
        share: float64 (n,), the part of the load's packets that is seen.
        counter: whether the observer reads the counters of `traces`.
        usual: float64 (n,), estimate of the watched path's share of packets, from earlier loads of
            the session; None if the observer does not know earlier loads.
    """

    traces: Traces
    watched: Bools
    share: Floats
    counter: bool = False
    usual: Floats | None = None

    @property
    def sequences(self) -> PathSequences:
        """The packets in the form that attacks take, with the path of each."""
        seen = self.traces
        paths = np.full(seen.times.size, -1, np.int16) if seen.paths is None else seen.paths
        counts = carried_forward(seen) if self.counter else None
        if self.usual is not None:
            counts = _estimated(seen, self.usual)
        return PathSequences(seen.times, seen.sizes, seen.offsets, paths, counts=counts)

    @property
    def path(self) -> Paths:
        """int16 (n,): the watched path, or -1 if there are several, or nothing is split."""
        single = self.watched.sum(axis=1) == 1
        split = self.traces.paths is not None
        return np.where(single & split, self.watched.argmax(axis=1), -1).astype(np.int16)


@dataclass(frozen=True, slots=True)
class Observer:
    """An observer on some of the paths.

    Attributes:
        rule: the paths that it watches. `random`: one path, drawn for each load. `largest`: for
            each load the path with most of its packets (the first on ties). `any`: one independent
            observer on each path; a load is recognised if one of them names its page (CoMPS,
            section 3.2). `merged`: several paths, whose packets are merged by time.
        paths: number of paths that `merged` watches, drawn for each load; None is all.
        counter: whether packets have a cleartext counter, as in WireGuard and Mosh, but not in
            QUIC (RFC 9001, 5.4). It reveals with each packet seen how many packets all paths have
            carried in its direction since the load began.
        earlier: whether the observer knows the path's share of packets in each earlier load of a
            session, because it recognised or made those loads. From these shares it estimates the
            current share, and at each packet seen the number of packets on all paths.
    """

    rule: Literal["random", "largest", "any", "merged"] = "random"
    paths: int | None = None
    counter: bool = False
    earlier: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses `random`, `largest`, `any`, `merged` (all paths) or `merged:K`.

        Each may be followed by `+counter`, the first two by `+earlier`.

        Raises:
            SettingError: if it is none of these.
        """
        place, plus, extra = text.partition("+")
        rule, colon, number = place.partition(":")
        counter = extra == "counter"
        if extra == "earlier" and rule in ("random", "largest") and not colon:
            return cls(rule, earlier=True)  # type: ignore[arg-type]  # not narrowed by `in`
        if counter == bool(plus):
            if rule in ("random", "largest", "any") and not colon:
                return cls(rule, counter=counter)  # type: ignore[arg-type]  # not narrowed by `in`
            if rule == "merged" and not colon:
                return cls("merged", counter=counter)
            if rule == "merged" and number.isdecimal() and int(number) > 0:
                return cls("merged", int(number), counter)
        earlier = " and ".join(row.syntax for row in registry.OBSERVERS if row.earlier)
        raise SettingError(
            f"observer '{text}' is unknown: expected {registry.observer_rules()}; each can have "
            f"+counter, and {earlier} +earlier"
        )

    def __str__(self) -> str:
        rule = self.rule if self.paths is None else f"{self.rule}:{self.paths}"
        known = {"counter": self.counter, "earlier": self.earlier}
        return rule + "".join(f"+{name}" for name, there in known.items() if there)

    def see(
        self,
        traces: Traces,
        *,
        seed: int = 0,
        replica: int = 0,
        session: int | None = None,
        path: int | None = None,
    ) -> View:
        """Returns the view of each load; loads that are not split are seen completely.

        With `any`, the view is that of the observer on `path`.

        The drawn paths depend on `seed`, `replica` and the load's run and number, not on other
        loads. With `+earlier`, the view also depends on earlier loads of the same session in
        `traces`. `session` is the number of loads in a session; loads are numbered consecutively
        in a run.

        Raises:
            SettingError: if `merged` needs more paths than there are, or `session` is missing for
                `+earlier`.
            TraceError: if only some loads are split.
        """
        if self.earlier and session is None:
            raise SettingError(
                f"observer '{self}': +earlier needs probabilities that several loads share: give "
                "draw=session:N"
            )
        if self.counter:
            traces = traces.counted()
        if traces.paths is None:
            if (self.paths or 1) > 1:
                raise SettingError(
                    f"observer '{self}': nothing is split, so there is only one path"
                )
            watched = np.ones((len(traces), 1), np.bool_)
            share = (traces.lengths > 0).astype(np.float64)
            return View(traces, watched, share, self.counter)
        count = path_count(traces)
        shares = traces.shares(count)
        if self.rule == "any":
            place = np.full((len(traces), 1), 0 if path is None else path, np.int64)
            watched = _marked(place, count)
        else:
            watched = self._watched(traces, shares, seed, replica)
        seen = _only(traces, watched)
        share = seen.lengths / np.maximum(traces.lengths, 1)
        usual = None
        if self.earlier and session is not None:
            usual = _usual(traces, shares, session)[np.arange(len(traces)), watched.argmax(axis=1)]
        return View(seen, watched, share, self.counter, usual)

    def _watched(self, traces: Traces, shares: Floats, seed: int, replica: int) -> Bools:
        loads, count = shares.shape
        if self.rule == "largest":
            return _marked(shares.argmax(axis=1)[:, None], count)
        wanted = 1 if self.rule == "random" else (self.paths or count)
        if wanted > count:
            raise SettingError(f"observer '{self}': there are only {count} paths")
        if wanted == count:
            return np.ones((loads, count), np.bool_)
        keys = zip(traces.run.tolist(), traces.load.tolist(), strict=True)
        drawn = [_draw(count, wanted, (seed, replica, run, load)) for run, load in keys]
        return _marked(np.array(drawn, np.int64).reshape(loads, wanted), count)


def carried_forward(traces: Traces) -> NDArray[np.int64]:
    """Returns int64 (packets,): the number of packets, on all paths, that each packet reveals.

    This number is the greatest counter seen so far in the packet's load and direction. A packet
    that arrives out of order, or has no counter, reveals nothing new.
    """
    assert traces.counters is not None, "the traces were counted"
    visible = np.zeros(traces.times.size, np.int64)
    for way in (traces.sizes > 0, traces.sizes < 0):
        floor = traces.owners[way] * (int(traces.counters.max(initial=0)) + 1)
        visible[way] = np.maximum.accumulate(floor + traces.counters[way]) - floor
    return visible


def _usual(traces: Traces, shares: Floats, session: int) -> Floats:
    """Returns float64 (n, paths): mean share of each path in earlier loads of a load's session.

    The prior is one additional load with an even share for every path.
    """
    usual = np.empty_like(shares)
    sums: dict[tuple[int, int], tuple[Floats, int]] = {}
    for k in np.lexsort((traces.load, traces.run)):
        key = (int(traces.run[k]), int(traces.load[k]) // session)
        even = np.full(shares.shape[1], 1 / shares.shape[1])
        total, loads = sums.get(key, (even, 1))
        usual[k] = total / loads
        if traces.lengths[k]:
            sums[key] = (total + shares[k], loads + 1)
    return usual


def _estimated(seen: Traces, usual: Floats) -> NDArray[np.int64]:
    """Returns int64 (packets,): estimated number of packets so far on all paths.

    Only packets of the same load and direction are counted. `usual` (n,) is the probable share of
    the path that the observer sees.
    """
    counts = np.zeros(seen.times.size, np.int64)
    for way in (seen.sizes > 0, seen.sizes < 0):
        owners = seen.owners[way]
        first = np.searchsorted(owners, owners, side="left")
        places = np.arange(owners.size) - first + 1
        counts[way] = np.rint(places / usual[owners])
    return counts


def path_count(traces: Traces) -> int:
    """Returns the number of paths, by their names or the greatest path number; 1 if unsplit."""
    if traces.paths is None:
        return 1
    if traces.paths.size and traces.paths.min() < 0:
        raise TraceError("some packets have a path and others have none", column="path")
    greatest = int(traces.paths.max(initial=0))
    return max(len(traces.facts.paths), greatest + 1)


def _draw(count: int, wanted: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Draws `wanted` of `count` paths without repetition."""
    entropy = [_STREAM, *(number % 2**64 for number in key)]
    order = np.random.default_rng(entropy).permutation(count)
    return order[:wanted]


def _marked(places: NDArray[np.int64], count: int) -> Bools:
    """Returns marks, bool (n, count): True at the `places` (n, k) of each row."""
    marks = np.zeros((places.shape[0], count), np.bool_)
    np.put_along_axis(marks, places, True, axis=1)
    return marks


def _only(traces: Traces, watched: Bools) -> Traces:
    """Returns only the packets on the paths `watched` (n, paths); all loads stay, even empty."""
    assert traces.paths is not None  # for mypy: `see` has checked
    return traces.only(watched[traces.owners, traces.paths])
