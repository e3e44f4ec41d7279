"""Claims of the CoMPS paper: its data set, its censor, and the goodput that splitting costs."""

from __future__ import annotations

from statistics import median

from anabranch.reproduction.data import Data, Row
from anabranch.reproduction.found import HOLDS, MISSING, OPEN, Found, Interval, at_least, at_most


def collected(data: Data, monitored: int, loads: int, others: int) -> Found:
    """Judges whether our collected set is at least as large as the paper's.

    Args:
        data: has `page-loads/loads.parquet`.
        monitored: number of monitored pages of the paper's set.
        loads: number of loads of each of them.
        others: number of unmonitored pages of the paper's set.
    """
    rows = [
        row
        for row in data.table("page-loads/loads.parquet")
        if row["mode"] == "split" and not row["error"]
    ]
    pages = {row["page"] for row in rows if row["monitored"]}
    other = {row["page"] for row in rows if not row["monitored"]}
    of_each = sum(row["monitored"] for row in rows) // max(1, len(pages))
    text = (
        f"{len(pages)} pages × {of_each} loads and {len(other)} others, each split and undefended"
    )
    enough = len(pages) >= monitored and of_each >= loads and len(other) >= others
    why = "" if enough else "the set is smaller than the paper's, and the paper's claim is its size"
    quotes = (f"{len(pages)} monitored pages and {len(other)} others",)
    return Found(text, HOLDS if enough else OPEN, why, quotes)


def censor(data: Data) -> Found:
    """Judges whether fetches succeed if their handshake uses the VPN, and fail if it does not.

    The text of the result has the share of bytes on the direct path.
    """
    rows = data.table("circumvention.parquet")
    servers = sorted({row["server"] for row in rows if row["access"] == "handshake"})
    texts, quotes, good = [], [], True
    for server in servers:
        of = [row for row in rows if (row["server"], row["access"]) == (server, "handshake")]
        straight = [row for row in rows if (row["server"], row["access"]) == (server, "direct")]
        shares = [100 * row["direct_share"] for row in of]
        good &= all(row["through"] for row in of) and not any(row["through"] for row in straight)
        good &= bool(straight)
        spread = f"{median(shares):.2f} ({min(shares):.2f}–{max(shares):.2f}) %"
        texts.append(
            f"{server}: {sum(row['through'] for row in of)} of {len(of)} fetches, "
            f"{spread} of the bytes on the direct path"
        )
        quotes.append(spread)
    verdict = HOLDS if good else OPEN
    return Found("; ".join(texts), verdict, "" if good else "not all fetches agree", tuple(quotes))


def kept(data: Data, file: str, system: str, every: int, at_least_kept: float) -> Found:
    """Judges whether splitting keeps a share of the unsplit goodput, over three equal paths.

    Args:
        data: has `file`.
        file: name of a file of overheads.
        system: `wireguard`, `mosh` or a QUIC server.
        every: the run length in ms.
        at_least_kept: minimum share of the goodput: what remains after the paper's loss.
    """
    of = _kept(data, file, system, every)
    if not of:
        return Found("", MISSING, "no run counts as split")
    text = f"{_spread(of)} of the unsplit goodput, {_runs(of)}"
    if len(of) == 1:
        return Found(text, OPEN, "one run", ())
    verdict = at_least(Interval(median(of), min(of), max(of)), at_least_kept)
    why = "the measured values lie on both sides of the paper's limit" if verdict == OPEN else ""
    return Found(text, verdict, why, (_percent(median(of)),))


def drop(data: Data, file: str, system: str, short: int, long: int) -> Found:
    """Judges whether runs of `short` ms keep less than runs of `long` ms."""
    less, more = (_kept(data, file, system, every) for every in (short, long))
    if not less or not more:
        return Found("", MISSING, "no run counts as split")
    text = f"{short} ms: {_spread(less)}; {long} ms: {_spread(more)}"
    if min(len(less), len(more)) < 2:
        return Found(text, OPEN, "one run", ())
    verdict = at_most(Interval(median(less), min(less), max(less)), min(more))
    why = "runs overlap" if verdict == OPEN else ""
    return Found(text, verdict, why, (_percent(median(less)), _percent(median(more))))


def _kept(data: Data, file: str, system: str, every: int) -> list[float]:
    """Returns the goodput of each measurement over the median goodput without a split.

    Only measurements that were really split (`_counts`) are used.
    """
    rows = [
        row
        for row in data.table(file)
        if (row["system"], row["network"], row["paths"]) == (system, "equal", 3)
    ]
    unsplit = [row["goodput"] for row in rows if row["every_ms"] == 0]
    return [
        row["goodput"] / median(unsplit)
        for row in rows
        if row["every_ms"] == every and _counts(row)
    ]


def _counts(row: Row) -> bool:
    """Returns whether a measurement was really split: each path carried a part of the downlink."""
    counted: bool = row["counts"]
    return counted


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _spread(shares: list[float]) -> str:
    return f"{_percent(median(shares))} ({100 * min(shares):.1f}–{100 * max(shares):.1f})"


def _runs(shares: list[float]) -> str:
    return f"{len(shares)} {'run' if len(shares) == 1 else 'runs'}"
