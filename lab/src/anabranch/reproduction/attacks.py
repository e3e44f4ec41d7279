"""Website fingerprinting: the tables of section 5 of the CoMPS paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.report.setting import attack as attack_name
from anabranch.report.tables import inline
from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.found import ALIKE, FAILS, HOLDS, MISSING, OPEN, Found

_FULLEST = "largest"
# : The systems of `lab/results/systems.toml`, by schedule and mode.
_SYSTEMS = {
    (None, "together"): "not split",
    ("batched", "independent"): "TrafficSliver",
    ("hywf", "independent"): "HyWF",
    ("weighted", "follow"): "CoMPS",
    ("uniform", "follow"): "MIMIQ",
    ("weighted:4", "follow"): "ours without a far end",
    ("uniform", "independent"): "ours with a far end",
}
_SPLIT = ("schedule", "every", "paths", "defence")


def lower(
    data: Data,
    attack: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    metric: str = "recall",
) -> Found:
    """Judges whether an attack is less successful on `after` than on `before`, in the open world.

    Args:
        data: has `fingerprinting.jsonl`.
        attack: name of the attack.
        before: schedule, run length, paths and padding, as in `Spec`.
        after: the same settings of the split that should hide more.
        metric: the metric, compared by whole intervals.
    """
    first, second = (_open_world(data, attack, each) for each in (before, after))
    more, less = first["metrics"][metric], second["metrics"][metric]
    verdict = OPEN
    if less["high"] < more["low"]:
        verdict = HOLDS
    elif less["low"] > more["high"]:
        verdict = FAILS
    return Found(
        f"recall {_inline(first, 'recall')} to {_inline(second, 'recall')}; r-precision "
        f"{_inline(first, 'r_precision')} to {_inline(second, 'r_precision')}",
        verdict,
        "the intervals overlap" if verdict == OPEN else "",
        tuple(_inline(each, "r_precision") for each in (first, second)),
    )


def level(data: Data, attack: str, at_least: float, protocol: str = "honest") -> Found:
    """Judges whether an attack's recall on undefended loads is at least `at_least`.

    Args:
        data: has `fingerprinting.jsonl`.
        attack: name of the attack.
        at_least: the bound.
        protocol: `honest` or `paper`.
    """
    found = _open_world(data, attack, {}, protocol)
    text = f"recall {_inline(found, 'recall')}, r-precision {_inline(found, 'r_precision')}"
    return _reached(found, "recall", at_least, text, _inline(found, "r_precision"))


def closed(data: Data, attack: str, at_least: float) -> Found:
    """Judges whether an attack recognises `at_least` of undefended loads in a closed world.

    The result used is the one with all loads and the published inputs.

    Args:
        data: has `fingerprinting.jsonl`.
        attack: name of the attack.
        at_least: the bound.
    """
    for each in data.results("fingerprinting.jsonl"):
        spec = each["spec"]
        own = (spec["attack"], spec["world"], spec["protocol"], spec["schedule"], spec["loads"])
        if own == (attack, "closed", "honest", None, None):
            text = f"{_inline(each, 'accuracy')} of loads"
            return _reached(each, "accuracy", at_least, text, _inline(each, "accuracy"))
    raise LookupError(f"{attack}: no result of undefended loads in a closed world")


def _reached(result: Row, metric: str, at_least: float, text: str, quote: str) -> Found:
    found = result["metrics"][metric]
    verdict = OPEN
    if found["low"] >= at_least:
        verdict = HOLDS
    elif found["high"] < at_least:
        verdict = FAILS
    why = "the interval contains the bound" if verdict == OPEN else ""
    if result["facts"].get("restored"):
        earlier = "the number is from an earlier version of the results page"
        why = "; ".join(filter(None, (why, earlier)))
    return Found(text, verdict, why, (quote,))


def split(data: Data, attack: str, protocol: str) -> Found:
    """Compares an attack's recall on loads that were really split with that on undefended ones.

    Args:
        data: has `page-loads.jsonl`.
        attack: name of the attack.
        protocol: `honest` or `paper`.
    """
    found: dict[bool, Row] = {}
    for each in data.results("page-loads.jsonl"):
        spec, facts = each["spec"], each["facts"]
        same = (spec["attack"], spec["protocol"], spec["world"]) == (attack, protocol, "open")
        if same and spec["observer"] == "random":
            found[facts["recorded_split"] is not None] = each
    if True not in found:
        return Found("", MISSING, f"{attack_name(attack)} has not been run by this protocol")
    text = f"recall {_inline(found[True], 'recall')}, r-precision "
    text += _inline(found[True], "r_precision")
    quotes = (_inline(found[True], "recall"), _inline(found[True], "r_precision"))
    if False not in found:
        return Found(text, OPEN, "undefended loads have not been tested by this protocol", quotes)
    less, more = (found[each]["metrics"]["recall"] for each in (True, False))
    text += f"; undefended: recall {_inline(found[False], 'recall')}"
    verdict = HOLDS if less["high"] < more["low"] else FAILS if less["low"] > more["high"] else OPEN
    return Found(text, verdict, "the intervals overlap" if verdict == OPEN else "", quotes)


def systems(data: Data, attack: str) -> Found:
    """Returns the accuracy of an attack on the fullest path of each system.

    Args:
        data: has `systems.jsonl`.
        attack: name of the attack.
    """
    found = {
        (each["spec"]["schedule"], each["spec"]["mode"]): _inline(each, "accuracy")
        for each in data.results("systems.jsonl")
        if each["spec"]["attack"] == attack
        and each["spec"]["observer"] == (_FULLEST if each["spec"]["schedule"] else "any")
    }
    text = f"{attack_name(attack)}: "
    text += ", ".join(f"{name} {found[setting]}" for setting, name in _SYSTEMS.items())
    return Found(text, OPEN, "the paper has no numbers to compare with", tuple(found.values()))


def time_or_packets(data: Data, attack: str, every: tuple[str, str] = ("50p", "100ms")) -> Found:
    """Judges whether runs by time protect at least as well as runs of packets.

    Args:
        data: has `fingerprinting.jsonl`.
        attack: name of the attack.
        every: the run length in packets, and the run length in time.
    """
    split = {"schedule": "weighted", "paths": 3}
    found = lower(data, attack, {**split, "every": every[0]}, {**split, "every": every[1]})
    verdict = HOLDS if found.verdict in (HOLDS, ALIKE) else found.verdict
    return Found(found.text, verdict, found.why, found.quotes)


def _open_world(
    data: Data, attack: str, wanted: Mapping[str, Any], protocol: str = "honest"
) -> Row:
    """Returns an attack's open-world result on a setting; of several, the one with most re-splits.

    Raises:
        LookupError: if there is no result.
    """
    target = {"schedule": None, "every": None, "paths": 3, "defence": None} | dict(wanted)
    found = []
    for each in data.results("fingerprinting.jsonl"):
        spec = each["spec"]
        if (spec["attack"], spec["world"], spec["protocol"]) != (attack, "open", protocol):
            continue
        if spec["observer"] != "random" or spec["mode"] != "together" or spec["draw"] != "load":
            continue
        if all((spec[name] or None) == target[name] for name in _SPLIT):
            found.append(each)
    if not found:
        raise LookupError(f"{attack}: no result of {dict(wanted)}")
    return max(found, key=lambda each: each["spec"]["resplits"])


def _inline(result: Row, metric: str) -> str:
    return inline(result["metrics"][metric])
