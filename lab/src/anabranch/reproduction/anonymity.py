"""Hostile relays and guard fingerprints (DBSec 2019, section 6)."""

from __future__ import annotations

from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.found import (
    FAILS,
    HOLDS,
    OPEN,
    Found,
    Interval,
    at_least,
    within,
)

FIRST = "2015-10-10T02"
"""Time of the consensus from the paper's year."""
NEAR = 0.005
"""Maximum distance of a probability from the paper's to count as equal."""


def compromised(data: Data, legs: int, share: float) -> Found:
    """Judges the probability that at least one entry and the exit are hostile.

    The adversary has 20 % of entries and of exits.

    Args:
        data: has `anonymity.parquet`.
        legs: number of legs of the circuit.
        share: the paper's probability.
    """
    rows = _paths(data, "any", legs)
    good = [abs(row["mean"] - share) <= NEAR or row["low"] <= share <= row["high"] for row in rows]
    text = f"{_band(rows[0], 100, 2, ' %')} in {FIRST[:7]}, {_ends(rows, 100, 2, ' %')}"
    verdict, why = _each(good, "networks")
    return Found(text, verdict, why, (_band(rows[0], 100, 2, " %"),))


def formula(data: Data, measure: str) -> Found:
    """Judges whether a closed form equals the simulation in every network, for 1 to 5 legs.

    Args:
        data: has `anonymity.parquet`.
        measure: `any` (at least one entry and the exit are hostile) or `all` (all entries and the
            exit).
    """
    closed = {_key(row): row["mean"] for row in _of(data, "paths", f"{measure}_closed")}
    rows = _of(data, "paths", measure)
    apart = [abs(row["mean"] - closed[_key(row)]) for row in rows]
    good = [
        far <= NEAR or row["low"] <= closed[_key(row)] <= row["high"]
        for far, row in zip(apart, rows, strict=True)
    ]
    verdict, why = _each(good, "settings")
    differ = f"formula and simulation differ by at most {max(apart):.4f}"
    return Found(f"{differ}, in {len(rows)} settings", verdict, why, (differ,))


def negligible(data: Data, legs: int) -> Found:
    """Judges whether several legs are as rarely compromised as one: a ratio within 10 % of 1."""
    one, several = (_paths(data, "any", each)[0] for each in (1, legs))
    ratio = Interval(
        several["mean"] / one["mean"], several["low"] / one["high"], several["high"] / one["low"]
    )
    interval = f"({ratio.low:.2f} to {ratio.high:.2f})"
    text = f"{ratio.value:.2f} {interval} times the share with one circuit, in {FIRST[:7]}"
    return Found(text, within(ratio, 0.1), "", (f"{ratio.value:.1f} times",))


def more(data: Data, circuits: int, share: float = 0.2) -> Found:
    """Compares the probability that MORE's exit and all entries are hostile with one circuit's.

    Args:
        data: not used, because the closed form holds in every network (`formula`).
        circuits: number of circuits that a client has used.
        share: share of hostile entries and exits.
    """
    one, many = share * share, share * share**circuits
    verdict = HOLDS if many < one else FAILS
    text = f"{100 * many:.1g} % with {circuits} circuits, {100 * one:.0f} % with one"
    return Found(text, verdict, "by formula", (f"{100 * many:.1g} %",))


def sets(data: Data, entries: int, packets: int) -> Found:
    """Computes the share of MORE's clients that have used all entries and so have equal sets.

    Args:
        data: not used, because the closed form holds in every network.
        entries: number of entries, drawn with equal probability for each packet.
        packets: number of packets that a client has sent.
    """
    share = (1 - (1 - 1 / entries) ** packets) ** entries
    verdict = HOLDS if share > 0.99 else FAILS
    used = f"have used all {entries:,} entries after {packets:,} packets"
    text = f"{100 * share:.1f} % of clients {used}"
    return Found(text, verdict, "by formula", (f"{100 * share:.1f} % of clients have used all",))


def model(data: Data, measure: str, least: float, most: float) -> Found:
    """Judges how the chance of compromise after a year depends on the number of entries.

    Args:
        data: has `anonymity.parquet`.
        measure: `any_now` (at least one hostile entry) or `all_now` (all entries are hostile).
        least: lower bound of two ratios of chances. For `any_now`, they are the chance with two
            entries, and that with three, over that with one. For `all_now`, they are the chance
            with one entry over that with two, and with two over that with three.
        most: upper bound of the ratios.
    """
    rows = {row["legs"]: row for row in _year(data, measure)}
    if measure == "any_now":
        factors = [_over(rows[legs], rows[1]) for legs in (2, 3)]
    else:
        factors = [_over(rows[legs - 1], rows[legs]) for legs in (2, 3)]
    good = [least <= (each.low or 0) and (each.high or 0) <= most for each in factors]
    bad = [(each.high or 0) < least or (each.low or 0) > most for each in factors]
    verdict = HOLDS if all(good) else FAILS if all(bad) else OPEN
    two, three = (f"{each.value:.1f}" for each in factors)
    text = f"{two} times with two entries, {three} with three"
    if measure == "all_now":
        text = f"{two} times fewer with the second entry, {three} with the third"
    why = "the results for two and for three entries differ" if verdict == OPEN else ""
    precise = tuple(f"{each.value:.{2 if measure == 'any_now' else 1}f}" for each in factors)
    return Found(text, verdict, why, precise)


def mixed(data: Data) -> Found:
    """Judges whether a mix of clients is compromised less often than clients with one entry.

    In the mix, 60, 20 and 20 % of the clients have one, two and three entries. A client is
    compromised if all of its entries are hostile.
    """
    rows = {row["legs"]: row for row in _year(data, "all_now")}
    low, high = rows[1]["low"] - rows[0]["high"], rows[1]["high"] - rows[0]["low"]
    verdict = at_least(Interval((low + high) / 2, low, high), 0)
    text = f"{_band(rows[0], 100, 2, ' %')} of clients, one entry {_band(rows[1], 100, 2, ' %')}"
    return Found(text, verdict, "the intervals overlap" if verdict == OPEN else "")


def fingerprint(data: Data, measure: str, legs: int, number: float, near: float) -> Found:
    """Judges a number of guard fingerprints in all networks; the paper does not name its network.

    Args:
        data: has `anonymity.parquet`.
        measure: `over_clients`, `unique` or `largest`, as in `anonymity.Sharing`.
        legs: number of entries of a client.
        number: the paper's number.
        near: maximum distance of a network's number from the paper's.
    """
    of_legs = [row for row in _of(data, "fingerprints", measure) if row["legs"] == legs]
    networks = {row["consensus"]: row for row in of_legs if row["in_use"] == legs}
    rows = list(networks.values())
    # The size of the largest set includes the client itself, which the paper does not count.
    shift = 1 if measure == "largest" else 0
    values = [row["mean"] - shift for row in rows]
    good = [abs(value - number) <= near for value in values]
    scale, unit = (100, " %") if measure == "unique" else (1, "")
    quotes = tuple(f"{value * scale:.1f}" for value in (min(values), max(values)))
    text = f"{quotes[0]}{unit} to {quotes[1]}{unit} over {len(rows)} networks"
    if any(good):
        why = f"depends on the network: within the bound in {sum(good)} of {len(good)}"
        return Found(text, OPEN, why, quotes)
    inside = min(values) <= number <= max(values)
    verdict = OPEN if inside else FAILS
    return Found(text, verdict, "depends on the network" if inside else "", quotes)


def _of(data: Data, analysis: str, measure: str) -> list[Row]:
    table = data.table("anonymity.parquet")
    return [row for row in table if (row["analysis"], row["measure"]) == (analysis, measure)]


def _paths(data: Data, measure: str, legs: int) -> list[Row]:
    rows = [row for row in _of(data, "paths", measure) if row["legs"] == legs]
    rows = [row for row in rows if row["adversary"] == "0.2"]
    return sorted(rows, key=lambda row: row["consensus"] != FIRST)


def _year(data: Data, measure: str) -> list[Row]:
    rows = [row for row in _of(data, "year", measure) if row["consensus"] == FIRST]
    rows = [row for row in rows if row["adversary"] == "by lot"]
    last = max(row["day"] for row in rows)
    return [row for row in rows if row["day"] == last]


def _over(first: Row, second: Row) -> Interval:
    return Interval(
        first["mean"] / second["mean"], first["low"] / second["high"], first["high"] / second["low"]
    )


def _each(good: list[bool], what: str) -> tuple[str, str]:
    if all(good):
        return HOLDS, ""
    return (OPEN, f"in {sum(good)} of {len(good)} {what}") if any(good) else (FAILS, "")


def _key(row: Row) -> tuple[object, ...]:
    return (row["consensus"], row["adversary"], row["legs"], row["in_use"])


def _band(row: Row, scale: float, digits: int, unit: str) -> str:
    mean, low, high = (row[name] * scale for name in ("mean", "low", "high"))
    return f"{mean:.{digits}f}{unit} ({low:.{digits}f} to {high:.{digits}f})"


def _ends(rows: list[Row], scale: float, digits: int, unit: str) -> str:
    values = [row["mean"] * scale for row in rows]
    spread = f"{min(values):.{digits}f} to {max(values):.{digits}f}{unit}"
    return f"{spread} over {len(rows)} networks"
