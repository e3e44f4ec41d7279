"""Tables without a counterpart in the CoMPS paper.

A full report (`Collection.paper`) also shows the paper's settings without a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from anabranch.report import comparison
from anabranch.report.collection import WHOLE, Collection, Entry
from anabranch.report.counter import COUNTER, MASKED
from anabranch.report.setting import (
    Setting,
    attack,
    attack_place,
    observer,
)
from anabranch.report.tables import Cell, Table, Value, duration, estimated, missing, percent, whole


def _one_path(collection: Collection) -> str:
    if collection.rule == "random":
        return "The observer sees one path, chosen at random for each load; honest protocol; "
    return f"Observer: {observer(collection.rule)}; honest protocol; "


def settings(collection: Collection) -> list[Setting]:
    """Returns the settings with results, and in a full report also the paper's settings."""
    papers = comparison.PAPERS if collection.paper else ()
    return sorted({*papers, *collection.settings}, key=lambda each: each.place)


def closed_settings(collection: Collection) -> list[Setting]:
    """Returns `settings` with closed-world results for one path; in a full report, all of them."""
    found = collection.select(world="closed", protocol="honest", observer=collection.rule)
    there = {entry.setting for entry in found}
    return [each for each in settings(collection) if collection.paper or each in there]


def closed_world(collection: Collection) -> Table:
    """Returns the accuracy of every attack in every setting."""
    names = closed_attacks(collection)
    rows: list[tuple[Cell, ...]] = []
    groups, before = set(), None
    for setting in closed_settings(collection):
        if (setting.group, setting.schedule) != before:
            groups.add(len(rows))
        before = (setting.group, setting.schedule)
        cells = [_accuracies(closed(collection, setting, name)) for name in names]
        rows.append((Cell(str(setting), head=True), *cells))
    note = (
        f"{_one_path(collection)}95 % intervals by page. Below each number is its design (the "
        "amount of training). The stronger the colour of a cell, the more loads are recognised. "
        f"The numbers are for packets without a visible counter: {MASKED}. “Size alone” is an "
        "attack that uses only the number of packets and bytes, without order and time."
    )
    header = ("setting", *map(attack, names))
    title = "Closed-world accuracy of every attack in every setting"
    return Table("closed-world", title, note, header, tuple(rows), frozenset(groups))


def closed_attacks(collection: Collection) -> list[str]:
    """Returns the attacks of the columns of `closed_world`."""
    found = collection.select(world="closed", protocol="honest", observer=collection.rule)
    there = {entry.attack for entry in found}
    return [each for each in collection.one_path_attacks if collection.paper or each in there]


def open_world(collection: Collection) -> Table:
    """Returns a table of every open-world result."""
    rows = tuple(
        (
            Cell(str(entry.setting), head=True),
            Cell(attack(entry.attack)),
            Cell("everything" if entry.observer == WHOLE else observer(entry.observer)),
            Cell(f"{entry.spec.design.protocol}: {entry.design}"),
            *(_estimates([entry], rate) for rate in comparison.RATES),
        )
        for entry in collection.select(world="open")
    )
    note = "95 % intervals by page. The protocol of each result chooses the threshold."
    header = ("setting", "attack", "observer", "protocol and design", "r-precision", "recall", "F1")
    return Table("open-world", "Open world", note, header, rows)


def closed(collection: Collection, setting: Setting, name: str) -> list[Entry]:
    """Returns an attack's closed-world results by the honest protocol, for `Collection.rule`."""
    return collection.select(
        setting, name, world="closed", protocol="honest", observer=collection.rule
    )


def observers(collection: Collection) -> Table:
    """Returns a table of the accuracy of every observer."""
    rules = watched(collection)
    rows = []
    for setting, name in watched_pairs(collection):
        found = [
            collection.select(setting, name, world="closed", protocol="honest", observer=rule)
            for rule in rules
        ]
        whole = closed(collection, Setting(defence=setting.defence), name)
        cells = [_accuracies(entries) for entries in (*found, whole)]
        rows.append((Cell(str(setting), head=True), Cell(attack(name)), *cells))
    note = (
        "Accuracy in a closed world by what the observer sees. Honest protocol, 95 % intervals "
        "by page. An observer of all paths together should recognise about the same share as an "
        "observer of the unsplit trace, in the last column. The numbers are for packets without "
        f"a visible counter: {MASKED}."
    )
    header = ("setting", "attack", *map(observer, rules), "not split")
    return Table("observers", "Observers", note, header, tuple(rows))


def watched(collection: Collection) -> list[str]:
    """Returns observers with results on split traces; in a full report, also the usual ones."""
    found = {entry.observer for entry in collection if _watches(entry)}
    order = ["random", "largest", "any", "merged:2", "merged:3", "merged:4", "merged"]
    usual = {"random", "largest", "merged:2", "merged"} if collection.paper else set()
    return sorted({*found, *usual}, key=lambda rule: (
        order.index(rule) if rule in order else len(order), rule
    ))  # fmt: skip


def watched_pairs(collection: Collection) -> list[tuple[Setting, str]]:
    """Returns the settings and attacks with results of another observer than the report's."""
    pairs = {
        (entry.setting, entry.attack)
        for entry in collection.select(world="closed", protocol="honest")
        if _watches(entry) and entry.observer != collection.rule
    }
    return sorted(pairs, key=lambda pair: (pair[0].place, attack_place(pair[1])))


def _watches(entry: Entry) -> bool:
    """Returns whether the traces are split and the observer reads no counter.

    Observers with a counter have a table of their own.
    """
    return entry.observer != WHOLE and not entry.observer.endswith(COUNTER)


def protocols(collection: Collection) -> Table:
    """Returns a table of results by the honest protocol and by the paper's, side by side."""
    rows = [row for pair in both_protocols(collection) for row in _protocol_row(collection, pair)]
    note = (
        "The table compares the results of both evaluation protocols: accuracy in a closed "
        "world, r-precision and recall in an open one; 95 % intervals by page. The paper's "
        "protocol leaves out sub-traces (the part of a load on one path) of at most ten packets, "
        "and treats each sub-trace as a separate sample. So sub-traces of one load may be in "
        "training and in test; the last column is the share of test samples for which this is "
        "so. There are further differences. The paper trains on nine tenths of the loads of all "
        "runs, each with all its paths; the honest protocol trains on R re-splits of each load "
        "of the training runs. In the paper unmonitored pages are in training and in test. The "
        "paper takes the most probable class; the honest protocol takes the threshold with the "
        "best F1 on separate loads and pages."
    )
    header = (
        "setting",
        "attack",
        "measure",
        "honest",
        "the paper's",
        "share with a part in training",
    )
    return Table("protocols", "Honest protocol and the paper's", note, header, tuple(rows))


def both_protocols(collection: Collection) -> list[tuple[Setting, str, str]]:
    """Returns the settings, attacks and worlds with a result by the paper's protocol."""
    found = {
        (entry.setting, entry.attack, entry.spec.design.world)
        for entry in collection.select(protocol="paper")
    }
    return sorted(found, key=lambda each: (each[2], each[0].place, attack_place(each[1])))


def _protocol_row(
    collection: Collection, pair: tuple[Setting, str, str]
) -> Iterator[tuple[Cell, ...]]:
    setting, name, world = pair
    honest, paper = (
        collection.select(setting, name, world=world, protocol=protocol, observer=collection.rule)
        for protocol in ("honest", "paper")
    )
    leaks = tuple(Value(percent(_leak(entry)), design=entry.design) for entry in paper)
    rates = {"accuracy": "accuracy"} if world == "closed" else {
        "r_precision": "r-precision", "recall": "recall"
    }  # fmt: skip
    for rate, cell in rates.items():
        yield (
            Cell(str(setting), head=True),
            Cell(attack(name)),
            Cell(cell),
            _estimates(honest, rate),
            _estimates(paper, rate),
            Cell(values=leaks),
        )


def _leak(entry: Entry) -> float:
    """Returns the share of leaked samples over the test sets of all folds."""
    folds = entry.result.facts["folds"]
    samples = [fold["test"]["samples"] for fold in folds]
    leaked = [fold["test_samples_of_training_loads"] for fold in folds]
    total = sum(samples)
    rate = sum(part * each for part, each in zip(leaked, samples, strict=True)) / max(total, 1)
    return float(rate)


def shares(collection: Collection) -> Table:
    """Returns the accuracy in each quarter of the loads, by the share of packets seen."""
    rows = []
    for entry in shared(collection):
        parts = entry.result.metrics["by_share"]
        cells = [_quarter(part) for part in parts]
        cells += [Cell("no such group", missing=True)] * (4 - len(cells))
        head = (Cell(str(entry.setting), head=True), Cell(attack(entry.attack)))
        rows.append((*head, Cell(entry.design), *cells))
    note = (
        f"Closed world. {_one_path(collection)}95 % intervals by page. The loads of each result "
        "are divided into four groups, by the share of packets that the observer sees. Below "
        "each number is the range of shares of its group. There are fewer groups if shares are "
        "equal."
    )
    header = ("setting", "attack", "design", *(f"{name} group" for name in _QUARTERS))
    return Table("shares", "Accuracy by the share that is seen", note, header, tuple(rows))


_QUARTERS = ("least seen", "second", "third", "most seen")


def shared(collection: Collection) -> list[Entry]:
    """Returns results of split settings for one path, closed world and honest protocol."""
    found = collection.select(world="closed", protocol="honest", observer=collection.rule)
    return [entry for entry in found if entry.setting.splits]


def _quarter(part: dict[str, float | dict[str, float | None]]) -> Cell:
    estimate = part["accuracy"]
    assert isinstance(estimate, dict)  # for mypy: `_check` of the collection has checked
    seen = f"{whole(part['least_share'])} to {whole(part['greatest_share'])} seen"
    return Cell(values=(estimated(estimate, seen, shaded=True),))


_COSTS = {
    "up": "bytes up",
    "down": "bytes down",
    "bandwidth": "bytes, both",
    "median_bandwidth": "bytes, median load",
    "time": "time",
    "median_time": "time, median load",
}


def overheads(collection: Collection) -> Table:
    """Returns a table of padding's costs.

    A split adds no packets, and no time unless its paths have delays.
    """
    rows = []
    for setting in settings(collection):
        if setting.defence is None and setting.path_defence is None:
            continue
        measured = _costs(collection, setting)
        head = Cell(str(setting), head=True)
        rows += [(head, Cell(text), *cells) for text, cells in measured]
        if not measured and collection.paper:
            rows.append((head, Cell("–"), *(missing() for _ in _COSTS)))
    note = (
        "The table shows the cost of each defence: bytes and time that it adds to the test "
        "loads, as shares of their real bytes and time. If the data have no sizes, every packet "
        "counts the same. Simulated splitting adds no bytes, and no delays except those in the "
        "name of the setting. The cost of real splitting in throughput is a separate measurement."
    )
    header = ("setting", "loads", *_COSTS.values())
    return Table("overheads", "Cost of defences", note, header, tuple(rows))


def _costs(collection: Collection, setting: Setting) -> list[tuple[str, list[Cell]]]:
    """Returns the description and the costs, as cells, of each measured set of test loads.

    Sets with the same costs share a row.
    """
    found: dict[str, list[Cell]] = {}
    for entry in collection.select(setting):
        for fold in entry.result.facts["folds"]:
            cost = fold["overhead"]
            if cost is not None:
                worlds = {"closed": "closed world", "open": "open world, a fold"}
                text = f"{worlds[entry.spec.design.world]}: {cost['loads']}, seed {entry.spec.seed}"
                cells = [Cell(values=(Value(percent(cost[name])),)) for name in _COSTS]
                if cells not in found.values():
                    found[text if text not in found else f"{text} ({len(found) + 1})"] = cells
    return list(found.items())


def everything(collection: Collection) -> Table:
    """Returns each result with its main number, its time and the command that reproduces it."""
    rows = tuple(_listing(entry) for entry in collection)
    note = (
        "The table has one row for each result. Main number: accuracy in a closed world, "
        "r-precision in an open one. Time: processor time and elapsed time of training and test, "
        "on the machine that ran them."
    )
    header = ("setting", "attack", "observer, world, protocol", "design", "main number", "time",
              "options of `anabranch-lab evaluate DATA`, and file")  # fmt: skip
    return Table("all", "All results", note, header, rows)


def _listing(entry: Entry) -> tuple[Cell, ...]:
    spec, elapsed = entry.spec, entry.result.elapsed
    main = "accuracy" if spec.design.world == "closed" else "r_precision"
    seen = "everything" if entry.observer == WHOLE else observer(entry.observer)
    return (
        Cell(str(entry.setting), head=True),
        Cell(attack(spec.attack.name)),
        Cell(f"{seen}, {spec.design.world}, {spec.design.protocol}"),
        Cell(entry.design),
        Cell(values=(estimated(entry.estimate(main)),)),
        Cell(values=(Value(duration(elapsed["cpu_s"]), duration(elapsed["wall_s"])),)),
        Cell(f"{options(entry)} → {_place(entry)}"),
    )


def _place(entry: Entry) -> str:
    """Returns the result's name in the sweep, if any, then the name of its file."""
    return f"{entry.run_name}: {entry.file.name}" if entry.run_name else entry.file.name


def options(entry: Entry) -> str:
    """Returns the options that reproduce a result: all whose values are not the defaults."""
    spec = entry.spec
    usual = type(spec)().to_dict() | {"mode": spec.usual_mode}
    parts = []
    for name, value in entry.spec.to_dict().items():
        if value == usual[name] or (name == "paths" and not entry.setting.splits):
            continue
        flag = f"--{name.replace('_', '-')}"
        if name == "parameters":
            parts += [f"--parameter {quote(f'{key}={part}')}" for key, part in value.items()]
        elif name == "delays":
            texts = [each if isinstance(each, float | int) else "/".join(map(str, each))
                     for each in value]  # fmt: skip
            parts += [f"--delay {text}" for text in texts]
        else:
            parts.append(flag if value is True else f"{flag} {quote(str(value))}")
    return " ".join(parts) or "(none)"


def _accuracies(entries: list[Entry]) -> Cell:
    return _estimates(entries, "accuracy", shaded=True)


def _estimates(entries: list[Entry], name: str, *, shaded: bool = False) -> Cell:
    if not entries:
        return missing()
    values = [estimated(entry.estimate(name), entry.design, shaded=shaded) for entry in entries]
    return Cell(values=tuple(values))
