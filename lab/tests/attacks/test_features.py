"""Features against values worked out by hand, or against plain NumPy one load at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch._core import slots_above
from anabranch.attacks import AttackError, Sequences
from anabranch.attacks.discriminant import LinearDiscriminants
from anabranch.attacks.features import (
    KFP_COUNTER_FEATURES,
    KFP_FEATURES,
    METADATA_FEATURES,
    course_features,
    cumul_features,
    directed_times,
    directions,
    draw_convolutions,
    inter_arrival_times,
    kfp_features,
    metadata,
    rocket_features,
    slot_series,
    total_features,
    traffic_aggregation_matrix,
)
from anabranch.attacks.features.rocket import KERNELS, convolved
from anabranch.attacks.features.segments import Segments
from anabranch.jagged import offsets_of

from .conftest import Data

TWO = Sequences.from_lists([[10.0, 10.5, 12.0], []], [[100, -1500, -400], []])


def kfp(X: Sequences) -> dict[str, np.ndarray]:
    return dict(zip(KFP_FEATURES, kfp_features(X).T, strict=True))


def test_sequences_select_and_join() -> None:
    X = Sequences.from_lists([[0.0], [], [1.0, 2.0]], [[1], [], [-2, 3]])
    assert X.lengths.tolist() == [1, 0, 2]
    assert X[[2, 1, 2]].sizes.tolist() == [-2, 3, -2, 3]
    assert X[np.array([False, True, True])].offsets.tolist() == [0, 0, 2]
    assert X[1:].times.tolist() == [1.0, 2.0]
    assert Sequences.concatenate([X, X[:1]]).offsets.tolist() == [0, 1, 1, 3, 4]
    assert X.owners.tolist() == [0, 2, 2]
    assert X.positions.tolist() == [0, 0, 1]


def test_time_counts_from_the_first_packet_of_the_sequence() -> None:
    assert Sequences.from_lists([[5.0], [], [1.0, 3.0]], [[1], [], [1, 1]]).elapsed.tolist() == [
        0.0,
        0.0,
        2.0,
    ]


@pytest.mark.parametrize(
    ("times", "sizes", "offsets", "reason"),
    [
        ([1.0, 0.5], [1, 1], [0, 2], "in order: .* at packet 1"),
        ([0.0, np.nan], [1, 1], [0, 2], "not a finite"),
        ([0.0, 1.0], [1, 0], [0, 2], "size 0"),
        ([0.0, 1.0], [1], [0, 2], "two flat arrays of one length"),
        ([0.0, 1.0], [1, 1], [0, 1], "end with the number of packets, 2"),
        ([0.0, 1.0], [1, 1], [0, 2, 1, 2], "ascending"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    times: list[float], sizes: list[int], offsets: list[int], reason: str
) -> None:
    with pytest.raises(AttackError, match=reason):
        Sequences(np.array(times), np.array(sizes, dtype=np.int32), np.array(offsets))


def test_time_may_start_again_with_the_next_sequence() -> None:
    Sequences(np.array([5.0, 1.0]), np.array([1, 1], dtype=np.int32), np.array([0, 1, 1, 2]))


def test_segments_agree_with_numpy_run_by_run() -> None:
    rng = np.random.default_rng(3)
    counts = np.array([4, 0, 1, 57, 20, 0, 23])
    runs = Segments(rng.normal(size=counts.sum()), offsets_of(counts))
    pieces = np.split(runs.values, runs.offsets[1:-1])
    for number, piece in enumerate(pieces):
        full = piece if piece.size else np.zeros(1)
        assert runs.mean[number] == pytest.approx(full.mean())
        assert runs.deviation[number] == pytest.approx(full.std())
        assert (runs.max[number], runs.min[number]) == (full.max(), full.min())
        for share in (0.25, 0.5, 0.75, 1.0):
            assert runs.quantile(share)[number] == pytest.approx(np.quantile(full, share))
        parts = [part.sum() for part in np.array_split(piece, 20)]
        np.testing.assert_allclose(runs.in_parts(20)[number], parts, atol=1e-12)
        steps = runs.differences()
        inner = steps.values[steps.offsets[number] : steps.offsets[number + 1]]
        np.testing.assert_allclose(inner, np.diff(piece))


def test_directions_are_padded_and_cut() -> None:
    assert directions(TWO, 5).tolist() == [[1, -1, -1, 0, 0], [0] * 5]
    assert directions(TWO, 2).tolist() == [[1, -1], [0, 0]]


def test_directed_times_carry_the_sign() -> None:
    np.testing.assert_allclose(directed_times(TWO, 4), np.array([[0, -0.5, -2.0, 0], [0] * 4]))


def test_inter_arrival_times_do_not_fall_at_the_end() -> None:
    np.testing.assert_allclose(
        inter_arrival_times(TWO, 5), np.array([[0, 0.5, 1.5, 0, 0], [0] * 5])
    )


def test_the_matrix_counts_packets_by_slot_and_direction() -> None:
    times = [0.0, 0.044, 0.0445, 40.0, 79.99, 80.0, 500.0]
    X = Sequences.from_lists([times, []], [[1, -1, 1, 1, -1, -1, -1], []])
    matrix = traffic_aggregation_matrix(X)
    assert matrix.shape == (2, 2, 1800)
    out, back = (np.flatnonzero(row).tolist() for row in matrix[0])
    assert out == [0, 1, 899]
    assert back == [0, 1798, 1799]
    assert matrix[0, 1, 1799] == 2
    assert not matrix[1].any()


def test_the_course_is_sampled_at_equal_distances() -> None:
    features = cumul_features(TWO, points=4)
    assert features[0, :4].tolist() == [2, 1, 1900, 100]
    np.testing.assert_allclose(features[0, 4:], [300, 800, 1300, 1800])
    assert not features[1].any()


def test_metadata_of_a_load() -> None:
    row = dict(zip(METADATA_FEATURES, metadata(TWO)[0], strict=True))
    assert (row["packets"], row["packets_in"], row["packets_out"]) == (3, 2, 1)
    assert row["share_in"] == pytest.approx(2 / 3)
    assert row["duration_s"] == 2.0
    assert row["seconds_per_packet"] == pytest.approx(2 / 3)
    assert not metadata(TWO)[1].any()


def test_kfp_features_of_a_small_load() -> None:
    row = {name: column[0] for name, column in kfp(TWO).items()}
    assert (row["packets_all"], row["packets_in"], row["packets_out"]) == (3, 2, 1)
    assert (row["order_in_mean"], row["order_out_mean"]) == (1.5, 0)
    assert (row["first_in"], row["last_out"]) == (2, 1)
    assert (row["gap_all_max"], row["gap_in_mean"], row["gap_out_max"]) == (1.5, 1.5, 0)
    assert (row["time_all_q50"], row["time_in_q100"]) == (0.5, 2.0)
    assert (row["bytes_in"], row["size_in_max"], row["size_out_mean"]) == (1900, 1500, 100)
    assert (row["chunk_max"], row["second_max"], row["second_min"]) == (1, 2, 0)
    assert [row[f"second_{i}"] for i in range(4)] == [2, 0, 1, 0]


def test_kfp_features_of_an_empty_load_are_zero() -> None:
    features = kfp_features(TWO)
    assert features.shape == (2, len(KFP_FEATURES)) == (2, 174)
    assert not features[1].any()


def test_kfp_series_agree_with_numpy(data: Data) -> None:
    columns = kfp(data.train)
    for number in (0, 17, 39):
        load = data.train[[number]]
        out = (load.sizes > 0).astype(float)
        chunks = [out[i : i + 20].sum() for i in range(0, out.size, 20)]
        assert columns["chunk_mean"][number] == pytest.approx(np.mean(chunks))
        parts = [part.sum() for part in np.array_split(chunks, 20)]
        assert [columns[f"chunk_part{i}"][number] for i in range(20)] == pytest.approx(parts)
        seconds = np.bincount(load.elapsed.astype(int))
        assert columns["second_std"][number] == pytest.approx(seconds.std())


def test_one_absurd_time_does_not_exhaust_memory() -> None:
    X = Sequences.from_lists([[0.0, 1e12]], [[1, -1]])
    assert kfp(X)["second_max"][0] == 1
    assert traffic_aggregation_matrix(X)[0, 1, -1] == 1


def test_a_course_counts_by_direction_and_carries_forward() -> None:
    X = replace(TWO, counts=np.array([2, 3, 9]))
    columns = course_features(X, moments=2, window=4.0)  # after 4 ms and 4 s
    packets, sizes, counted = [1, 2], [100, 1900], [2, 9]
    up, down = [1, 1], [0, 2]
    assert columns[0].tolist() == [*packets, *sizes, *counted, 2.0, *up, *down, 2, 2, 0, 9]
    assert columns[1].tolist() == [0.0] * 15
    assert total_features(X)[0].tolist() == [*packets, *sizes, *counted]
    np.testing.assert_array_equal(
        course_features(TWO, 2, 4.0)[0], [*packets, *sizes, 2, *up, *down]
    )


def test_k_fp_counts_what_counters_tell() -> None:
    X = replace(TWO, counts=np.array([2, 3, 9]))
    names = (*KFP_FEATURES, *KFP_COUNTER_FEATURES)
    counted = dict(zip(names, kfp_features(X).T, strict=True))
    assert counted["counter_out_last"].tolist() == [2, 0]
    assert counted["counter_in_last"].tolist() == [9, 0]
    assert counted["counter_in_step_max"].tolist() == [6, 0]
    assert counted["counter_in_q20"][0] == pytest.approx(3 + 0.2 * 6)
    assert [counted[f"counter_in_second_{k}"][0] for k in (0, 1, 2, 35)] == [3, 3, 9, 9]
    np.testing.assert_array_equal(kfp_features(X)[:, : len(KFP_FEATURES)], kfp_features(TWO))


def test_the_matrix_has_two_rows_more_where_counters_tell() -> None:
    X = replace(TWO, counts=np.array([2, 3, 9]))
    rows = traffic_aggregation_matrix(X, 3, 2.0)
    assert rows[0].tolist() == [[1, 0, 0], [1, 0, 1], [2, 0, 0], [3, 0, 6]]
    np.testing.assert_array_equal(rows[:, :2], traffic_aggregation_matrix(TWO, 3, 2.0))


def test_a_convolution_is_the_plain_sum(data: Data) -> None:
    series = slot_series(data.train, 40, 6.0)
    kernel, dilation = 17, 4
    weights = np.where(np.isin(np.arange(9), KERNELS[kernel]), 2.0, -1.0)
    wide = np.pad(series[3, 2], 4 * dilation)
    plain = [
        (weights * wide[slot : slot + 8 * dilation + 1 : dilation]).sum() for slot in range(40)
    ]
    np.testing.assert_allclose(convolved(series[3:4, 2], kernel, dilation)[0], plain, atol=1e-4)


def test_slots_above_thresholds_are_those_of_the_convolved_rows(data: Data) -> None:
    series = slot_series(data.train, 40, 6.0)
    drawn = draw_convolutions(series, 60, seed=2)
    drawn = [
        replace(each, thresholds=each.thresholds - at % 2 * 5) for at, each in enumerate(drawn)
    ]
    counts = rocket_features(series, drawn)[:, : -series.shape[1]].reshape(len(series), -1, 4)
    for place, each in enumerate(drawn):
        rows = convolved(series[:, each.channel], each.kernel, each.dilation)
        above = (rows[:, :, None] > each.thresholds).sum(axis=1)
        np.testing.assert_array_equal(counts[:, place], above)
    assert any((each.thresholds < 0).any() for each in drawn), "slots without packets count, too"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"heavy": 9}, "from 0 to 8"),
        ({"dilations": 0}, "each dilation"),
        ({"of_channels": 3}, "channel"),
    ],
)
def test_a_kernel_that_cannot_be_is_refused(change: dict[str, int], problem: str) -> None:
    given = {name: np.full(3 if name == "heavy" else 1, change.get(name, 1), np.int64)
             for name in ("heavy", "dilations", "of_channels")}  # fmt: skip
    with pytest.raises(ValueError, match=problem):
        slots_above(np.zeros(60, np.float32), 3, 20, thresholds=np.zeros(4, np.float32), **given)


def test_rocket_does_not_see_when_something_happens(data: Data) -> None:
    series = slot_series(data.train, 40, 6.0)
    drawn = draw_convolutions(series, 30, seed=1)
    alone = np.zeros((2, series.shape[1], 400), np.float32)
    alone[0, :, 150:190], alone[1, :, 171:211] = series[5], series[5]
    first, second = rocket_features(alone, drawn)
    np.testing.assert_allclose(first, second, rtol=1e-6)
    with_margin = [each for each in drawn if each.dilation == 1]
    assert rocket_features(alone, with_margin).max() > 0
    whole = rocket_features(series, drawn)
    np.testing.assert_array_equal(rocket_features(series[7:9], drawn), whole[7:9])


def test_discriminants_are_those_of_gaussian_classes() -> None:
    features = np.random.default_rng(3).normal(size=(90, 7))
    codes = np.arange(90) % 3
    features[:, 2] += codes
    *_, machine = LinearDiscriminants.fits(features, codes, [0.9, 0.2])
    mine = machine.predict_proba(features)
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    within = sum(np.cov(scaled[codes == c].T, bias=True) for c in range(3)) / 3
    shrunk = 0.8 * within + 0.2 * np.trace(within) / 7 * np.eye(7)
    means = np.array([scaled[codes == c].mean(axis=0) for c in range(3)])
    scores = scaled @ np.linalg.solve(shrunk, means.T)
    scores -= 0.5 * (means * np.linalg.solve(shrunk, means.T).T).sum(axis=1)
    theirs = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(mine, theirs / theirs.sum(axis=1, keepdims=True), rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_discriminants_tell_loads_that_are_all_alike_apart(seed: int) -> None:
    """The covariance within such classes is rounding alone, of no definite sign."""
    codes = np.arange(40) % 2
    features = np.random.default_rng(seed).random((2, 200))[codes]
    for machine in LinearDiscriminants.fits(features, codes, [1e-4, 0.03, 0.3]):
        np.testing.assert_array_equal(machine.predict_proba(features).argmax(axis=1), codes)
