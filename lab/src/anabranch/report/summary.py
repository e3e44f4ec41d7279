"""The findings in plain words: sentences that are generated from numbers, or note missing ones.

A setting counts as below a limit only if the whole intervals of all its results are below it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.metrics import resolution as resolved
from anabranch.report import beyond, comparison, costs, published
from anabranch.report.collection import WHOLE, Collection, Entry
from anabranch.report.comparison import UNDEFENDED, WR, WR_TIME
from anabranch.report.setting import Setting, attack, observer
from anabranch.report.tables import inline, listed, percent, plural, whole

Training: TypeAlias = tuple[bool, int | None, str] | None

LIMITS = (0.1, 0.2, 0.5)
"""Limits of accuracy that settings are compared with."""
KEY_ATTACKS = ("rf", "k-fp")
"""Attacks of the summary: the strongest published one, and a fast one that runs everywhere. Tables
and figures show the others.
"""
FLOOR = 0.95
"""Minimum accuracy without a defence; attacks below it are too poorly trained to judge defences.
"""


_THRESHOLDS = (
    "Each training chooses its threshold on a quarter of the unmonitored pages, which are not in "
    "its test. The intervals do not contain this choice: another quarter may change recall and "
    "r-precision together. The curves show both for all thresholds."
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Findings on one topic, as sentences.

    Attributes:
        topic: their subject.
        sentences: at least one.
    """

    topic: str
    sentences: tuple[str, ...]


def findings(collection: Collection) -> list[Finding]:
    """Returns the summary, without topics for which there are no measurements."""
    found = {
        "Contents of this page": [_coverage(collection)],
        "Do the attacks work?": [*_floor(collection), *_outdone(collection)],
        "Which settings protect": [
            *(text for name in KEY_ATTACKS for text in _limits(collection, name)),
            *_strongest(collection),
        ],
        "Effect of reduced training": _reduced(collection),
        "Observers": _observers(collection),
        "Effect of the share that is seen": _shares(collection),
        "Comparison with the paper": _beside_published(collection),
        "Evaluation protocol": _protocols(collection),
        "Cost of defences": _overheads(collection),
        "Privacy against cost": costs.findings(collection),
        "Limits of these numbers": [*resolution(collection), _caution(collection)],
    }
    listed = ((topic, tuple(sentences)) for topic, sentences in found.items())
    return [Finding(topic, sentences) for topic, sentences in listed if sentences]


def resolution(collection: Collection) -> Iterator[str]:
    """Yields sentences on how finely false-positive rates are resolved (`metrics.resolution`).

    Results by one protocol with the same number of unmonitored pages share a text. It has the
    numbers of the result with the fewest unmonitored test loads, and the maximum number of these
    loads. For the honest protocol, the text ends with a statement that the intervals do not include
    the choice of thresholds.
    """
    groups: dict[tuple[str, int], list[Entry]] = {}
    for entry in collection.select(world="open"):
        pages = entry.result.metrics["unmonitored_pages"]
        groups.setdefault((entry.spec.design.protocol, pages), []).append(entry)
    for (protocol, _), entries in sorted(groups.items(), key=lambda group: _loads(group[1])[0]):
        fewest = min(entries, key=lambda entry: _loads([entry]))
        honest = protocol == "honest"
        text = resolved(fewest.result.metrics, unseen=honest, most=_loads(entries)[-1])
        chosen = f" {_THRESHOLDS}" if honest else ""
        yield f"With the {protocol} protocol: {text}{chosen}"


def _loads(entries: list[Entry]) -> list[int]:
    """Returns the numbers of unmonitored test loads, in order."""
    return sorted(entry.result.metrics["unmonitored_predictions"] for entry in entries)


def _coverage(collection: Collection) -> str:
    split = sum(setting.splits for setting in collection.settings)
    held = (
        f"This page contains {plural(len(collection), 'evaluation')}: "
        f"{plural(len(collection.settings), 'setting')}, {split} of them split, and "
        f"{plural(len(collection.attacks), 'attack')}."
    )
    if not collection.paper:
        return held
    there, all_points = comparison.coverage(collection)
    return (
        f"{held} The paper gives {all_points} "
        f"numbers for its splitting. For {there} of them we have a result with the honest "
        "protocol. The others, and every other place without a result, are marked “not run”."
    )


def _floor(collection: Collection) -> Iterator[str]:
    for name in ("rf", "df"):
        entries = beyond.closed(collection, UNDEFENDED, name)
        complete = [entry for entry in entries if entry.full]
        if not entries:
            if not collection.paper:
                continue
            yield (
                f"{attack(name)} was not run without a defence in a closed world. So nothing here "
                "shows that its training is good enough to evaluate defences."
            )
        elif not complete:
            yield (
                f"Without a defence, {attack(name)} recognises {_said(_best(entries))}. It was "
                f"not run with full training, with which a working attack reaches {whole(FLOOR)}."
            )
        else:
            best = _best(complete)
            met = "reaches" if best.accuracy >= FLOOR else "does NOT reach"
            yield (
                f"Without a defence, {attack(name)} recognises {_said(best)}. It {met} the "
                f"{whole(FLOOR)} that we expect of a working attack."
            )
    below = [entry for entry in _undefended(collection) if entry.accuracy < FLOOR]
    if below:
        words = "; ".join(f"{attack(entry.attack)} {_said(entry)}" for entry in below)
        yield (
            "With the training of most of their results on this page, some attacks recognise less "
            f"than {whole(FLOOR)} of undefended loads: {words}. Use the numbers of these attacks "
            "to compare settings. With more training these attacks may recognise more."
        )


def _undefended(collection: Collection) -> Iterator[Entry]:
    """Yields, for each attack, its undefended results with the training that `_usual` returns."""
    for name in collection.attacks:
        usual = _usual(collection, name)
        found = beyond.closed(collection, UNDEFENDED, name)
        yield from (entry for entry in found if _training(entry) == usual)


def _usual(collection: Collection, name: str) -> Training:
    """Returns the most frequent training among an attack's results on defended settings."""
    found = collection.select(attack=name, world="closed", protocol="honest")
    trained = [_training(entry) for entry in found if entry.setting != UNDEFENDED]
    return max(dict.fromkeys(trained), key=trained.count, default=None)


def _training(entry: Entry) -> Training:
    """Returns a key that results share if they differ only in setting, re-splits and seed."""
    parameters = json.dumps(dict(entry.spec.attack.parameters), sort_keys=True)
    return entry.full, entry.spec.design.loads, parameters


def _outdone(collection: Collection) -> Iterator[str]:
    """Yields the settings on which k-FP recognises more than RF.

    RF leads in published comparisons (RF, USENIX Security 2023).
    """
    pairs = []
    for setting in collection.settings:
        strong, quick = (beyond.closed(collection, setting, name) for name in KEY_ATTACKS)
        if setting != UNDEFENDED and strong and quick:
            pairs.append((setting, _best(strong).accuracy < _best(quick).accuracy))
    worse = [str(setting) for setting, outdone in pairs if outdone]
    if worse:
        yield (
            f"k-FP recognises more than RF on {len(worse)} of "
            f"{plural(len(pairs), 'defended setting')} on which both were run "
            f"({listed(worse, 6)}). On these settings RF, as it was trained, is not the "
            "strongest attack."
        )


def _limits(collection: Collection, name: str) -> Iterator[str]:
    rows = [each for each in beyond.settings(collection) if each != UNDEFENDED]
    found = {setting: beyond.closed(collection, setting, name) for setting in rows}
    best = {setting: _best(entries) for setting, entries in found.items() if entries}
    if not best:
        if collection.paper:
            yield f"{attack(name)} was not run on any defended setting in a closed world."
        return
    parts = []
    for limit in LIMITS:
        below = [setting for setting in best if max(map(_high, found[setting])) < limit]
        words = f"{len(below)} ({listed(list(map(str, below)), 6)})" if below else "none"
        parts.append(f"below {whole(limit)}: {words}")
    reduced = sum(not entry.full for entry in best.values())
    weak = f" Measured with reduced training only: {plural(reduced, 'setting')}." if reduced else ""
    ordered = sorted(best.values(), key=lambda entry: entry.accuracy)
    ends = f"Lowest: {ordered[0].setting}, {_said(ordered[0])}."
    if len(ordered) > 1:
        ends += f" Highest: {ordered[-1].setting}, {_said(ordered[-1])}."
    unknown = len(rows) - len(best)
    yield (
        f"{attack(name)}, {observer(collection.rule)}: {len(best)} of {len(rows)} defended "
        f"settings measured{f', {unknown} not run' if unknown else ''}. Settings whose 95 % "
        f"interval is completely {'; '.join(parts)}.{weak} {ends}"
    )


def _strongest(collection: Collection) -> Iterator[str]:
    """Yields a sentence for each setting: how many loads the best attack recognises."""
    names = collection.attacks
    rows, held = 0, []
    for setting in beyond.settings(collection):
        by_attack = [beyond.closed(collection, setting, name) for name in names]
        found = [entry for entries in by_attack for entry in entries]
        attacks = sum(map(bool, by_attack))
        if setting == UNDEFENDED or attacks < 2:
            continue
        rows += 1
        if max(map(_high, found)) < LIMITS[1]:
            best = _best(found)
            weak = "" if best.full else ", with reduced training"
            strongest = f"strongest {attack(best.attack)}{weak}"
            held.append(f"{setting} ({attacks} attacks, {strongest})")
    if rows:
        yield (
            f"{plural(rows, 'defended setting')} were tested with two or more attacks. On "
            f"{len(held)} of these settings the 95 % interval of the strongest attack is "
            f"completely below {whole(LIMITS[1])}{f': {listed(held)}' if held else ''}. Other "
            "attacks, or a full training, may recognise more."
        )


def _reduced(collection: Collection) -> Iterator[str]:
    """Yields the accuracy that an attacker loses by a reduced design, where both designs exist."""
    gaps = []
    for setting in collection.settings:
        for name in collection.attacks:
            entries = beyond.closed(collection, setting, name)
            usual = _usual(collection, name)
            more = [entry for entry in entries if entry.full]
            less = [entry for entry in entries if not entry.full and _training(entry) == usual]
            if more and less:
                both = " instead of ".join(percent(_best(each).accuracy) for each in (less, more))
                gaps.append(f"{both} ({setting}, {attack(name)})")
    if gaps:
        yield (
            "Some settings were run with reduced and with full training. On these settings "
            "the attack recognises, with reduced training instead of full training: "
            f"{listed(gaps)}. For other settings this difference is not known."
        )
    elif any(not entry.full for entry in collection):
        yield (
            "In a reduced design an attack is trained on fewer loads. So the attack is weaker, and "
            "the defence looks better than it is. No setting was run with reduced and with full "
            "training, so the size of this effect is not known here."
        )


def _observers(collection: Collection) -> Iterator[str]:
    for setting, name in beyond.watched_pairs(collection):
        if setting not in (WR, WR_TIME) or name not in KEY_ATTACKS:
            continue
        found = collection.select(setting, name, world="closed", protocol="honest")
        designs = [entry.short for entry in found]
        # Only results of the most common design count, because designs cause differences too.
        common = max(dict.fromkeys(designs), key=designs.count)
        parts = {
            entry.observer: f"{observer(entry.observer)} {inline(entry.estimate('accuracy'))}"
            for entry in found
            if entry.short == common
        }
        words = "; ".join(parts[rule] for rule in beyond.watched(collection) if rule in parts)
        if len(parts) > 1:
            yield f"{attack(name)}, {setting} [{common}]: {words}."


def _shares(collection: Collection) -> Iterator[str]:
    for setting in (WR, WR_TIME):
        for name in KEY_ATTACKS:
            found = beyond.closed(collection, setting, name)
            if not found:
                continue
            best = _best(found)
            parts = best.result.metrics["by_share"]
            if len(parts) > 1:
                first, last = parts[0], parts[-1]
                seen = [whole(part["mean_share"]) for part in (first, last)]
                yield (
                    f"{attack(name)}, {setting} [{best.short}]: the observer sees a different "
                    f"share of the packets of each load. Of the loads with the smallest shares "
                    f"({seen[0]} of the packets on average) the attack recognises "
                    f"{inline(first['accuracy'])}; of the loads with the largest shares "
                    f"({seen[1]}), {inline(last['accuracy'])}."
                )


def _beside_published(collection: Collection) -> Iterator[str]:
    for setting in (WR, WR_TIME):
        point = published.found("df", setting)
        if point is None:
            continue
        names = [each for each in ("df", *KEY_ATTACKS)
                 if collection.paper or collection.like(setting, each, "honest")]  # fmt: skip
        if not names:
            continue
        parts = [_open(collection, setting, name) for name in names]
        yield (
            f"Open world, {setting}: in the paper, DF has r-precision "
            f"{percent(point.r_precision)} and recall {percent(point.recall)}. Here "
            f"{'; '.join(parts)}. The data differ: compare the order of settings, not the values."
        )


def _open(collection: Collection, setting: Setting, name: str) -> str:
    """Describes an attack's results on a setting, next to its undefended result.

    An attack without a good undefended result proves nothing about splits.
    """
    split, whole = (
        [
            f"r-precision {inline(entry.estimate('r_precision'))}, recall "
            f"{inline(entry.estimate('recall'))} [{entry.short}]"
            for entry in collection.like(each, name, "honest")
        ]
        for each in (setting, UNDEFENDED)
    )
    before = f" (undefended: {' or '.join(whole) or 'not run'})" if split else ""
    return f"{attack(name)} {' or '.join(split) or 'not run'}{before}"


def _protocols(collection: Collection) -> Iterator[str]:
    """Yields results by both protocols, compared only if their designs are equal."""
    for setting, name, world in beyond.both_protocols(collection):
        if world != "closed" or setting not in (UNDEFENDED, WR, WR_TIME):
            continue
        if name not in KEY_ATTACKS:
            continue
        honest = {each.short: each for each in beyond.closed(collection, setting, name)}
        for entry in collection.select(setting, name, world=world, protocol="paper"):
            other = honest.get(entry.short)
            if other is None:
                yield (
                    f"{attack(name)}, {setting}, has a result with the paper's protocol "
                    f"({_said(entry)}). In this design it has no result with the honest protocol."
                )
                continue
            yield (
                f"{attack(name)}, {setting} [{entry.short}]: "
                f"{inline(other.estimate('accuracy'))} with the honest protocol, "
                f"{inline(entry.estimate('accuracy'))} with the paper's."
            )


def _overheads(collection: Collection) -> Iterator[str]:
    seen = set()
    for entry in collection:
        for fold in entry.result.facts["folds"]:
            cost, padding = fold["overhead"], (entry.setting.defence, entry.setting.path_defence)
            if cost is not None and padding not in seen:
                seen.add(padding)
                yield (
                    f"{entry.setting} adds {percent(cost['bandwidth'])} bytes and "
                    f"{percent(cost['time'])} time to the test loads (table “Cost of defences”)."
                )


def _caution(collection: Collection) -> str:
    seeds = {entry.spec.seed for entry in collection}
    other = "compare the seeds" if len(seeds) > 1 else f"all results have seed {min(seeds)}"
    return (
        "An interval covers other pages of the same kind. It does not cover other networks, or "
        f"another training ({other}). Each interval has a confidence of 95 %; of many "
        "intervals, some do not contain the true value. The lowest of many numbers is "
        "partly low by chance."
    )


def _best(entries: list[Entry]) -> Entry:
    """Returns the result with the highest accuracy, which bounds the safety of a setting."""
    return max(entries, key=lambda entry: (entry.accuracy, entry.full))


def _high(entry: Entry) -> float:
    """Returns the upper end of the result's interval; 1 if there is no interval."""
    high = entry.estimate("accuracy")["high"]
    return 1.0 if high is None else high


def _said(entry: Entry) -> str:
    seen = "" if entry.observer in (WHOLE, "random") else f", {observer(entry.observer)}"
    return f"{inline(entry.estimate('accuracy'))} of the loads [{entry.short}{seen}]"
