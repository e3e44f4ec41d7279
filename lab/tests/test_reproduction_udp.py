"""Claims about UDP designs and MORE: each verdict, from small tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.reproduction import designs, udp, wide
from anabranch.reproduction.data import Data
from anabranch.reproduction.found import ALIKE, FAILS, HOLDS, MISSING, OPEN

ROUNDS = (0, 1, 2, 3)
NOISE = (1.0, 1.02, 0.98, 1.01)
"""Factors of the rounds; alone they leave an interval narrower than 10 %."""
WIDE_NOISE = (0.5, 2.0, 0.6, 1.7)


def measured(
    folder: Path,
    times: Mapping[tuple[str, int], float],
    noise: tuple[float, ...] = NOISE,
    **others: Any,
) -> Data:
    """Returns a table of circuits; a design's times are one value, and rounds differ by a factor.

    Args:
        folder: folder of the table.
        times: time of each design, in seconds.
        noise: a factor for each round, of all designs but Tor and mTor.
        others: further columns of all rows.
    """
    rows = [
        {"design": design, "legs": legs, "place": "loopback", "round": number}
        | {"optimistic": optimistic, "failed": 0, "exit_ms_per_mb": own}
        | dict.fromkeys(("first_byte", "web", "bulk"), own)
        | others
        for (design, legs), time in times.items()
        for number in ROUNDS
        for optimistic in (False, True)
        for own in [time * (number + 1) * (1 if design in ("tor", "mtor") else noise[number])]
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / udp.FILE)
    return Data(folder)


def all_udp(time: float, tor: float = 1.0) -> dict[tuple[str, int], float]:
    return {("tor", 1): tor, ("mtor", 2): tor / 2, **dict.fromkeys(designs.UDP, time)}


@pytest.mark.parametrize(
    ("time", "noise", "verdict"),
    [(0.5, NOISE, HOLDS), (2, NOISE, FAILS), (1, NOISE, ALIKE), (1, WIDE_NOISE, OPEN)],
)
@pytest.mark.parametrize("column", ["first_byte", "web", "bulk"])
def test_udp_designs_are_compared_with_one_circuit_in_the_same_round(
    tmp_path: Path, column: str, time: float, noise: tuple[float, ...], verdict: str
) -> None:
    found = udp.sooner(measured(tmp_path, all_udp(time), noise), column)
    assert found.verdict == verdict
    assert len(found.quotes) == len(designs.UDP)
    assert found.text.startswith("Tor × 1: 2,500 ms; ratio to one circuit of Tor: UDP-OR × 1: ")


def test_the_rows_of_the_experiments_page_have_the_same_ratio(tmp_path: Path) -> None:
    found = udp.sooner(measured(tmp_path, all_udp(0.5), (1.0, 1.0, 1.0, 1.0)), "web")
    assert found.quotes[0] == (
        "| loopback | UDP-OR × 1 | 320 KiB arrive sooner than with one circuit | 0.50 ± 0.00 |"
    )


def test_a_claim_about_emulated_lines_is_judged_by_their_rows_alone(tmp_path: Path) -> None:
    slow = measured(tmp_path, all_udp(2)).table(udp.FILE)
    fast = [row | {"place": "lines"} for row in measured(tmp_path, all_udp(0.25)).table(udp.FILE)]
    pq.write_table(pa.Table.from_pylist([*slow, *fast]), tmp_path / udp.FILE)
    data = Data(tmp_path)
    by_place = [udp.sooner(data, "web", place).verdict for place in ("loopback", "lines")]
    assert by_place == [FAILS, HOLDS]
    assert udp.sooner(data, "web", "lines").quotes[0].startswith("| lines | UDP-OR × 1 |")
    assert udp.against_fastest(data, "bulk", is_later=True, place="lines").verdict == FAILS
    assert [udp.exit_load(data, place).verdict for place in ("loopback", "lines")] == [HOLDS, FAILS]


def test_udp_designs_are_compared_with_the_fastest_design_on_tcp(tmp_path: Path) -> None:
    data = measured(tmp_path, all_udp(0.75))
    sooner = udp.against_fastest(data, "first_byte", is_later=False)
    later = udp.against_fastest(data, "bulk", is_later=True)
    assert (sooner.verdict, later.verdict) == (FAILS, HOLDS)
    assert later.text.startswith("ratio to the time of mTor × 2: UDP-OR × 1: 1.50")
    data = measured(tmp_path, all_udp(0.25))
    assert udp.against_fastest(data, "first_byte", is_later=False).verdict == HOLDS
    assert udp.against_fastest(data, "bulk", is_later=True).verdict == FAILS
    data = measured(tmp_path, all_udp(0.5), WIDE_NOISE)
    assert udp.against_fastest(data, "bulk", is_later=True).verdict == OPEN
    data = measured(tmp_path, all_udp(0.5))
    assert udp.against_fastest(data, "bulk", is_later=True).verdict == ALIKE


def test_the_exit_is_compared_by_its_cpu_for_each_byte(tmp_path: Path) -> None:
    found = udp.exit_load(measured(tmp_path, all_udp(2)))
    assert found.verdict == HOLDS
    # The experiment's page has this row for several circuits only.
    assert len(found.quotes) == sum(legs > 1 for _, legs in designs.UDP)
    assert udp.exit_load(measured(tmp_path, all_udp(0.5))).verdict == FAILS
    assert udp.exit_load(measured(tmp_path, all_udp(1), WIDE_NOISE)).verdict == OPEN


def test_more_is_compared_with_one_circuit_and_with_the_slowest_design(tmp_path: Path) -> None:
    slow = measured(tmp_path, {**all_udp(0.5), udp.MORE: 5})
    assert udp.more(slow, "first_byte").verdict == FAILS
    assert udp.more(slow, "web").verdict == HOLDS
    assert "320 KiB arrive later than with one circuit" in udp.more(slow, "web").quotes[0]
    slowest = udp.more_slowest(slow, "web")
    assert slowest.verdict == HOLDS
    assert slowest.text.startswith("ratio to the time of Tor × 1, the slowest other design: MORE")
    fast = measured(tmp_path, {**all_udp(0.5), udp.MORE: 0.2})
    assert udp.more(fast, "first_byte").verdict == HOLDS
    assert udp.more(fast, "web").verdict == udp.more_slowest(fast, "web").verdict == FAILS
    vague = measured(tmp_path, {**all_udp(0.5), udp.MORE: 1}, WIDE_NOISE)
    assert udp.more(vague, "web").verdict == udp.more_slowest(vague, "web").verdict == OPEN


@pytest.mark.parametrize(("failed", "verdict"), [(18, HOLDS), (0, FAILS)])
def test_failed_downloads_are_counted_by_round(tmp_path: Path, failed: int, verdict: str) -> None:
    data = measured(tmp_path, {udp.MORE: 1}, failed=failed)
    assert udp.failed(data, udp.MORE) == [failed / (failed + 2)] * len(ROUNDS)
    assert udp.more_fails(data).verdict == verdict


def test_a_share_of_failures_on_both_sides_of_half_judges_nothing(tmp_path: Path) -> None:
    rows = measured(tmp_path, {udp.MORE: 1}).table(udp.FILE)
    some = [row | {"failed": 4 * (row["round"] % 2)} for row in rows]
    pq.write_table(pa.Table.from_pylist(some), tmp_path / udp.FILE)
    assert udp.more_fails(Data(tmp_path)).verdict == OPEN


def test_a_design_that_a_run_lacks_is_not_measured(tmp_path: Path) -> None:
    data = measured(tmp_path, {("tor", 1): 1.0, ("stock", 1): 1.0})
    assert udp.measured(data) == [("tor", 1)]
    results = (
        udp.sooner(data, "web"),
        udp.against_fastest(data, "web", is_later=True),
        udp.exit_load(data),
        udp.more(data, "web"),
        udp.more_slowest(data, "web"),
        udp.more_fails(data),
    )
    assert {one.verdict for one in results} == {MISSING}
    assert all(one.why for one in results)


CUBIC = ("mudp-or-cubic", 2, "round robin")
NETWORKS = (1.0, 1.1, 0.9)
"""Factor of each drawn network, for all designs."""


def simulated(
    folder: Path,
    times: Mapping[tuple[wide.Arm, int], float],
    noise: tuple[float, ...] = (1.0, 1.01, 0.99),
    *,
    exit_load: float = 0.3,
) -> Data:
    """Returns a table of the larger network; all times of a simulation are one value.

    Args:
        folder: folder of the table.
        times: time in seconds by design and number of clients.
        noise: a factor for each network, of all designs but Tor's.
        exit_load: the used share of the exits' lines.
    """
    rows = [
        {"design": arm[0], "paths": arm[1], "schedule": arm[2], "clients": clients}
        | {"network": network, "seed": seed, "load": load, "quantile": quantile}
        | {"exit_load": exit_load, "time_to_first_byte": own, "time_to_last_byte": own}
        for (arm, clients), time in times.items()
        for network, factor in enumerate(NETWORKS[: len(noise)])
        for seed in (1, 2)
        for load in ("web", "bulk")
        for quantile in (0.02, 0.5)
        for own in [time * factor * (1 if arm in wide.ALONE else noise[network])]
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / wide.FILE)
    return Data(folder)


@pytest.mark.parametrize(
    ("time", "noise", "first", "later"),
    [
        (0.5, (1.0, 1.01, 0.99), HOLDS, FAILS),
        (2.0, (1.0, 1.01, 0.99), FAILS, HOLDS),
        (1.0, (0.5, 2.0, 1.0), OPEN, OPEN),
        (0.5, (1.0, 1.01), OPEN, OPEN),  # two networks have no interval
    ],
)
def test_udp_designs_are_compared_with_tor_in_the_same_network(
    tmp_path: Path, time: float, noise: tuple[float, ...], first: str, later: str
) -> None:
    data = simulated(tmp_path, {(wide.TOR, 228): 1, (CUBIC, 228): time}, noise)
    found = wide.udp_first_byte(data, "web", "sooner")
    assert found.verdict == first
    (quote,) = found.quotes
    assert quote.startswith("| sooner | 2 | mudp-or-cubic × 2, round robin | ")
    assert quote.endswith(f" | {first}")
    assert wide.udp_slower(data, "bulk", "slower").verdict == later
    assert wide.udp_slower(data, "web").quotes == ()


@pytest.mark.parametrize(
    ("time", "noise", "verdict"),
    [
        (1.0, (1.0, 1.0, 1.0), HOLDS),
        (3.0, (1.0, 1.0, 1.0), FAILS),
        (0.5, (1.0, 1.0, 1.0), FAILS),
        (0.85, (1.0, 1.0, 1.0), FAILS),
        (1.0, (1.0, 1.0), OPEN),
    ],
)
def test_a_first_byte_is_steady_if_its_ratio_is_near_1(
    tmp_path: Path, time: float, noise: tuple[float, ...], verdict: str
) -> None:
    data = simulated(tmp_path, {(CUBIC, 20): 1, (CUBIC, 228): time, (wide.TOR, 228): 1}, noise)
    assert wide.udp_steady(data, "steady").verdict == verdict


@pytest.mark.parametrize(("time", "verdict"), [(0.5, HOLDS), (1.05, FAILS), (2.0, FAILS)])
def test_round_robin_is_compared_with_the_own_scheduler(
    tmp_path: Path, time: float, verdict: str
) -> None:
    times = {
        ((design, 2, schedule), 228): of
        for design in wide.DESIGNS
        for schedule, of in (("own", 1.0), ("round robin", time))
    }
    found = wide.schedules(simulated(tmp_path, times), "faster")
    assert found.verdict == verdict
    assert all(quote.endswith(f" | {verdict}") for quote in found.quotes)


def test_the_seeds_of_a_network_are_one_value(tmp_path: Path) -> None:
    data = simulated(tmp_path, {(wide.TOR, 228): 1, (CUBIC, 228): 0.5}, (1.0, 1.0, 1.0))
    assert wide.udp_first_byte(data, "web").text == (
        "mudp-or-cubic × 2, round robin: 2.00 (2.00 to 2.00)"
    )


def test_a_run_without_udp_designs_says_so(tmp_path: Path) -> None:
    data = simulated(tmp_path, {(wide.TOR, 228): 1, (wide.TOR, 20): 1})
    assert wide.udp_first_byte(data, "web").verdict == MISSING
    assert wide.udp_steady(data, "").verdict == MISSING


def test_the_floor_is_judged_only_in_a_congested_network(tmp_path: Path) -> None:
    times = {(arm, clients): 1.0 for arm in wide.ALONE for clients in (140, 228)}
    idle = wide.floor(simulated(tmp_path, times), "floor")
    assert (idle.verdict, idle.why[:15]) == (OPEN, "exits use 30 % ")
    assert wide.floor(simulated(tmp_path, times, exit_load=0.9), "floor").verdict == HOLDS
